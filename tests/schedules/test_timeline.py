"""The simulator against a slow one, its critical path, and the orders it refuses."""

from __future__ import annotations

import itertools
import random
import re
from types import SimpleNamespace

import numpy as np
import pytest
from dumped_orders import load
from hypothesis import given
from hypothesis import strategies as st
from slow_simulator import Costs, DeadlockError, parse, simulate

from planner.errors import InputError, OrderError
from planner.operations import Order, order_from_lists
from planner.schedule_rules import RULES, shape_problem
from planner.schedules.memory_curve import held_by_operation, peak_by_rank
from planner.schedules.orders import build_order
from planner.schedules.timeline import StageTimes, Timeline, run_order, unit_times
from planner.specs import Schedule, Sends

ALL_SENDS = (Sends.OVERLAPPED, Sends.BLOCKING)


# --- random times, built orders, foreign orders ---------------------------------------------------


def draw_costs(source: random.Random, stages: int, pairs: bool) -> Costs:
    """Uneven times and edges, zeros among them."""

    def some(count: int, most: int) -> list[int]:
        return [source.choice((0, source.randint(0, most))) for _ in range(count)]

    mirrored = source.random() < 0.5
    return Costs(
        forward=[source.randint(0, 9) for _ in range(stages)],
        input_gradient=[source.randint(0, 9) for _ in range(stages)],
        weight_gradient=[source.randint(0, 9) for _ in range(stages)],
        edge_forward=some(stages - 1, 5),
        edge_backward=some(stages - 1, 5),
        mirrored_forward=some(stages - 1, 5) if mirrored else None,
        mirrored_backward=some(stages - 1, 5) if mirrored else None,
        pair=source.randint(0, 15) if pairs and source.random() < 0.5 else None,
    )


def as_times(costs: Costs) -> StageTimes:
    def array(values):
        return None if values is None else np.array(values, np.int64)

    return StageTimes(
        forward=array(costs.forward),
        input_gradient=array(costs.input_gradient),
        weight_gradient=array(costs.weight_gradient),
        edge_forward=array(costs.edge_forward),
        edge_backward=array(costs.edge_backward),
        mirrored_forward=array(costs.mirrored_forward),
        mirrored_backward=array(costs.mirrored_backward),
        pair=costs.pair,
    )


def foreign_lists(source: random.Random) -> list[list[str]]:
    """A valid order nobody would write: stages anywhere, B and I with W mixed, pairs anywhere.

    Operations are appended to their ranks' lists in an order in which they could run one after
    the other, so that nothing can deadlock.
    """
    ranks, stages, microbatches = source.randint(1, 4), source.randint(1, 5), source.randint(1, 5)
    by_stage = source.random() < 0.5
    place = {
        (s, m): source.randrange(ranks) if m == 0 or not by_stage else None
        for s in range(stages)
        for m in range(microbatches)
    }
    home = {(s, m): place[s, 0] if by_stage else place[s, m] for s, m in place}
    split = {key for key in home if source.random() < 0.4}
    pairs = source.random() < 0.5
    lists: list[list[str]] = [[] for _ in range(ranks)]
    ready = [(0, "F", m) for m in range(microbatches)]

    def back(s: int, m: int) -> tuple[int, str, int]:
        return (s, "I" if (s, m) in split else "B", m)

    while ready:
        chosen = [ready.pop(source.randrange(len(ready)))]
        s, kind, m = chosen[0]
        if pairs and kind in "FBI":
            partners = [
                word
                for word in ready
                if home[word[0], word[2]] == home[s, m]
                and word[1] != "W"
                and (word[1] == "F") != (kind == "F")
            ]
            if partners and source.random() < 0.7:
                partner = source.choice(partners)
                ready.remove(partner)
                chosen.append(partner)
        texts = ["{}{}{}".format(*word) for word in chosen]
        cell = texts[0] if len(texts) == 1 else f"({texts[0]};{texts[1]})OVERLAP_F_B"
        lists[home[s, m]].append(cell)
        for stage, done, microbatch in chosen:
            if done == "F":
                last = stage == stages - 1
                ready.append(back(stage, microbatch) if last else (stage + 1, "F", microbatch))
            elif done in "BI":
                if stage:
                    ready.append(back(stage - 1, microbatch))
                if done == "I":
                    ready.append((stage, "W", microbatch))
    return lists


def draw_order(source: random.Random, schedule: Schedule) -> Order:
    """An order of a schedule's own builder, of a small legal shape."""
    several = RULES[schedule].chunks is None
    while True:
        ranks, microbatches = source.randint(1, 6), source.randint(1, 13)
        chunks = source.randint(1, 3) if several else None
        group = None
        if several and schedule is not Schedule.LOOPED_BFS and source.random() < 0.7:
            group = source.randint(1, microbatches)
        if shape_problem(schedule, ranks, microbatches, chunks, group) is None:
            return build_order(schedule, ranks, microbatches, num_chunks=chunks, group_size=group)


def agree(order: Order, lists: list[list[str]], costs: Costs, sends: Sends) -> Timeline:
    """Both simulators, and what the timeline says of itself."""
    slow = simulate(lists, costs, sends is Sends.BLOCKING)
    timeline = run_order(order, as_times(costs), sends)
    spans = zip(timeline.start.tolist(), timeline.end.tolist(), strict=True)
    assert {order.name(at): span for at, span in enumerate(spans)} == slow.span
    assert timeline.finish.tolist() == slow.finish
    assert timeline.makespan == slow.makespan
    assert timeline.busy.tolist() == slow.busy
    assert timeline.idle.tolist() == [slow.makespan - busy for busy in slow.busy]
    begins = [slow.span["{}{}{}".format(*parse(cells[0])[0])][0] if cells else 0 for cells in lists]
    own = [end - begin for begin, end in zip(begins, slow.finish, strict=True)]
    assert timeline.span == max(own)
    mean = sum(slow.busy) / len(lists)
    if slow.makespan:
        assert timeline.bubble_fraction == pytest.approx(1 - mean / slow.makespan)
    if mean:
        assert timeline.bubble_of_ideal == pytest.approx((slow.makespan - mean) / mean)
        assert timeline.span_bubble == pytest.approx(1 - mean / max(own))
    return timeline


def path_adds_up(timeline: Timeline) -> None:
    """The critical path starts at 0, ends at the makespan and leaves no gap on its way."""
    order, path = timeline.order, timeline.critical_path()
    if order.joined is None:
        slot_of = {at: (at,) for at in range(order.num_operations)}
    else:
        slot_of, at = {}, 0
        while at < order.num_operations:
            width = 2 if order.joined[at] else 1
            slot = tuple(range(at, at + width))
            slot_of |= dict.fromkeys(slot, slot)
            at += width
    assert timeline.start[path[0]] == 0
    assert timeline.end[path[-1]] + timeline.hold[path[-1]] == timeline.makespan
    total = 0
    for before, after in itertools.pairwise(path):
        slot = slot_of[after]
        waits = [
            timeline.end[before] + timeline.lag[at] for at in slot if timeline.need[at] == before
        ]
        if not waits:
            assert order.rank[before] == order.rank[after]
            assert before == slot[0] - 1
            held = max(timeline.hold[at] for at in slot_of[before])
            waits = [timeline.end[before] + held]
        assert timeline.start[after] in waits
        total += int(timeline.start[after] - timeline.start[before])
    last = path[-1]
    total += int(timeline.end[last] - timeline.start[last] + timeline.hold[last])
    assert total == timeline.makespan


def held_step_by_step(lists, weights, freed_at_i) -> dict[str, float]:
    """Held on its rank while each operation runs: taken at the start of F, freed at the ends."""
    freed = {"F": 0.0, "B": 1.0, "I": freed_at_i, "W": 1.0 - freed_at_i}
    found = {}
    for cells in lists:
        held = 0.0
        for cell in cells:
            words = parse(cell)
            held += sum(weights[stage] for stage, kind, _ in words if kind == "F")
            found |= {"{}{}{}".format(*word): held for word in words}
            held -= sum(weights[stage] * freed[kind] for stage, kind, _ in words)
    return found


@given(source=st.randoms(use_true_random=False))
def test_held_activations_of_foreign_orders(source):
    lists = foreign_lists(source)
    order = order_from_lists("order", lists)
    weights = [source.randint(0, 9) for _ in range(order.num_stages)]
    freed_at_i = source.choice((0.0, 0.25, 1.0))
    slow = held_step_by_step(lists, weights, freed_at_i)
    held = held_by_operation(order, weights, freed_at_i)
    assert {order.name(at): amount for at, amount in enumerate(held.tolist())} == slow
    peaks = [
        max((slow["{}{}{}".format(*word)] for cell in cells for word in parse(cell)), default=0)
        for cells in lists
    ]
    assert peak_by_rank(order, weights, freed_at_i).tolist() == peaks


# --- equal to the slow simulator ------------------------------------------------------------------


@pytest.mark.parametrize("schedule", list(Schedule))
@given(seed=st.integers(0, 2**32), sends=st.sampled_from(ALL_SENDS))
def test_built_orders_on_uneven_stages(schedule, seed, sends):
    source = random.Random(seed)
    order = draw_order(source, schedule)
    costs = draw_costs(source, order.num_stages, order.has_pairs)
    path_adds_up(agree(order, order.rank_lists(), costs, sends))


@given(source=st.randoms(use_true_random=False), sends=st.sampled_from(ALL_SENDS))
def test_foreign_orders_on_uneven_stages(source, sends):
    lists = foreign_lists(source)
    order = order_from_lists("order", lists)
    costs = draw_costs(source, order.num_stages, order.has_pairs)
    path_adds_up(agree(order, lists, costs, sends))


@pytest.mark.parametrize("sends", ALL_SENDS)
@pytest.mark.parametrize(
    "name",
    ["torch_DualPipeV", "dualpipe", "chimera", "torch_ZBVZeroBubble", "sailsg_v_half_min"],
)
def test_dumped_orders_on_uneven_stages(shared_dir, name, sends):
    source = random.Random(name)
    for entry in load(shared_dir, name):
        if entry.get("slot_conflicts") or entry["M"] > 16:
            continue
        order = order_from_lists("order", entry["ranks"])
        costs = draw_costs(source, order.num_stages, order.has_pairs)
        path_adds_up(agree(order, entry["ranks"], costs, sends))


@given(source=st.randoms(use_true_random=False))
def test_shuffled_lists_deadlock_in_both_or_in_neither(source):
    """Swapping neighbours of a rank's list keeps it complete; some orders then deadlock."""
    lists = foreign_lists(source)
    for _ in range(source.randint(1, 6)):
        cells = source.choice(lists)
        if len(cells) > 1:
            at = source.randrange(len(cells) - 1)
            cells[at], cells[at + 1] = cells[at + 1], cells[at]
    order = order_from_lists("order", lists)
    costs = draw_costs(source, order.num_stages, order.has_pairs)
    try:
        slow = simulate(lists, costs)
    except DeadlockError as deadlock:
        with pytest.raises(OrderError) as refused:
            run_order(order, as_times(costs))
        stuck = [word for cell in deadlock.waiting.values() for word in cell.split()]
        message = str(refused.value)
        if "deadlocks" in message:
            assert any(f"waits at {word} for" in message for word in stuck)
        else:  # the circle lies on one rank
            assert re.search(r'"\d+[FBIW]\d+" comes before \d+[FBIW]\d+ on its rank', message)
    else:
        assert run_order(order, as_times(costs)).makespan == slow.makespan


def test_the_compiled_loop_and_the_plain_one_agree(monkeypatch):
    pytest.importorskip("numba")
    from planner.schedules import timeline as module

    source = random.Random(5)
    for lists in [foreign_lists(source) for _ in range(30)]:
        order = order_from_lists("order", lists)
        times = as_times(draw_costs(source, order.num_stages, order.has_pairs))
        for sends in ALL_SENDS:
            compiled = run_order(order, times, sends)
            with monkeypatch.context() as without_numba:
                without_numba.setattr(module, "sys", SimpleNamespace(modules={}))
                without_numba.setattr(module, "find_spec", lambda name: None)
                plain = run_order(order, times, sends)
            assert compiled.start.tolist() == plain.start.tolist()
            assert compiled.end.tolist() == plain.end.tolist()


# --- values of SCHEDULES.md -----------------------------------------------------------------------

# (f, b, one-way edge, M, 1F1B, 1F1B with blocking sends, GPipe), by simulation of others.
UNEVEN = [
    ((1, 1, 1, 1), (2, 2, 2, 2), 0, 8, 33, 33, 33),
    ((1, 1, 1, 1), (2, 2, 2, 2), 1, 8, 49, 52, 39),
    ((1, 1), (1, 1), 1, 4, 14, 15, 12),
    ((10, 1, 1, 1), (20, 2, 2, 2), 0, 8, 240, 240, 249),
    ((1, 1, 1, 10), (2, 2, 2, 20), 0, 8, 249, 249, 249),
    ((100, 10, 1, 1), (10, 100, 1, 1), 0, 8, 1170, 1170, 1624),
    ((5, 1, 1), (1, 5, 1), 0, 6, 46, 46, 64),
    ((3, 1), (1, 3), 0, 4, 20, 20, 26),
    ((4, 1, 1, 1), (8, 2, 2, 2), 3, 8, 114, 126, 123),
]


@pytest.mark.parametrize("row", UNEVEN)
def test_uneven_stages(row):
    f, b, edge, microbatches, one_f_one_b, blocking, gpipe = row
    stages = len(f)
    edges = np.full(stages - 1, edge)
    times = StageTimes(np.array(f), np.array(b), np.zeros(stages, np.int64), edges, edges)
    order = build_order(Schedule.ONE_F_ONE_B, stages, microbatches)
    assert run_order(order, times).makespan == one_f_one_b
    assert run_order(order, times, Sends.BLOCKING).makespan == blocking
    order = build_order(Schedule.GPIPE, stages, microbatches)
    assert run_order(order, times).makespan == gpipe


def test_tail_waits_for_every_reduction():
    order = build_order(Schedule.GPIPE, 2, 2)
    times = unit_times(2)
    assert run_order(order, times).step == run_order(order, times).makespan == 9
    with_tail = StageTimes(
        *(getattr(times, name) for name in ("forward", "input_gradient", "weight_gradient")),
        times.edge_forward,
        times.edge_backward,
        reduction=np.array([1, 5]),
        optimizer=np.array([3, 2]),
    )
    # Rank 1 ends at 7 and reduces until 12; then the longest optimizer step.
    assert run_order(order, with_tail).step == 15


def test_blocking_sends_of_a_pair_run_side_by_side():
    lists = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "(1F1;1B0)OVERLAP_F_B", "1B1"], ["2F0"]]
    lists[2] = ["2F0", "2B0", "2F1", "2B1"]
    order = order_from_lists("order", lists)
    times = unit_times(3)
    edges = StageTimes(
        times.forward,
        times.input_gradient,
        times.weight_gradient,
        np.array([3, 7]),
        np.array([4, 2]),
    )
    timeline = run_order(order, edges, Sends.BLOCKING)
    pair = [at for at in range(order.num_operations) if order.name(at) in ("1F1", "1B0")]
    end = int(timeline.end[pair[0]])
    start = {order.name(at): int(timeline.start[at]) for at in range(order.num_operations)}
    assert start["0B0"] == end + 4
    assert start["2F1"] == end + 7
    # The pair holds its rank for the longer of its sends, 7, not for 11.
    work = 2 * (1 + 2)
    assert timeline.busy[1] == work + 7 + 7 + 4  # 1F0 sends 7, the pair 7, 1B1 sends 4


# --- orders and times that are refused ------------------------------------------------------------

GOOD = [
    ["0F0", "0F1", "0I0", "0W0", "0B1"],
    ["1F0", "1B0", "1F1", "1I1", "1W1"],
]


def refused(lists: list[list[str]]) -> str:
    order = order_from_lists("order", lists)
    with pytest.raises(OrderError) as error:
        run_order(order, unit_times(order.num_stages))
    message = str(error.value)
    assert "\n" not in message
    assert error.value.exit_status == 2
    return message


def changed(*changes: tuple[int, int, str | None]) -> list[list[str]]:
    """GOOD with cells replaced, or dropped where None (rank, position, cell)."""
    lists = [list(cells) for cells in GOOD]
    for rank, at, cell in sorted(changes, reverse=True, key=lambda change: change[:2]):
        if cell is None:
            del lists[rank][at]
        else:
            lists[rank][at] = cell
    return lists


def test_the_order_the_others_are_made_from_is_good():
    assert run_order(order_from_lists("order", GOOD), unit_times(2)).makespan > 0


@pytest.mark.parametrize(
    ("lists", "named"),
    [
        (changed((0, 1, None)), "0F1"),
        (changed((0, 3, None)), "0W0"),
        (changed((1, 1, None)), "1B0"),
        (changed((0, 2, None), (0, 3, None)), "0B0"),
        (changed((1, 0, None), (1, 1, None), (1, 2, None), (1, 3, None)), "1F0"),
    ],
)
def test_a_missing_operation_is_named(lists, named):
    assert f"lacks {named}" in refused(lists)


def test_a_doubled_operation_is_named_with_its_first_place():
    lists = changed()
    lists[0].append("0F1")
    assert refused(lists).startswith('rank 0 operation 5: "0F1" runs twice: first on rank 0')
    lists = changed()
    lists[1].append("0F1")
    assert refused(lists).startswith('rank 1 operation 5: "0F1" runs twice: first on rank 0')


def test_two_backwards_are_named():
    lists = changed()
    lists[0].append("0I1")
    assert '"0I1" is a second backward: 0B1 runs on rank 0' in refused(lists)
    lists = changed()
    lists[0].append("0W1")
    assert '"0W1" has a full backward B' in refused(lists)


def test_a_misplaced_operation_is_named():
    lists = changed((0, 3, None))
    lists[1].append("0W0")
    assert '"0W0" is away from its forward on rank 0' in refused(lists)
    lists = changed((0, 4, None))
    lists[1].append("0B1")
    assert '"0B1" is away from its forward on rank 0' in refused(lists)


@pytest.mark.parametrize(
    ("lists", "late", "early"),
    [
        (changed((0, 2, "0W0"), (0, 3, "0I0")), "0W0", "0I0"),
        (changed((1, 0, "1B0"), (1, 1, "1F0")), "1B0", "1F0"),
        (changed((0, 1, "0B1"), (0, 4, "0F1")), "0B1", "0F1"),
    ],
)
def test_an_operation_before_what_it_needs_on_its_rank_is_named(lists, late, early):
    assert f'"{late}" comes before {early} on its rank' in refused(lists)


def test_a_circle_is_told_rank_by_rank():
    # Rank 0 wants a backward of micro-batch 0 before it sends 1; rank 1 wants 1 first.
    lists = [["0F0", "0B0", "0F1", "0B1"], ["1F1", "1F0", "1B0", "1B1"]]
    assert refused(lists) == (
        "the order deadlocks: rank 0 waits at 0B0 for 1B0 of rank 1; "
        "rank 1 waits at 1F1 for 0F1 of rank 0"
    )
    with pytest.raises(DeadlockError) as slow:
        simulate(lists, Costs([1, 1], [1, 1], [0, 0], [0], [0]))
    assert slow.value.waiting == {0: "0B0", 1: "1F1"}


def test_a_pair_that_waits_for_itself_is_refused():
    assert '"0B0" comes before 0F0' in refused([["(0F0;0B0)OVERLAP_F_B"]])
    lists = [["0F0", "(0B0;0F1)OVERLAP_F_B", "0B1"], ["1F0", "(1F1;1B0)OVERLAP_F_B", "1B1"]]
    message = refused(lists)
    assert "rank 0 waits at 0B0 for 1B0 of rank 1" in message
    assert "rank 1 waits at 1F1 for 0F1 of rank 0" in message


def test_long_circles_are_shortened():
    """Rank 0 runs its second chunk first, which needs all other ranks' first chunks."""
    ranks = 8
    lists = [[f"{r}F0", f"{r + ranks}F0", f"{r + ranks}B0", f"{r}B0"] for r in range(ranks)]
    lists[0][:2] = ["8F0", "0F0"]
    assert refused(lists) == (
        "the order deadlocks: rank 0 waits at 8F0 for 7F0 of rank 7; rank 7 waits at 7F0 for 6F0 "
        "of rank 6; rank 6 waits at 6F0 for 5F0 of rank 5; (4 more); rank 1 waits at 1F0 for 0F0 "
        "of rank 0"
    )


@pytest.mark.parametrize(
    ("field", "values", "words"),
    [
        ("forward", [1, -2], "forward times are negative"),
        ("input_gradient", [1], "input_gradient times do not match the order"),
        ("weight_gradient", [-1, 0], "weight_gradient times are negative"),
        ("edge_forward", [-1], "edge_forward costs are negative"),
        ("edge_backward", [1, 1], "edge_backward costs do not match the order"),
    ],
)
def test_bad_times_are_refused(field, values, words):
    order = order_from_lists("order", GOOD)
    given_times = vars(unit_times(2)) | {field: np.array(values)}
    with pytest.raises(InputError, match=words):
        run_order(order, StageTimes(**given_times))
