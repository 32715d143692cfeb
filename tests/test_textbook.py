"""What introductions to pipeline parallelism state, through the public library.

Formulas, the two worked cases and the usual misconceptions, as far as GPipe and 1F1B show them.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

import planner
from planner.cost.question import plan_pricer
from planner.formats.huggingface import read_config
from planner.plans import Layout, Plan, Stage, Status
from planner.schedules.closed_forms import (
    bubble_of_equal_stages,
    equal_stage_steps,
    utilisation_of_equal_stages,
)
from planner.specs import EmbeddingShape, Tier, Training
from tests.factories import chain_model, small_cluster, tiny_llama

SCHEDULES = ("gpipe", "1f1b")


def equal_stages(stages: int, microbatches: int, schedule: str, **options) -> Plan:
    """P equal layers on P stages, F = B = 1 ms."""
    model = chain_model([1.0] * stages, [1.0] * stages, **options.pop("model", {}))
    return planner.partition(
        model, stages, microbatches, schedule=schedule, objective="step-time", **options
    )


# --- time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("microbatches", "steps", "bubble"), [(8, 22, Fraction(3, 11)), (4, 14, Fraction(3, 7))]
)
def test_steps_and_bubble_of_four_stages(schedule, microbatches, steps, bubble):
    plan = equal_stages(4, microbatches, schedule)
    assert plan.step_time_ms == steps == equal_stage_steps(4, microbatches)
    assert steps == 2 * (microbatches + 4 - 1)
    assert plan.bubble_fraction == pytest.approx(float(bubble), abs=1e-15)
    assert bubble == bubble_of_equal_stages(4, microbatches)
    assert plan.status is Status.OPTIMAL


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_utilisation_of_eight_stages(schedule):
    # One introduction prints 94.4 for 128; 128/135 is 94.8.
    printed = {1: 12.5, 2: 22.2, 4: 36.4, 8: 53.3, 16: 69.6, 32: 82.1, 64: 90.1, 128: 94.8}
    for microbatches, percent in printed.items():
        plan = equal_stages(8, microbatches, schedule)
        assert round(100 * (1 - plan.bubble_fraction), 1) == percent
        utilisation = utilisation_of_equal_stages(8, microbatches)
        assert utilisation == Fraction(microbatches, microbatches + 7)
        assert 1 - plan.bubble_fraction == pytest.approx(float(utilisation), abs=1e-15)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_without_microbatches_one_stage_in_p_works(schedule):
    for stages in (2, 4, 5, 16):
        plan = equal_stages(stages, 1, schedule)
        assert 1 - plan.bubble_fraction == pytest.approx(1 / stages, abs=1e-15)


def test_bubble_falls_to_zero_like_stages_over_microbatches():
    bubbles = [equal_stages(4, count, "1f1b").bubble_fraction for count in (10, 100, 1000, 10_000)]
    assert bubbles == sorted(bubbles, reverse=True)
    assert bubbles[-1] == pytest.approx(3 / 10_000, rel=1e-3)


def test_communication_share_grows_with_finer_stages():
    """Total = compute + communication: the same 32 ms of layers, cut finer and finer."""
    model = chain_model([0.5] * 32, [0.5] * 32)
    shares = []
    for stages in (2, 4, 8, 16, 32):
        plan = planner.partition(model, stages, 64, latency_ms=0.05)
        slowest = max(plan.stages, key=lambda s: s.communication_ms)
        whole = slowest.forward_ms + slowest.backward_ms + slowest.communication_ms
        assert whole == pytest.approx(plan.bottleneck_ms)
        shares.append(slowest.communication_ms / whole)
    assert shares == sorted(shares)
    assert len(set(shares)) == len(shares)


def test_pace_is_the_slowest_stage_with_its_communication():
    times, c = [4.0, 6.0, 2.0, 8.0], 0.25
    model = chain_model([t / 2 for t in times], [t / 2 for t in times])
    plan = planner.partition(model, 4, 8, latency_ms=c)
    # Inner stages send and receive at both cuts, the ends at one.
    assert plan.bottleneck_ms == max(4 + 2 * c, 6 + 4 * c, 2 + 4 * c, 8 + 2 * c)


def test_serving_one_batch_gets_slower():
    model = chain_model([1.0] * 8, [0.0] * 8)
    alone = planner.partition(model, 1, 1, objective="step-time")
    piped = planner.partition(model, 4, 1, objective="step-time", latency_ms=0.1)
    assert alone.step_time_ms == 8
    # Three cuts forward; the empty backward crosses them again.
    assert piped.step_time_ms == pytest.approx(8 + 6 * 0.1)


# --- memory --------------------------------------------------------------------------------------


def test_microbatches_kept_and_activation_ratio():
    for stages, microbatches in ((4, 8), (8, 64), (16, 16), (8, 4)):
        options = {"model": {"activation_bytes": 1000}}
        gpipe = equal_stages(stages, microbatches, "gpipe", **dict(options))
        one = equal_stages(stages, microbatches, "1f1b", **dict(options))
        assert [stage.in_flight for stage in gpipe.stages] == [microbatches] * stages
        assert [stage.in_flight for stage in one.stages] == [
            min(microbatches, stages - rank) for rank in range(stages)
        ]
        kept = [plan.stages[0].memory["activations"] for plan in (one, gpipe)]
        assert Fraction(*kept) == Fraction(min(stages, microbatches), microbatches)
    # P = 4, M = 8: half
    assert Fraction(4 * 1000, 8 * 1000) == Fraction(1, 2)


def test_states_fall_to_a_p_th():
    model = chain_model([1.0] * 16, parameter_bytes=1000)
    whole = planner.partition(model, 1).stages[0].memory
    assert whole["parameters"] + whole["gradients"] + whole["optimizer"] == 16 * 1000 / 2 * 18
    for stages in (2, 4, 8, 16):
        for stage in planner.partition(model, stages).stages:
            for term in ("parameters", "gradients", "optimizer"):
                assert stage.memory[term] * stages == whole[term]


def test_activations_of_a_fixed_batch_fall_to_a_p_th():
    """Eight samples a step, one at a time: GPipe keeps all of 1/P of the layers, 1F1B less."""
    model = chain_model([1.0] * 16, activation_bytes=1000)
    for stages in (1, 2, 4, 8, 16):
        gpipe = planner.partition(model, stages, 8, schedule="gpipe")
        one = planner.partition(model, stages, 8, schedule="1f1b")
        for late, early in zip(gpipe.stages, one.stages, strict=True):
            assert late.memory["activations"] == 8 * 16 * 1000 // stages
            assert early.memory["activations"] <= late.memory["activations"]
        assert one.stages[-1].memory["activations"] == 16 * 1000 // stages


def test_boundary_tensor():
    """b = 2, s = 4096, h = 8192 in bf16: 134,217,728 bytes a cut, 256 MiB both ways."""
    model = planner.load_model("llama3-70b")
    training = Training(global_batch_size=16, sequence_length=4096)
    pricer = plan_pricer(model, planner.load_cluster("dgx-h100:4"), training)
    table = pricer.block_table(1, 2)
    inner = slice(1, len(table.cut_forward_bytes) - 1)
    assert set(table.cut_forward_bytes[inner].tolist()) == {134_217_728}
    assert set(table.cut_backward_bytes[inner].tolist()) == {134_217_728}
    # and as a plan says it: a middle rank sends one each way for every micro-batch
    plan = planner.plan(
        model, "dgx-h100:4", global_batch_size=16, sequence_length=4096,
        dp=1, pp=32, tp=1, microbatch_size=2,
    )  # fmt: skip
    group = next(group for group in plan.communication if group.kind == "pipeline")
    assert group.bytes_per_step == 8 * 256 * 2**20


# --- layout --------------------------------------------------------------------------------------


def test_gpus_and_batch_are_products():
    layout = Layout(dp=16, pp=32, tp=8, microbatch_size=1, num_microbatches=96)
    assert layout.num_gpus == 16 * 32 * 8 == 4096
    plan = planner.plan(
        tiny_llama(), small_cluster(2, 4), global_batch_size=48, sequence_length=512,
        dp=2, pp=2, tp=2, microbatch_size=3,
    )  # fmt: skip
    found = plan.layout
    assert found.num_gpus == plan.num_gpus == 8
    assert found.dp * found.num_microbatches * found.microbatch_size == 48
    assert found.num_microbatches == 8


def test_tensor_degree_stays_in_the_node():
    model = tiny_llama()
    cluster = small_cluster(nodes=4, gpus_per_node=2)
    free = planner.plan(model, cluster, global_batch_size=16, sequence_length=512, rejected=True)
    layouts = [free.layout, *(row.layout for row in free.rejected)]
    assert {layout.tp for layout in layouts} == {1, 2}
    with pytest.raises(planner.errors.LayoutError, match="nvlink domain of 2"):
        planner.plan(model, cluster, global_batch_size=16, sequence_length=512, tp=4)
    crossing = planner.plan(
        model, cluster, global_batch_size=16, sequence_length=512, tp=4, allow_cross_domain=True
    )
    assert crossing.step_time_ms > free.step_time_ms


def test_tensor_inside_and_pipeline_across_nodes():
    """Pipelining moves little data: the mapping puts it on the slow wires."""
    plan = planner.plan(
        "gpt3-175b", "dgx-a100-80gb:8", global_batch_size=64, sequence_length=2048,
        dp=1, pp=8, tp=8, microbatch_size=1,
    )  # fmt: skip
    groups = {group.kind: group for group in plan.communication}
    assert groups["tensor"].tier is Tier.DOMAIN
    assert groups["pipeline"].tier is Tier.CLUSTER
    assert groups["tensor"].bytes_per_step > 10 * groups["pipeline"].bytes_per_step
    # The opposite: two stages a node, tensor groups over two of them.
    opposite = planner.plan(
        "gpt3-175b", "dgx-a100-80gb:8", global_batch_size=64, sequence_length=2048,
        dp=1, pp=4, tp=16, microbatch_size=1, allow_cross_domain=True,
    )  # fmt: skip
    across = {group.kind: group for group in opposite.communication}
    assert across["tensor"].tier is Tier.CLUSTER
    assert opposite.step_time_ms > 1.25 * plan.step_time_ms


def test_the_search_beats_or_meets_the_rule_of_thumb():
    """T first (the node), then P (memory), then D: legal, and never better than the search."""
    model = planner.load_model("llama3-70b")
    arguments = {"global_batch_size": 128, "sequence_length": 4096}
    searched = planner.plan(model, "dgx-h100:8", **arguments)
    by_rule = None
    for pp in (1, 2, 4, 8):
        plan = planner.plan(model, "dgx-h100:8", tp=8, pp=pp, **arguments)
        if plan.status is not Status.INFEASIBLE:
            by_rule = plan
            break
    assert by_rule is not None
    assert searched.status is Status.OPTIMAL
    assert searched.step_time_ms <= by_rule.step_time_ms


def test_backward_is_twice_the_forward():
    plan = planner.plan(
        "gpt3-175b", "dgx-a100-80gb:8", global_batch_size=64, sequence_length=2048,
        dp=1, pp=8, tp=8, microbatch_size=1, recompute=("none",),
    )  # fmt: skip
    for stage in plan.stages:
        gradients = stage.input_gradient_ms + stage.weight_gradient_ms
        assert stage.backward_ms == pytest.approx(gradients)
        assert 1.7 < stage.backward_ms / stage.forward_ms < 2.2
        assert 0.3 < stage.weight_gradient_ms / stage.backward_ms < 0.6


# --- the worked case of 175B on 4,096 A100 -------------------------------------------------------


A100S = "dgx-a100-80gb:512"
WORKED = {"dp": 16, "pp": 32, "tp": 8, "microbatch_size": 1, "schedules": ("1f1b",)}


def test_175b_on_4096_gpus():
    """M = 96 (global batch 1,536): the model FLOPs utilisation reaches 40 %, by these formulas."""
    plan = planner.plan("gpt3-175b", A100S, global_batch_size=1536, sequence_length=2048, **WORKED)
    assert plan.num_gpus == 4096
    assert plan.layout.num_microbatches == 96
    verification = planner.evaluate(plan)
    assert verification.ok
    assert verification.plan.mfu == plan.mfu
    assert 0.40 < plan.mfu < 0.45
    # The layout as a sketch, stages left to the judge, has the same utilisation.
    sketch = Plan(
        model="gpt3-175b",
        cluster=A100S,
        layout=plan.layout.model_copy(update={"recompute": "none"}),
        inputs={key: plan.inputs[key] for key in ("model", "cluster", "training")},
    )
    assert planner.evaluate(sketch).plan.mfu == plan.mfu
    ideal = utilisation_of_equal_stages(32, 96)
    assert ideal == Fraction(96, 127)
    assert 1 - plan.bubble_fraction < float(ideal)


def test_175b_on_4096_gpus_searched():
    worked = planner.plan(
        "gpt3-175b", A100S, global_batch_size=1536, sequence_length=2048, **WORKED
    )
    searched = planner.plan("gpt3-175b", A100S, global_batch_size=1536, sequence_length=2048)
    assert searched.step_time_ms <= worked.step_time_ms
    assert searched.mfu >= worked.mfu
    assert searched.bound_ms <= searched.step_time_ms


def test_175b_with_16_microbatches_saves_nothing_on_rank_0():
    """min(M, P-s) = 16 on the first 17 stages; utilisation 16/47 = 34 % were stages equal."""
    plan = planner.plan("gpt3-175b", A100S, global_batch_size=256, sequence_length=2048, **WORKED)
    assert [stage.in_flight for stage in plan.stages] == [min(16, 32 - rank) for rank in range(32)]
    assert any("first 17 stages and saves no memory" in note for note in plan.notes)
    assert utilisation_of_equal_stages(32, 16) == Fraction(16, 47)
    assert 1 - plan.bubble_fraction == pytest.approx(16 / 47, abs=0.02)
    gpipe = planner.plan(
        "gpt3-175b", A100S, global_batch_size=256, sequence_length=2048,
        **{**WORKED, "schedules": ("gpipe",)},
    )  # fmt: skip
    assert gpipe.stages[0].in_flight == plan.stages[0].in_flight


# --- the worked case of 7B on 8 GPUs of 80 GB ----------------------------------------------------


def seven_billion(microbatches: int, sequence: int, schedule: str) -> Plan:
    return planner.plan(
        "llama2-7b", "dgx-a100-80gb:1", global_batch_size=2 * microbatches,
        sequence_length=sequence, dp=2, pp=4, tp=1, microbatch_size=1, schedules=(schedule,),
        recompute=("none",), sharded_optimizer=False, work_limit=1,
    )  # fmt: skip


def fits(microbatches: int, sequence: int, schedule: str) -> bool:
    return seven_billion(microbatches, sequence, schedule).status is not Status.INFEASIBLE


def test_7b_states_and_activations():
    plan = seven_billion(8, 4096, "gpipe")
    states = sum(
        stage.memory[term]
        for stage in plan.stages
        for term in ("parameters", "gradients", "optimizer")
    )
    assert states % 18 == 0
    assert 6.6e9 < states / 18 < 6.9e9
    # A micro-batch's activations on a stage of eight blocks, 34 s b h by the usual estimate.
    kept = plan.stages[1].memory["activations"] / 8
    assert kept == pytest.approx(34 * 4096 * 4096 * 8, rel=0.1)


@pytest.mark.parametrize(
    ("schedule", "sequence", "largest"), [("gpipe", 4096, 9), ("gpipe", 8192, 4)]
)
def test_7b_gpipe_fits_up_to(schedule, sequence, largest):
    """At M = 8 GPipe fits 4K and not 8K; it fits 4K up to M = 9 and 8K up to M = 4."""
    assert fits(largest, sequence, schedule)
    assert not fits(largest + 1, sequence, schedule)
    assert fits(8, sequence, schedule) is (largest >= 8)


@pytest.mark.parametrize("sequence", [4096, 8192])
def test_7b_1f1b_fits_any_number(sequence):
    """1F1B keeps at most four micro-batches, so that every M fits 4K and 8K."""
    peaks = {}
    for microbatches in (8, 64, 1024):
        plan = seven_billion(microbatches, sequence, "1f1b")
        assert plan.status is not Status.INFEASIBLE
        peaks[microbatches] = plan.stages[0].in_flight
    assert set(peaks.values()) == {4}


def test_7b_without_flash_attention_does_not_fit():
    """34 sbh and the attention matrices of 4K, 5 a s^2 b: 26 GB a stage and micro-batch."""
    config = """{"model_type": "gpt2", "n_embd": 4096, "n_layer": 32, "n_head": 32,
                 "vocab_size": 50257, "n_positions": 4096, "attn_pdrop": 0.1,
                 "embd_pdrop": 0.1, "resid_pdrop": 0.1}"""
    model = read_config(config, name="gpt-7b", file="config.json")
    options = {
        "global_batch_size": 16, "sequence_length": 4096, "dp": 2, "pp": 4, "tp": 1,
        "microbatch_size": 1, "schedules": ("1f1b",), "recompute": ("none",),
        "sharded_optimizer": False,
    }  # fmt: skip
    with_flash = planner.plan(model, "dgx-a100-80gb:1", **options)
    assert with_flash.status is not Status.INFEASIBLE
    without = planner.plan(model, "dgx-a100-80gb:1", flash_attention=False, **options)
    assert without.status is Status.INFEASIBLE
    per_block = [
        stage.memory["activations"] / stage.in_flight / len(stage.layers)
        for stage in without.stages[1:3]
    ]
    assert per_block == pytest.approx([26e9 / 8] * 2, rel=0.02)


# --- misconceptions ------------------------------------------------------------------------------


def test_1_pipeline_parallelism_splits_layers_not_samples():
    model = tiny_llama()
    plan = planner.plan(
        model, small_cluster(1, 4), global_batch_size=8, sequence_length=512, pp=4, dp=1
    )
    held = [name for stage in plan.stages for name in stage.layers]
    assert held == [layer.name for layer in model.layers]
    assert plan.layout.num_microbatches * plan.layout.microbatch_size == 8
    spread = planner.plan(
        model, small_cluster(1, 4), global_batch_size=8, sequence_length=512, dp=4
    )
    assert [len(stage.layers) for stage in spread.stages] == [len(model.layers)]
    assert spread.layout.num_microbatches * spread.layout.microbatch_size == 2


def test_2_more_microbatches_are_not_always_better():
    """A fixed batch of 64 on four stages, cut into 64 / m micro-batches."""
    sizes = [1, 2, 4, 8, 16, 32]
    plans = [
        planner.plan(
            "gpt2-xl", "dgx-a100-80gb:1", global_batch_size=128, sequence_length=1024,
            dp=2, pp=4, tp=1, microbatch_size=size, recompute=("none",), schedules=("1f1b",),
        )
        for size in sizes
    ]  # fmt: skip
    assert all(plan.status is Status.OPTIMAL for plan in plans)
    # More micro-batches: smaller bubble ...
    bubbles = [plan.bubble_fraction for plan in plans]
    assert bubbles == sorted(bubbles)
    # ... slower work per sample ...
    per_sample = [
        sum(stage.forward_ms + stage.backward_ms for stage in plan.stages) / size
        for plan, size in zip(plans, sizes, strict=True)
    ]
    assert per_sample == sorted(per_sample, reverse=True)
    # ... so that neither end is best.
    steps = [plan.step_time_ms for plan in plans]
    assert min(steps) < steps[0]
    assert min(steps) < steps[-1]


def test_2_gpipe_activations_grow_with_the_number():
    model = chain_model([1.0] * 4, activation_bytes=1000)
    peaks = [
        planner.partition(model, 4, count, schedule="gpipe").peak_memory_bytes
        for count in (1, 2, 4, 8, 16)
    ]
    assert peaks == [1000 * count for count in (1, 2, 4, 8, 16)]


def test_3_1f1b_is_not_faster_it_is_smaller():
    for stages, microbatches in ((4, 8), (8, 8), (4, 32)):
        gpipe, one = (equal_stages(stages, microbatches, name) for name in SCHEDULES)
        assert gpipe.step_time_ms == one.step_time_ms
        assert gpipe.bubble_fraction == one.bubble_fraction
    # With transfers that nothing hides it is even slower ...
    gpipe, one = (equal_stages(4, 8, name, latency_ms=0.2) for name in SCHEDULES)
    assert gpipe.step_time_ms < one.step_time_ms
    # ... and the gain is memory, which buys less recompute.
    model = chain_model([1.0] * 4, type="block", activation_bytes=1000, checkpoint_bytes=100)
    gpipe, one = (
        planner.partition(model, 4, 8, schedule=name, objective="step-time", memory_bytes=6000)
        for name in SCHEDULES
    )
    assert [stage.recompute.value for stage in one.stages] == ["none"] * 4
    assert [stage.recompute.value for stage in gpipe.stages] == ["full"] * 4
    assert one.step_time_ms < gpipe.step_time_ms


def test_4_48_layers_on_4_gpus_are_not_12_each():
    """GPT-2 XL has 48 blocks; the head is as heavy as several, the embedding as none."""
    model = planner.load_model("gpt2-xl")
    assert sum(layer.type == "block" for layer in model.layers) == 48
    assert isinstance(model.layers[0].shape, EmbeddingShape)
    options = {"cluster": "dgx-a100-80gb:1", "objective": "step-time"}
    plan = planner.partition(model, 4, 32, **options)
    names = [layer.name for layer in model.layers]
    even = (names[:13], names[13:25], names[25:37], names[37:])
    sketch = Plan(
        layout=plan.layout,
        stages=tuple(Stage(rank=rank, layers=tuple(held)) for rank, held in enumerate(even)),
        inputs=plan.inputs,
    )
    uniform = planner.evaluate(sketch).plan
    assert plan.status is Status.OPTIMAL
    assert uniform.bottleneck_ms > 1.05 * plan.bottleneck_ms
    assert uniform.step_time_ms > 1.05 * plan.step_time_ms
    blocks = [sum(name.startswith("block") for name in stage.layers) for stage in plan.stages]
    assert sum(blocks) == 48
    assert blocks[-1] < 12


def test_4_cuts_differ_in_what_they_send():
    model = chain_model([1.0] * 4, output_bytes=[1000, 10_000, 1000, 0])
    plan = planner.partition(model, 2, 8, bandwidth_bytes_per_s=1e6)
    # Two layers each would be balanced; the thin cuts beside it cost 2 ms less than 20.
    assert len(plan.stages[0].layers) != 2
    assert plan.bottleneck_ms == 3 * 3 + 2 * 1


def test_5_the_degrees_are_not_independent():
    model, cluster = tiny_llama(), small_cluster(2, 4)
    arguments = {"global_batch_size": 6, "sequence_length": 512}
    with pytest.raises(planner.errors.LayoutError, match="not a multiple of dp=4"):
        planner.plan(model, cluster, dp=4, **arguments)
    with pytest.raises(planner.errors.LayoutError, match="8 blocks"):
        planner.plan(model, small_cluster(4, 4), pp=16, **{**arguments, "global_batch_size": 16})
    with pytest.raises(planner.errors.LayoutError, match="nvlink domain of 4"):
        planner.plan(model, cluster, tp=8, **arguments)
    # Memory decides P: what one stage cannot hold, two can.
    options = {
        "global_batch_size": 8, "sequence_length": 512, "tp": 1, "microbatch_size": 1,
        "recompute": ("none",), "sharded_optimizer": False,
    }  # fmt: skip
    need = planner.plan(model, cluster, pp=1, **options).peak_memory_bytes
    status = {
        memory: [
            planner.plan(model, small_cluster(2, 4, memory_bytes=memory), pp=pp, **options).status
            is not Status.INFEASIBLE
            for pp in (1, 2)
        ]
        for memory in (need, need - 1)
    }
    assert status == {need: [True, True], need - 1: [False, True]}
