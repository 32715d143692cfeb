"""Interleaved 1F1B, looped BFS and interleaved zero bubble: entry by entry, and their formulas."""

from __future__ import annotations

import numpy as np
import pytest
from dumped_orders import document, load
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import OrderError
from planner.operations import Kind, Order
from planner.schedule_rules import default_group_size, shape_problem
from planner.schedules.interleaved_orders import (
    interleaved,
    interleaved_zero_bubble,
    looped_bfs,
)
from planner.schedules.memory_curve import in_flight
from planner.schedules.one_way_orders import eager_one_f_one_b, gpipe, zb_h1
from planner.schedules.timeline import StageTimes, run_order, unit_times
from planner.specs import Schedule


@st.composite
def shapes(draw, most_ranks: int = 7) -> tuple[int, int, int, int]:
    """(P, M, V, G) that :mod:`planner.schedule_rules` accepts."""
    ranks = draw(st.integers(1, most_ranks))
    microbatches = draw(st.integers(1, 20))
    chunks = draw(st.integers(1, 4))
    legal = [
        group
        for group in range(1, microbatches + 1)
        if shape_problem(Schedule.INTERLEAVED, ranks, microbatches, chunks, group) is None
    ]
    return ranks, microbatches, chunks, draw(st.sampled_from(legal))


def words(text: str) -> list[str]:
    return text.split()


# --- entry by entry -------------------------------------------------------------------------------


def torch_group(entry: dict) -> int:
    return default_group_size(entry["P"], entry["M"])


def test_interleaved_equals_torchs(shared_dir):
    for entry in load(shared_dir, "torch_Interleaved1F1B"):
        order = interleaved(entry["P"], entry["M"], entry["V"], torch_group(entry))
        assert order.rank_lists() == entry["ranks"], entry


def test_interleaved_equals_megatrons(shared_dir):
    for entry in load(shared_dir, "megatron_interleaved"):
        order = interleaved(entry["P"], entry["M"], entry["V"], entry["group"])
        assert order.rank_lists() == entry["ranks"], entry


def test_one_more_warm_up_equals_megatrons_moe_overlap(shared_dir):
    for entry in load(shared_dir, "megatron_interleaved_moe_overlap"):
        order = interleaved(entry["P"], entry["M"], entry["V"], entry["group"], extra_warmup=1)
        assert order.rank_lists() == entry["ranks"], entry


def test_looped_bfs_equals_torchs(shared_dir):
    for entry in load(shared_dir, "torch_LoopedBFS"):
        order = looped_bfs(entry["P"], entry["M"], entry["V"])
        assert order.rank_lists() == entry["ranks"], entry


def test_interleaved_zero_bubble_equals_torchs(shared_dir):
    for entry in load(shared_dir, "torch_InterleavedZeroBubble"):
        order = interleaved_zero_bubble(entry["P"], entry["M"], entry["V"], torch_group(entry))
        assert order.rank_lists() == entry["ranks"], entry


def test_torch_writes_the_same_tables(shared_dir):
    """The compute-only CSV files, idle cells left out."""
    folder = shared_dir / "data" / "schedules"
    for name, order in (
        ("Interleaved1F1B_P4_M8_V2", interleaved(4, 8, 2, 4)),
        ("LoopedBFS_P4_M4_V2", looped_bfs(4, 4, 2)),
        ("InterleavedZeroBubble_P4_M8_V2", interleaved_zero_bubble(4, 8, 2, 4)),
    ):
        text = (folder / f"torch_csv_{name}_compute_only.csv").read_text()
        rows = [[cell for cell in line.split(",") if cell] for line in text.splitlines()]
        assert order.rank_lists() == rows


def test_lists_of_two_ranks():
    # torch 2.13 InterleavedZeroBubble, P=2 M=4 V=2.
    assert interleaved_zero_bubble(2, 4, 2, 2).rank_lists() == [
        words(
            "0F0 0F1 2F0 2F1 2I0 2W0 0F2 2I1 2W1 0F3 0I0 0W0 2F2 0I1 0W1 2F3 2I2 2W2 2I3 2W3 "
            "0I2 0W2 0I3 0W3"
        ),
        words(
            "1F0 1F1 3F0 3I0 3F1 3I1 3W0 1F2 1I0 3W1 1F3 1I1 1W0 3F2 3I2 1W1 3F3 3I3 3W2 1I2 "
            "3W3 1I3 1W2 1W3"
        ),
    ]
    # Megatron-LM 0.20 with overlap_moe_expert_parallel_comm, P=2 M=4 V=2 G=2.
    assert interleaved(2, 4, 2, 2, extra_warmup=1).rank_lists() == [
        words("0F0 0F1 2F0 2F1 0F2 0F3 2B0 2F2 2B1 2F3 0B0 0B1 2B2 2B3 0B2 0B3"),
        words("1F0 1F1 3F0 3F1 3B0 1F2 3B1 1F3 1B0 3F2 1B1 3F3 3B2 3B3 1B2 1B3"),
    ]
    # torch 2.13 LoopedBFS, P=2 M=4 V=2.
    assert looped_bfs(2, 4, 2).rank_operations(1) == (
        words("1F0 1F1 1F2 1F3 3F0 3F1 3F2 3F3 3B3 3B2 3B1 3B0 1B3 1B2 1B1 1B0")
    )


def test_a_smaller_last_group():
    # Megatron-LM 0.20, P=2 M=6 V=2 G=4: groups of 4 and 2.
    order = interleaved(2, 6, 2, 4)
    chunk_then_microbatch = words("0F0 0F1 0F2 0F3 2F0 2F1 2F2 2F3 0F4 0F5 2F4 2F5")
    assert [word for word in order.rank_operations(0) if "F" in word] == chunk_then_microbatch


# --- every shape ----------------------------------------------------------------------------------


def slow_lists(shape: tuple[int, int, int, int], hops: int, more: int, split: bool):
    """The same lists, one operation at a time."""
    ranks, microbatches, chunks, group = shape
    forwards = [
        (c, m)
        for first in range(0, microbatches, group)
        for c in range(chunks)
        for m in range(first, min(first + group, microbatches))
    ]
    backwards = [
        (c, m)
        for first in range(0, microbatches, group)
        for c in reversed(range(chunks))
        for m in range(first, min(first + group, microbatches))
    ]
    lists = []
    for r in range(ranks):
        warm_up = (chunks - 1) * group + hops * (ranks - 1 - r) + more
        ahead, back, late = list(forwards), list(backwards), list(backwards)
        cells, done = [], 0
        for _ in range(min(warm_up, len(forwards))):
            c, m = ahead.pop(0)
            cells.append(f"{c * ranks + r}F{m}")
        while back:
            if ahead:
                c, m = ahead.pop(0)
                cells.append(f"{c * ranks + r}F{m}")
            c, m = back.pop(0)
            cells.append(f"{c * ranks + r}{'I' if split else 'B'}{m}")
            done += 1
            if split and done > r:
                c, m = late.pop(0)
                cells.append(f"{c * ranks + r}W{m}")
        if split:
            cells += [f"{c * ranks + r}W{m}" for c, m in late]
        lists.append(cells)
    return lists


@given(shape=shapes(), more=st.integers(0, 2))
def test_lists_step_by_step(shape, more):
    assert interleaved(*shape, extra_warmup=more).rank_lists() == slow_lists(shape, 2, more, False)
    assert interleaved_zero_bubble(*shape).rank_lists() == slow_lists(shape, 1, 0, True)


@given(shape=shapes(), data=st.data())
def test_every_legal_shape_runs_on_uneven_stages(shape, data):
    ranks, microbatches, chunks, _ = shape
    stages = ranks * chunks

    def times(count):
        return np.array(data.draw(st.lists(st.integers(0, 9), min_size=count, max_size=count)))

    uneven = StageTimes(
        times(stages), times(stages), times(stages), times(stages - 1), times(stages - 1)
    )
    each = uneven.forward + uneven.input_gradient + uneven.weight_gradient
    for order in (
        interleaved(*shape),
        interleaved(*shape, extra_warmup=1),
        interleaved_zero_bubble(*shape),
        looped_bfs(*shape[:3]),
    ):
        timeline = run_order(order, uneven)  # refuses what is incomplete or deadlocks
        by_rank = each.reshape(chunks, ranks).sum(axis=0)
        assert timeline.busy.tolist() == (microbatches * by_rank).tolist()
        assert (order.num_stages, order.num_microbatches) == (stages, microbatches)


def test_what_megatron_refuses_is_refused(shared_dir):
    shapes_refused = document(shared_dir, "megatron_interleaved")["rejected"]
    assert len(shapes_refused) > 90
    for shape in shapes_refused:
        p, m, v, g = (shape[field] for field in "PMVG")
        problem = shape_problem(Schedule.INTERLEAVED, p, m, v, g)
        assert problem is not None, shape
        assert f"M={m} leaves a last group of {m % g} micro-batches with G={g}" in problem[0]


def test_refused_groups_may_deadlock():
    """What Megatron-LM refuses: G < P, and a last group of fewer than P micro-batches."""
    for shape in ((3, 2, 3, 1), (4, 5, 3, 4)):
        assert shape_problem(Schedule.INTERLEAVED, *shape) is not None
        order = interleaved(*shape)
        with pytest.raises(OrderError, match="deadlocks"):
            run_order(order, unit_times(order.num_stages))


# --- what one chunk is ----------------------------------------------------------------------------


def same_lists(one: Order, other: Order) -> bool:
    return one.rank_lists() == other.rank_lists()


@given(ranks=st.integers(1, 8), microbatches=st.integers(1, 20))
def test_one_chunk_is_a_one_way_schedule(ranks, microbatches):
    group = min(ranks, microbatches)
    assert same_lists(
        interleaved(ranks, microbatches, 1, group), eager_one_f_one_b(ranks, microbatches)
    )
    assert same_lists(
        interleaved_zero_bubble(ranks, microbatches, 1, group), zb_h1(ranks, microbatches)
    )
    # The same forwards as GPipe, and its backwards from the last micro-batch.
    for bfs, pipe in zip(
        looped_bfs(ranks, microbatches, 1).rank_lists(),
        gpipe(ranks, microbatches).rank_lists(),
        strict=True,
    ):
        assert bfs[:microbatches] == pipe[:microbatches]
        assert bfs[microbatches:] == pipe[: microbatches - 1 : -1]


# --- formulas of SCHEDULES.md, in chunks ----------------------------------------------------------


@given(shape=shapes())
def test_chunks_in_flight(shape):
    p, m, v, g = shape
    all_chunks = m * v
    warm_up = [(v - 1) * g + 2 * (p - 1 - s) for s in range(p)]
    assert in_flight(interleaved(*shape)).tolist() == [min(all_chunks, w + 1) for w in warm_up]
    assert in_flight(looped_bfs(p, m, v)).tolist() == [all_chunks] * p
    zero_bubble = interleaved_zero_bubble(*shape)
    until_i = [min(all_chunks, (v - 1) * g + p - s) for s in range(p)]
    assert in_flight(zero_bubble, Kind.I).tolist() == until_i
    assert in_flight(zero_bubble, Kind.W).tolist() == [min(all_chunks, (v - 1) * g + p)] * p


@given(
    ranks=st.integers(1, 6),
    groups=st.integers(1, 4),
    chunks=st.integers(1, 4),
    f=st.integers(1, 6),
    i=st.integers(1, 6),
    w=st.integers(1, 6),
)
def test_bubbles_of_equal_chunks(ranks, groups, chunks, f, i, w):
    """(P-1)(F+B)/V of whole ranks' F and B: (P-1)(F+B) of a chunk's, for M a multiple of P."""
    microbatches = ranks * groups
    stages = ranks * chunks
    times = StageTimes(
        np.full(stages, f),
        np.full(stages, i),
        np.full(stages, w),
        np.zeros(stages - 1, np.int64),
        np.zeros(stages - 1, np.int64),
    )
    work = microbatches * chunks * (f + i + w)
    for order in (
        interleaved(ranks, microbatches, chunks, ranks),
        looped_bfs(ranks, microbatches, chunks),
    ):
        assert run_order(order, times).makespan == work + (ranks - 1) * (f + i + w)
    if w <= min(f, i):
        order = interleaved_zero_bubble(ranks, microbatches, chunks, ranks)
        assert run_order(order, times).makespan == work + (ranks - 1) * (f + i - w)
