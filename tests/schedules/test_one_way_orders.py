"""GPipe, 1F1B, eager 1F1B, ZB-H1 and ZB-H2: entry by entry, and what their sources state."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from dumped_orders import load
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import OrderError
from planner.operations import Kind, order_from_lists
from planner.schedules.memory_curve import in_flight
from planner.schedules.one_way_orders import (
    eager_one_f_one_b,
    gpipe,
    one_f_one_b,
    zb_h1,
    zb_h2,
)
from planner.schedules.timeline import StageTimes, run_order, unit_times

BUILDERS = (gpipe, one_f_one_b, eager_one_f_one_b, zb_h1, zb_h2)

ranks_ = st.integers(1, 9)
microbatches_ = st.integers(1, 24)
time_ = st.integers(1, 9)


def equal_stages(ranks: int, forward: int, input_gradient: int, weight_gradient: int, edge=0):
    return StageTimes(
        forward=np.full(ranks, forward),
        input_gradient=np.full(ranks, input_gradient),
        weight_gradient=np.full(ranks, weight_gradient),
        edge_forward=np.full(ranks - 1, edge),
        edge_backward=np.full(ranks - 1, edge),
    )


def words(text: str) -> list[str]:
    return text.split()


# --- entry by entry -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "builder"),
    [("megatron_1F1B", one_f_one_b), ("deepspeed_1F1B", one_f_one_b), ("torch_GPipe", gpipe)],
)
def test_orders_equal_the_dumped_ones(shared_dir, name, builder):
    for entry in load(shared_dir, name):
        assert builder(entry["P"], entry["M"]).rank_lists() == entry["ranks"], entry


def test_zb_h1_is_torchs_interleaved_zero_bubble_of_one_chunk(shared_dir):
    entries = [e for e in load(shared_dir, "torch_InterleavedZeroBubble") if e["V"] == 1]
    assert entries
    for entry in entries:
        assert zb_h1(entry["P"], entry["M"]).rank_lists() == entry["ranks"], entry


def test_eager_1f1b_is_torchs_interleaved_1f1b_of_one_chunk(shared_dir):
    entries = [e for e in load(shared_dir, "torch_Interleaved1F1B") if e["V"] == 1]
    assert entries
    for entry in entries:
        assert eager_one_f_one_b(entry["P"], entry["M"]).rank_lists() == entry["ranks"], entry


def test_torchs_1f1b_list_is_wrong_on_its_last_rank_alone(shared_dir):
    """The dumped last rank runs F1 B0 .. F_M B_(M-1): B0 without F0, and a micro-batch M.

    Ours runs F0 B0 .. F_(M-1) B_(M-1), as torch's own run-time loop and Megatron-LM do.
    """
    for entry in load(shared_dir, "torch_1F1B"):
        last, count = entry["P"] - 1, entry["M"]
        ours = one_f_one_b(entry["P"], count).rank_lists()
        assert ours[:last] == entry["ranks"][:last]
        assert ours[last] == [f"{last}{kind}{m}" for m in range(count) for kind in "FB"]
        assert entry["ranks"][last] == [
            word for m in range(count) for word in (f"{last}F{m + 1}", f"{last}B{m}")
        ]
        with pytest.raises(OrderError):
            run_order(order_from_lists("order", entry["ranks"]), unit_times(entry["P"]))
        run_order(order_from_lists("order", ours), unit_times(entry["P"]))


def test_lists_of_four_ranks():
    # Megatron-LM 0.20 and DeepSpeed, P=4 M=4.
    assert one_f_one_b(4, 4).rank_lists() == [
        words("0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3"),
        words("1F0 1F1 1F2 1B0 1F3 1B1 1B2 1B3"),
        words("2F0 2F1 2B0 2F2 2B1 2F3 2B2 2B3"),
        words("3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3"),
    ]
    # torch 2.13 InterleavedZeroBubble with one chunk, P=4 M=4.
    assert zb_h1(4, 4).rank_lists() == [
        words("0F0 0F1 0F2 0F3 0I0 0W0 0I1 0W1 0I2 0W2 0I3 0W3"),
        words("1F0 1F1 1F2 1I0 1F3 1I1 1W0 1I2 1W1 1I3 1W2 1W3"),
        words("2F0 2F1 2I0 2F2 2I1 2F3 2I2 2W0 2I3 2W1 2W2 2W3"),
        words("3F0 3I0 3F1 3I1 3F2 3I2 3F3 3I3 3W0 3W1 3W2 3W3"),
    ]
    # Zero Bubble paper, figure of ZB-H2: rank 0 runs 7 forwards, the last 7 pairs without W.
    ranks = zb_h2(4, 9).rank_lists()
    assert ranks[0][:10] == words("0F0 0F1 0F2 0F3 0F4 0F5 0F6 0I0 0W0 0F7")
    assert ranks[3][:14] == [f"3{kind}{m}" for m in range(7) for kind in "FI"]
    assert ranks[3][14:] == words("3W0 3F7 3I7 3W1 3F8 3I8 3W2 3W3 3W4 3W5 3W6 3W7 3W8")


# --- every shape ----------------------------------------------------------------------------------


@pytest.mark.parametrize("builder", BUILDERS)
@given(ranks=ranks_, microbatches=microbatches_, data=st.data())
def test_every_shape_runs_on_uneven_stages(builder, ranks, microbatches, data):
    order = builder(ranks, microbatches)

    def times(count):
        return np.array(data.draw(st.lists(st.integers(0, 9), min_size=count, max_size=count)))

    uneven = StageTimes(
        times(ranks), times(ranks), times(ranks), times(ranks - 1), times(ranks - 1)
    )
    timeline = run_order(order, uneven)  # complete, in order, no deadlock, or it would be refused
    each = uneven.forward + uneven.input_gradient + uneven.weight_gradient
    assert timeline.busy.tolist() == (microbatches * each).tolist()
    assert order.num_stages == order.num_ranks == ranks
    assert order.num_microbatches == microbatches


def slow_list(rank: int, count: int, warm_up: int, delay: int | None) -> list[str]:
    """The same list, one operation at a time."""
    warm_up = min(warm_up, count)
    cells = [f"{rank}F{m}" for m in range(warm_up)]
    for k in range(count):
        if warm_up + k < count:
            cells.append(f"{rank}F{warm_up + k}")
        cells.append(f"{rank}{'B' if delay is None else 'I'}{k}")
        if delay is not None and k >= delay:
            cells.append(f"{rank}W{k - delay}")
    if delay is not None:
        cells += [f"{rank}W{m}" for m in range(max(0, count - delay), count)]
    return cells


@given(ranks=ranks_, microbatches=microbatches_)
def test_lists_step_by_step(ranks, microbatches):
    for builder, hops, delay in (
        (gpipe, None, None),
        (one_f_one_b, 1, None),
        (eager_one_f_one_b, 2, None),
        (zb_h1, 1, 1),
        (zb_h2, 2, 2),
    ):
        for s, cells in enumerate(builder(ranks, microbatches).rank_lists()):
            warm_up = microbatches if hops is None else hops * (ranks - 1 - s)
            due = None if delay is None else delay * s
            assert cells == slow_list(s, microbatches, warm_up, due)


@given(ranks=ranks_, microbatches=microbatches_)
def test_microbatches_in_flight(ranks, microbatches):
    p, m = ranks, microbatches
    expected = {
        gpipe: [m] * p,
        one_f_one_b: [min(m, p - s) for s in range(p)],
        eager_one_f_one_b: [min(m, 2 * (p - 1 - s) + 1) for s in range(p)],
        zb_h1: [min(m, p)] * p,
        zb_h2: [min(m, 2 * p - 1)] * p,
    }
    for builder, counts in expected.items():
        assert in_flight(builder(p, m), Kind.W).tolist() == counts
    # Until I: Zero Bubble paper, sections 2.2 and 2.3, (p-i+1) and (2p-2i+1) for worker i from 1.
    assert in_flight(zb_h1(p, m), Kind.I).tolist() == [min(m, p - s) for s in range(p)]
    assert in_flight(zb_h2(p, m), Kind.I).tolist() == [min(m, 2 * (p - s) - 1) for s in range(p)]


# --- bubbles of equal stages ----------------------------------------------------------------------


@given(ranks=ranks_, microbatches=microbatches_, f=time_, i=time_, w=time_)
def test_gpipe_and_1f1b_have_the_same_bubble(ranks, microbatches, f, i, w):
    times = equal_stages(ranks, f, i, w)
    for builder in (gpipe, one_f_one_b, eager_one_f_one_b):
        makespan = run_order(builder(ranks, microbatches), times).makespan
        assert makespan == (microbatches + ranks - 1) * (f + i + w)


@given(ranks=ranks_, more=st.integers(0, 15), f=time_, i=time_, w=time_)
def test_span_bubble_of_zb_h1(ranks, more, f, i, w):
    """(P-1)(F+I-W) where W <= F (Zero Bubble paper, Table 2); else rank 0 waits for I instead."""
    microbatches = ranks + more
    timeline = run_order(zb_h1(ranks, microbatches), equal_stages(ranks, f, i, w))
    bubble = timeline.span - microbatches * (f + i + w)
    assert bubble == (ranks - 1) * max(f + i - w, i)
    if i >= w and f >= w:
        assert timeline.makespan == timeline.span


@given(ranks=ranks_, more=st.integers(0, 15), f=time_, i=time_, w=time_)
def test_span_bubble_of_zb_h2(ranks, more, f, i, w):
    """(P-1)(F+I-2W) (Zero Bubble paper, Table 2) where it is not below what 2P-1 activations allow.

    Rank 0 may run 2P-1 forwards before its first I, which comes no sooner than P F + (P-1) I, so
    no order of that memory has a bubble below (P-1)(I-F).
    """
    microbatches = 2 * ranks - 1 + more
    timeline = run_order(zb_h2(ranks, microbatches), equal_stages(ranks, f, i, w))
    bubble = timeline.span - microbatches * (f + i + w)
    assert bubble == (ranks - 1) * max(f + i - 2 * w, i - f, 0)
    if f >= w and i >= w:
        assert bubble == (ranks - 1) * (f + i - 2 * w)


def test_eager_1f1b_hides_transfers():
    """P=4, M=32, F=1, B=2, edges 1: 157 falls to 111 for about twice the activations."""
    times = equal_stages(4, 1, 1, 1, edge=1)
    assert run_order(one_f_one_b(4, 32), times).makespan == 157
    assert run_order(eager_one_f_one_b(4, 32), times).makespan == 111


# Zero Bubble paper (arXiv 2401.10241): (p, m, TF, TB, TW, Tcomm) of Table 6 in ms, and the bubble
# rates of 1F1B, ZB-H1 and ZB-H2 in Table 5.
TABLE_5 = [
    (8, 24, 18.522, 18.086, 9.337, 0.601, 0.2431, 0.1585, 0.1083),
    (8, 64, 29.935, 29.621, 19.388, 0.535, 0.1091, 0.0554, 0.0294),
    (16, 48, 11.347, 11.248, 8.132, 0.377, 0.2552, 0.1397, 0.0672),
    (32, 96, 10.419, 10.207, 7.715, 0.408, 0.2646, 0.1421, 0.0641),
]


def bubble_rates(p: int, m: int, *profiled_ms: float) -> list[float]:
    f, i, w, edge = (round(1000 * value) for value in profiled_ms)
    times = equal_stages(p, f, i, w, edge)
    return [
        round(run_order(builder(p, m), times).span_bubble, 4)
        for builder in (one_f_one_b, zb_h1, zb_h2)
    ]


@pytest.mark.parametrize("row", TABLE_5)
def test_bubble_rates_of_the_zero_bubble_paper(row):
    assert bubble_rates(*row[:6]) == list(row[6:])


def test_all_bubble_rates_of_the_zero_bubble_paper(shared_dir):
    tables = shared_dir / "data" / "schedules" / "tables"
    with (tables / "zb_table6_profiled_times_ms.csv").open(newline="") as lines:
        times = {(row["model"], row["p"], row["m"]): row for row in csv.DictReader(lines)}
    with (tables / "zb_table5_bubble_rates.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 12
    for row in rows:
        given_ms = times[row["model"], row["p"], row["m"]]
        values = [float(given_ms[column]) for column in ("TF", "TB", "TW", "Tcomm")]
        printed = [float(row[column]) for column in ("1F1B", "ZB-H1", "ZB-H2")]
        assert bubble_rates(int(row["p"]), int(row["m"]), *values) == printed
