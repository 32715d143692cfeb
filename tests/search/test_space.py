"""The layout space against plain loops, and every refusal's message."""

from __future__ import annotations

import pytest

from planner.cost.legality import legal_tensor_degrees
from planner.errors import LayoutError
from planner.formats.catalog import load_cluster, load_model
from planner.search.space import divisors, enumerate_layouts
from planner.specs import Pins, Schedule, Training
from tests.factories import chain_model, small_cluster, tiny_llama


def loops(model, cluster, training, max_stages):
    """Every (dp, pp, tp, m, M, schedule) by definition."""
    found = set()
    gpus = cluster.num_gpus
    widest = gpus if training.allow_cross_domain else min(gpus, cluster.nvlink_domain)
    for tp in legal_tensor_degrees(model, widest):
        for pp in range(1, max_stages + 1):
            for dp in range(1, gpus // (tp * pp) + 1):
                if dp * pp * tp != gpus and not training.allow_fewer:
                    continue
                for size in range(1, training.max_microbatch_size + 1):
                    if training.global_batch_size % (dp * size):
                        continue
                    count = training.global_batch_size // (dp * size)
                    for schedule in training.schedules:
                        alone = pp == 1 or count == 1
                        if alone and schedule is not training.schedules[0]:
                            continue
                        found.add((dp, pp, tp, size, count, schedule))
    return found


def as_set(space):
    return {
        (
            int(space.dp[i]),
            int(space.pp[i]),
            int(space.tp[i]),
            int(space.microbatch_size[i]),
            int(space.num_microbatches[i]),
            space.schedules[int(space.schedule[i])],
        )
        for i in range(len(space))
    }


@pytest.mark.parametrize("batch", [1, 8, 12, 48])
@pytest.mark.parametrize("fewer", [False, True])
@pytest.mark.parametrize("cross", [False, True])
def test_space_equals_plain_loops(batch, fewer, cross):
    model, cluster = tiny_llama(), small_cluster(3, 4)
    training = Training(
        global_batch_size=batch, sequence_length=128, allow_fewer=fewer, allow_cross_domain=cross
    )
    expected = loops(model, cluster, training, 8)
    if not expected:
        with pytest.raises(LayoutError):
            enumerate_layouts(model, cluster, training, 8)
        return
    space = enumerate_layouts(model, cluster, training, 8)
    assert as_set(space) == expected
    assert len(space) == len(expected)


def test_space_is_in_canonical_order():
    space = enumerate_layouts(
        tiny_llama(), small_cluster(), Training(global_batch_size=16, sequence_length=128), 8
    )
    keys = [
        (space.pp[i], space.tp[i], space.dp[i], space.microbatch_size[i], space.schedule[i])
        for i in range(len(space))
    ]
    assert keys == sorted(keys)


@pytest.mark.parametrize("number", [1, 2, 12, 97, 1536, 10_000])
def test_divisors(number):
    assert divisors(number) == [d for d in range(1, number + 1) if number % d == 0]


def refused(**fields):
    pins = Pins(**{k: fields.pop(k) for k in list(fields) if k in Pins.model_fields})
    training = Training(sequence_length=128, pins=pins, **fields)
    with pytest.raises(LayoutError) as caught:
        enumerate_layouts(tiny_llama(), small_cluster(3, 4), training, 8)
    assert caught.value.exit_status == 2
    return str(caught.value)


def test_tensor_degree_that_does_not_divide_heads_names_the_legal_ones():
    message = refused(global_batch_size=12, tp=3)
    assert "tp=3" in message
    assert "1, 2, 4" in message


def test_tensor_degree_beyond_the_domain():
    message = refused(global_batch_size=12, tp=8)
    assert "nvlink domain of 4" in message
    assert "--allow-cross-domain" in message


def test_degrees_that_do_not_divide_the_gpus_name_those_that_do():
    """solver_limits-03: 12 GPUs, T=8, P=2; with P=2 kept T is in {1, 2, 3, 6}."""
    model = chain_model([1.0] * 4, type="mlp")
    cluster = small_cluster(1, 12)
    training = Training(global_batch_size=12, sequence_length=128, pins=Pins(tp=8, pp=2))
    with pytest.raises(LayoutError) as caught:
        enumerate_layouts(model, cluster, training, 4)
    assert "tp=8" in str(caught.value)
    assert "pp=2" in str(caught.value)
    assert "12" in str(caught.value)


def test_global_batch_that_does_not_divide_names_the_nearest():
    """batch-02: 96 GPUs, T=8, D=12, batch 1024, m=2: 1008 and 1032 are the nearest."""
    model = load_model("gpt3-175b")
    cluster = load_cluster("dgx-a100-80gb:12")
    pins = Pins(tp=8, pp=1, dp=12, microbatch_size=2)
    training = Training(global_batch_size=1024, sequence_length=2048, pins=pins)
    with pytest.raises(LayoutError) as caught:
        enumerate_layouts(model, cluster, training, 98)
    assert "1008, 1032" in str(caught.value)


def test_more_stages_than_blocks():
    assert "more than the 8 blocks" in refused(global_batch_size=12, pp=12)


def test_pinned_degrees_must_use_all_gpus():
    assert "uses 8 of 12 GPUs" in refused(global_batch_size=8, dp=2, pp=1, tp=4) or "12" in refused(
        global_batch_size=8, dp=2, pp=1, tp=4
    )


def test_batch_no_layout_divides_names_the_nearest():
    message = refused(global_batch_size=7, pp=1, tp=1)
    assert "12" in message
    assert "7" in message


def test_schedules_are_kept_apart_only_where_they_differ():
    training = Training(
        global_batch_size=8, sequence_length=128, schedules=(Schedule.GPIPE, Schedule.ONE_F_ONE_B)
    )
    space = enumerate_layouts(tiny_llama(), small_cluster(), training, 8)
    for i in range(len(space)):
        if space.pp[i] == 1 or space.num_microbatches[i] == 1:
            # 1F1B holds one micro-batch where a single stage under GPipe would hold all.
            assert space.schedules[int(space.schedule[i])] is Schedule.ONE_F_ONE_B


def test_tensor_groups_never_straddle_domains_unasked():
    """Domains of 6 GPUs: groups of 4 would span two of them unless all ranks share one."""
    model, cluster = tiny_llama(), small_cluster(2, 6)
    training = Training(global_batch_size=12, sequence_length=128)
    space = enumerate_layouts(model, cluster, training, 8)
    assert 4 not in set(space.tp.tolist())
    across = enumerate_layouts(
        model, cluster, training.model_copy(update={"allow_cross_domain": True}), 8
    )
    assert 4 in set(across.tp.tolist())
    fewer = enumerate_layouts(model, cluster, training.model_copy(update={"allow_fewer": True}), 8)
    wide = fewer.num_gpus[fewer.tp == 4]
    assert len(wide)
    assert wide.max() <= 6
