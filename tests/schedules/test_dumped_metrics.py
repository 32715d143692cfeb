"""Every dumped order simulated: the figures an independent simulator printed for it."""

from __future__ import annotations

import re

import pytest
from dumped_orders import FILES, load, metrics, order_of, rows_of

from planner.errors import OrderError
from planner.operations import Kind, Order
from planner.schedule_rules import default_group_size, shape_problem
from planner.schedules import interleaved_orders, one_way_orders
from planner.schedules.memory_curve import in_flight
from planner.schedules.timeline import run_order, unit_times
from planner.specs import Schedule

DIGITS = 1e-6
"""metrics.csv prints six decimals."""


def is_complete(name: str, entry: dict) -> bool:
    """Whether the generator kept all work: torch's 1F1B list and some Chimera ones lost it."""
    return name != "torch_1F1B" and not entry.get("slot_conflicts")


def agrees(order: Order, row: dict) -> None:
    """All figures of a row: makespans, bubbles, the span bubble, peaks."""
    stages = order.num_stages
    split = run_order(order, unit_times(stages, forward=1, backward=2, weight=1))
    whole = run_order(order, unit_times(stages, forward=2, backward=2, weight=1))  # in halves
    assert split.makespan == row["makespan_F1_I1_W1"]
    assert split.bubble_fraction == pytest.approx(row["bubble_F1_I1_W1"], abs=DIGITS)
    assert split.idle.mean() == pytest.approx(row["bubble_time_F1_I1_W1"], abs=DIGITS)
    assert split.span_bubble == pytest.approx(row["span_bubble_F1_I1_W1"], abs=DIGITS)
    assert whole.makespan == 2 * row["makespan_F1_B1"]
    assert whole.bubble_fraction == pytest.approx(row["bubble_F1_B1"], abs=DIGITS)
    assert whole.idle.mean() == pytest.approx(2 * row["bubble_time_F1_B1"], abs=2 * DIGITS)
    assert in_flight(order, Kind.I).tolist() == row["peak_F_to_B"]
    assert in_flight(order, Kind.W).tolist() == row["peak_F_to_W"]


@pytest.mark.parametrize("name", FILES)
def test_simulated_orders_give_the_printed_figures(shared_dir, name):
    orders = load(shared_dir, name)
    assert orders
    for entry in orders:
        rows = rows_of(shared_dir, name, entry)
        assert rows, entry
        if is_complete(name, entry):
            agrees(order_of(entry), rows[0])


def test_the_last_rank_of_torch_1f1b_is_refused_by_name(shared_dir):
    for entry in load(shared_dir, "torch_1F1B"):
        row = rows_of(shared_dir, "torch_1F1B", entry)[0]
        assert row["error"].startswith("INVALID")
        order, last = order_of(entry), entry["P"] - 1
        # Its last rank runs F1 .. F_M: micro-batch M, which no other rank has, and no F0.
        assert order.num_microbatches == entry["M"] + 1
        with pytest.raises(OrderError) as refused:
            run_order(order, unit_times(order.num_stages))
        assert re.search(rf"\b\d+[FB]({entry['M']}|0)\b", str(refused.value))
        assert f"{last}F{entry['M']}" in entry["ranks"][last]
        assert f"{last}F0" not in entry["ranks"][last]


def test_lost_work_of_chimera_is_refused_by_name(shared_dir):
    refused = 0
    for entry in load(shared_dir, "chimera"):
        if is_complete("chimera", entry):
            continue
        order = order_of(entry)
        with pytest.raises(OrderError, match=r"lacks \d+[FB]\d+, the \w+ of micro-batch") as error:
            run_order(order, unit_times(order.num_stages))
        word = re.search(r"lacks (\d+[FB]\d+)", str(error.value))[1]
        assert all(word not in cells for cells in entry["ranks"])
        refused += 1
    assert refused > 0


# --- rows whose orders are not in the dumps -------------------------------------------------------

OURS = {
    "megatron_1F1B": Schedule.ONE_F_ONE_B,
    "deepspeed_1F1B": Schedule.ONE_F_ONE_B,
    "torch_GPipe": Schedule.GPIPE,
    "torch_LoopedBFS": Schedule.LOOPED_BFS,
    "torch_Interleaved1F1B": Schedule.INTERLEAVED,
    "megatron_interleaved": Schedule.INTERLEAVED,
    "megatron_interleaved_moe_overlap": Schedule.INTERLEAVED,
    "torch_InterleavedZeroBubble": Schedule.INTERLEAVED_ZB,
}


def our_order(name: str, row: dict) -> Order:
    p, m, v = (int(row[field]) for field in "PMV")
    group = row["extra"].get("group", default_group_size(p, m))
    schedule = OURS[name]
    match schedule:
        case Schedule.ONE_F_ONE_B:
            return one_way_orders.one_f_one_b(p, m)
        case Schedule.GPIPE:
            return one_way_orders.gpipe(p, m)
        case Schedule.LOOPED_BFS:
            return interleaved_orders.looped_bfs(p, m, v)
    assert shape_problem(schedule, p, m, v, group) is None
    if schedule is Schedule.INTERLEAVED_ZB:
        return interleaved_orders.interleaved_zero_bubble(p, m, v, group)
    more = 1 if name.endswith("moe_overlap") else 0
    return interleaved_orders.interleaved(p, m, v, group, extra_warmup=more)


@pytest.mark.parametrize("name", OURS)
def test_our_orders_give_every_row_dumped_or_not(shared_dir, name):
    rows = [row for key, found in metrics(shared_dir).items() if key[0] == name for row in found]
    assert len(rows) > len(load(shared_dir, name))
    for row in rows:
        agrees(our_order(name, row), row)
