"""``planner.simulate``: schedules by name, plans and foreign orders, and what is refused."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import dumped_orders
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import planner
from planner.errors import InputError, OrderError, PlanFileError, ScheduleError
from planner.formats.torch_schedule import read_order, write_torch_csv
from planner.operations import order_from_lists
from planner.plans import Layout, Plan, Status
from planner.schedule_rules import RULES, default_chunks
from planner.specs import Schedule, Training
from planner.studies.comparison import compare_schedules
from planner.studies.plan_simulation import simulate_plan
from planner.studies.simulation_times import Placement, TimeOptions, stage_times
from tests.factories import chain_model, small_cluster, tiny_llama

GPIPE = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1F1", "1B0", "1B1"]]


# --- a schedule by name --------------------------------------------------------------------------


def test_defaults_and_keys() -> None:
    found = planner.simulate("1f1b", stages=4, microbatches=8)
    told = found.to_dict()
    assert isinstance(found, planner.Simulation)
    # (M + P - 1)(F + B) with F = 1, B = 2.
    assert told["makespan_ms"] == told["step_time_ms"] == told["span_ms"] == 33.0
    assert told["bubble_fraction"] == pytest.approx(9 / 33)
    assert told["bubble_of_ideal"] == pytest.approx(9 / 24)
    assert told["idle_ms"] == [9.0] * 4
    assert told["in_flight"] == told["in_flight_until_i"] == [4, 3, 2, 1]
    assert told["release_rule"] == "freed at B"
    assert told["peak_activation"] == [4.0, 3.0, 2.0, 1.0]
    assert told["weight_versions"] == [1] * 4
    assert told["staleness"] == [0] * 4
    assert told["fits"] is True
    assert told["activation_limit"] is None
    assert (told["chunks"], told["group_size"]) == (1, None)
    assert told["ranks"][3][:4] == ["3F0", "3B0", "3F1", "3B1"]
    assert "operations" not in told
    assert json.loads(found.to_json()) == told
    assert found.to_json() == planner.simulate("1F1B ", stages=4, microbatches=8).to_json()


def test_start_and_end_of_every_operation() -> None:
    found = planner.simulate("gpipe", stages=2, microbatches=2, comm_ms=0.5)
    told = found.to_dict(operations=True)["operations"]
    assert len(told) == 8
    at = {entry["operation"]: (entry["rank"], entry["start_ms"], entry["end_ms"]) for entry in told}
    assert at["0F0"] == (0, 0.0, 1.0)
    assert at["1F0"] == (1, 1.5, 2.5)
    # Backwards: 1F1 ends at 3.5; 1B0 2 ms; back over the edge.
    assert at["1B0"] == (1, 3.5, 5.5)
    assert at["0B0"] == (0, 6.0, 8.0)
    assert at["0B1"] == (0, 8.0, 10.0)
    assert found.makespan_ms == 10.0
    # The path adds up: each operation starts where the one before ends, or an edge later.
    ends = [at[name] for name in found.critical_path]
    for before, after in pairwise(ends):
        edge = 0.0 if before[0] == after[0] else 0.5
        assert after[1] == before[2] + edge


@pytest.mark.parametrize(
    ("forward", "backward", "comm", "microbatches", "one_f_one_b", "blocking", "gpipe"),
    [
        # Counter-examples to the popular sum + (M-1) max, simulated independently.
        ([1] * 4, [2] * 4, 0, 8, 33, 33, 33),
        ([1] * 4, [2] * 4, 1, 8, 49, 52, 39),
        ([1, 1], [1, 1], 1, 4, 14, 15, 12),
        ([10, 1, 1, 1], [20, 2, 2, 2], 0, 8, 240, 240, 249),
        ([1, 1, 1, 10], [2, 2, 2, 20], 0, 8, 249, 249, 249),
        ([10, 1, 0.1, 0.1], [1, 10, 0.1, 0.1], 0, 8, 117, 117, 162.4),
        ([5, 1, 1], [1, 5, 1], 0, 6, 46, 46, 64),
        ([3, 1], [1, 3], 0, 4, 20, 20, 26),
        ([4, 1, 1, 1], [8, 2, 2, 2], 3, 8, 114, 126, 123),
    ],
)
def test_uneven_stages(
    forward: list[float],
    backward: list[float],
    comm: float,
    microbatches: int,
    one_f_one_b: float,
    blocking: float,
    gpipe: float,
) -> None:
    shape: dict[str, Any] = {
        "stages": len(forward),
        "microbatches": microbatches,
        "forward_ms": forward,
        "backward_ms": backward,
        "comm_ms": comm,
    }
    assert planner.simulate("1f1b", **shape).makespan_ms == pytest.approx(one_f_one_b, abs=0.06)
    assert planner.simulate("gpipe", **shape).makespan_ms == pytest.approx(gpipe, abs=0.06)
    blocked = planner.simulate("1f1b", sends="blocking", **shape)
    assert blocked.makespan_ms == pytest.approx(blocking, abs=0.06)


def test_decimals_are_exact() -> None:
    found = planner.simulate("1f1b", stages=3, microbatches=5, forward_ms=0.1, backward_ms=0.2)
    # 7 x 0.3, which floating-point addition misses.
    assert found.makespan_ms == 2.1
    small = planner.simulate("1f1b", stages=3, microbatches=5, forward_ms=1e-7, backward_ms=2e-7)
    assert small.makespan_ms == 2.1e-6


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=5), st.integers(1, 6), st.data())
def test_times_are_sums_of_what_was_given(
    whole: list[int], microbatches: int, data: st.DataObject
) -> None:
    """GPipe's closed form, on times of up to six decimals."""
    forward = [value / 1e6 for value in whole]
    back = [data.draw(st.integers(0, 10**6)) for _ in whole]
    edges = [data.draw(st.integers(0, 10**6)) for _ in whole[1:]]
    found = planner.simulate(
        "gpipe",
        stages=len(whole),
        microbatches=microbatches,
        forward_ms=forward,
        backward_ms=[value / 1e6 for value in back],
        comm_ms=[value / 1e6 for value in edges],
    )
    total = sum(whole) + sum(back) + 2 * sum(edges)
    total += (microbatches - 1) * (max(whole) + max(back))
    assert found.makespan_ms == float(Fraction(total, 10**6))


def test_the_tail() -> None:
    found = planner.simulate(
        "1f1b", stages=2, microbatches=2, reduction_ms=[0, 4], optimizer_ms=[2, 1]
    )
    # Rank 1 ends 2 ms before rank 0 and reduces for 4; the slowest optimizer then takes 2.
    assert found.makespan_ms == 9.0
    assert found.step_time_ms == 9.0 - 2.0 + 4.0 + 2.0


def test_weight_versions_and_staleness() -> None:
    found = planner.simulate("pipedream", stages=4, microbatches=8)
    assert found.weight_versions == (4, 3, 2, 1)
    assert found.staleness == (3, 2, 1, 0)
    assert "never drains" in found.notes[0]
    buffered = planner.simulate("pipedream-2bw", stages=4, microbatches=8)
    assert set(buffered.weight_versions) == {2}


def test_chunks_and_groups() -> None:
    found = planner.simulate("interleaved", stages=2, microbatches=4, chunks=2)
    assert (found.chunks, found.group_size) == (2, 2)
    # Megatron-LM: min((V-1)G + 2(P-1-s) + 1, MV) chunks, half a micro-batch each.
    assert found.in_flight == (5, 3)
    assert found.peak_activation == (2.5, 1.5)
    wide = planner.simulate("interleaved", stages=2, microbatches=4, chunks=2, group_size=4)
    assert wide.group_size == 4
    assert wide.in_flight == (7, 5)
    folded = planner.simulate("zb-v", stages=2, microbatches=4)
    assert (folded.chunks, folded.group_size) == (2, None)
    assert folded.release_rule == "freed at W"


def test_activations_freed_at_i() -> None:
    whole = planner.simulate("zb-h1", stages=4, microbatches=8)
    assert whole.in_flight == (4, 4, 4, 4)
    assert whole.in_flight_until_i == (4, 3, 2, 1)
    assert whole.peak_activation == (4.0,) * 4
    freed = planner.simulate("zb-h1", stages=4, microbatches=8, freed_at_i=1.0)
    assert freed.peak_activation == (4.0, 3.0, 2.0, 1.0)
    half = planner.simulate("zb-h1", stages=4, microbatches=8, freed_at_i=0.5)
    assert freed.peak_activation <= half.peak_activation <= whole.peak_activation
    assert half.in_flight == whole.in_flight


def test_a_limit_is_checked() -> None:
    shape = {"stages": 4, "microbatches": 8}
    found = planner.simulate("1f1b", activation_limit=3, **shape)
    assert not found.fits
    assert found.to_dict()["over_limit"] == [0]
    assert found.to_dict()["activation_limit"] == [3.0] * 4
    by_rank = planner.simulate("1f1b", activation_limit=[4, 3, 1.5, 1], **shape)
    assert by_rank.over_limit == (2,)
    assert planner.simulate("1f1b", activation_limit=4, **shape).fits
    thirds = planner.simulate("looped-bfs", stages=2, microbatches=3, chunks=3, activation_limit=3)
    assert thirds.fits


def test_automatic_orders_keep_to_their_limit() -> None:
    shape: dict[str, Any] = {"stages": 4, "microbatches": 8, "backward_ms": 2, "comm_ms": 0.1}
    one = planner.simulate("zb-auto", **shape)
    assert one.activation_limit == (4.0,) * 4
    assert one.fits
    two = planner.simulate("zb-auto", activation_limit=8, **shape)
    assert two.fits
    assert two.span_ms <= one.span_ms
    folded = planner.simulate("zb-v", activation_limit=[4, 4, 4, 3], **shape)
    assert folded.fits
    assert folded.activation_limit == (4.0, 4.0, 4.0, 3.0)


def test_zb_v_is_torchs_order_unless_times_are_given(shared_dir: Path) -> None:
    entries = dumped_orders.load(shared_dir, "torch_ZBVZeroBubble")
    entry = next(e for e in entries if (e["P"], e["M"]) == (4, 7))
    found = planner.simulate("zb-v", stages=4, microbatches=7)
    assert found.order.rank_lists() == entry["ranks"]
    assert found.activation_limit is None


# --- times of stages and edges -------------------------------------------------------------------


@pytest.mark.parametrize("schedule", list(Schedule))
def test_stages_are_placed_as_the_order_places_them(schedule: Schedule) -> None:
    rules = RULES[schedule]
    chunks = 3 if rules.chunks is None else default_chunks(schedule)
    microbatches = 1 if schedule is Schedule.NAIVE else 8
    told = planner.simulate(
        schedule,
        stages=4,
        microbatches=microbatches,
        chunks=chunks,
        comm_ms=[1, 2, 3],
        forward_ms=[1 + q for q in range(4 * chunks)],
    )
    said = Placement.of_schedule(schedule, 4, chunks)
    really = Placement.of_order(told.order)
    assert said.chunks == really.chunks == chunks
    assert {tuple(column) for column in said.home.T} == {tuple(row) for row in really.home.T}
    options = TimeOptions(comm_ms=[1, 2, 3])
    ours, theirs = (stage_times(options, place, 8)[0] for place in (said, really))
    for name in ("edge_forward", "edge_backward", "mirrored_forward", "mirrored_backward"):
        a, b = getattr(ours, name), getattr(theirs, name)
        assert (a is None) == (b is None)
        assert a is None or a.tolist() == b.tolist()


def _edges(schedule: str, comm: Any, chunks: int = 1) -> tuple[list[int], list[int] | None]:
    place = Placement.of_schedule(Schedule(schedule), 4, chunks)
    times, quantum = stage_times(TimeOptions(comm_ms=comm), place, 8)
    one = quantum.quanta(1.0)
    assert times.edge_forward.tolist() == times.edge_backward.tolist()
    mirrored = times.mirrored_forward
    return (times.edge_forward // one).tolist(), (
        None if mirrored is None else (mirrored // one).tolist()
    )


def test_edges_by_rank_and_by_chunk() -> None:
    assert _edges("1f1b", [1, 2, 3]) == ([1, 2, 3], None)
    assert _edges("1f1b", 5) == ([5, 5, 5], None)
    # The wrap edge from rank 3 to rank 0 costs the largest.
    assert _edges("interleaved", [1, 5, 3], 2) == ([1, 5, 3, 5, 1, 5, 3], None)
    # A fold stays on its rank, and comes back over the same edges.
    assert _edges("zb-v", [1, 2, 3], 2) == ([1, 2, 3, 0, 3, 2, 1], None)
    assert _edges("zb-v", 5, 2) == ([5, 5, 5, 0, 5, 5, 5], None)
    by_chunk = [1, 2, 3, 4, 5, 6, 7]
    assert _edges("interleaved", by_chunk, 2) == (by_chunk, None)
    # Micro-batches that enter at the last rank cross border s on the edge P-2-s.
    assert _edges("chimera", [1, 2, 3]) == ([1, 2, 3], [3, 2, 1])


def test_one_rank_has_no_edges() -> None:
    for comm in (7, [7]):
        found = planner.simulate("interleaved", stages=1, microbatches=2, chunks=2, comm_ms=comm)
        assert found.makespan_ms == 12.0


def test_w_is_half_of_the_backward_unless_said() -> None:
    shape: dict[str, Any] = {"stages": 2, "microbatches": 2}
    found = planner.simulate("zb-h1", backward_ms=[0.3, 3], **shape).to_dict()["times_ms"]
    assert found["wgrad"] == [0.15, 1.5]
    told = planner.simulate("zb-h1", backward_ms=[1, 3], wgrad_ms=[1, 0.5], **shape)
    times, ms = told.timeline.times, told.quantum.ms
    # A first stage may have no I at all.
    assert [ms(value) for value in times.input_gradient.tolist()] == [0.0, 2.5]


BAD_TIMES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "negative": ({"forward_ms": [1, -1]}, ["forward_ms entry 1", '"-1"', "negative", ">= 0"]),
    "negative for all": ({"comm_ms": -0.5}, ["comm_ms:", '"-0.5"', "negative"]),
    "no number": ({"backward_ms": [1, float("nan")]}, ["backward_ms entry 1", "not finite"]),
    "infinite": ({"reduction_ms": float("inf")}, ["reduction_ms", "not finite"]),
    "text": ({"forward_ms": "1,2"}, ["forward_ms", '"1,2"', "no number"]),
    "text in a list": ({"forward_ms": ["1", 2]}, ["forward_ms entry 0", "no number"]),
    "a truth": ({"pair_ms": True}, ["pair_ms", "no number"]),
    "huge": ({"forward_ms": 1e300}, ["forward_ms", "too large"]),
    "too few": ({"forward_ms": [1, 2, 3]}, ["forward_ms", "3 values", "1 or 2, one a stage"]),
    "none": ({"backward_ms": []}, ["backward_ms", "0 values"]),
    "per rank": ({"optimizer_ms": [1, 2, 3]}, ["optimizer_ms", "1 or 2, one a rank"]),
    "edges": ({"comm_ms": [1, 2]}, ["comm_ms", "2 values", "1 or 1, one an edge"]),
    "W above B": (
        {"backward_ms": [2, 1], "wgrad_ms": [1, 1.5]},
        ["wgrad_ms entry 1", '"1.5"', "backward of stage 1, 1 ms"],
    ),
    "too many digits": ({"forward_ms": [1e12, 1e-12]}, ["too many digits", "round"]),
    "a limit of nothing": ({"activation_limit": 0}, ["activation_limit", "> 0"]),
    "limits": ({"activation_limit": [1, 2, 3]}, ["activation_limit", "1 or 2, one a rank"]),
    "no share": ({"freed_at_i": 1.5}, ["freed_at_i", '"1.5"', "0 to 1"]),
    "sends": ({"sends": "fast"}, ["sends", '"fast"', "overlapped or blocking"]),
}


@pytest.mark.parametrize("case", BAD_TIMES)
def test_bad_times(case: str) -> None:
    options, expected = BAD_TIMES[case]
    with pytest.raises(InputError) as caught:
        planner.simulate("1f1b", stages=2, microbatches=2, **options)
    for word in expected:
        assert word in str(caught.value)


def test_lists_by_chunk_are_as_long_as_there_are_chunks() -> None:
    with pytest.raises(InputError, match="2 values; expected 1 or 4, one a chunk in chunk order"):
        planner.simulate("interleaved", stages=2, microbatches=2, chunks=2, forward_ms=[1, 2])
    with pytest.raises(InputError, match=r"one an edge .*; or 3, one a border of two chunks"):
        planner.simulate("interleaved", stages=2, microbatches=2, chunks=2, comm_ms=[1, 2])


BAD_SHAPES: dict[str, tuple[tuple[Any, ...], dict[str, Any], list[str]]] = {
    "odd P": (("dualpipe", 3, 8), {}, ["even number of stages", "P=3", "--stages 2 or 4"]),
    "M too small": (("dualpipe", 4, 6), {}, ["M >= 2P = 8", "M=6", "--microbatches 8"]),
    "V": (("1f1b", 4, 8), {"chunks": 2}, ["one chunk a rank", "V=2", "interleaved"]),
    "V of a V": (("zb-v", 4, 8), {"chunks": 3}, ["2 chunks", "V=3"]),
    "a group": (("interleaved", 4, 9), {"chunks": 2, "group_size": 4}, ["M=9", "group size"]),
    "group of none": (("1f1b", 4, 8), {"group_size": 4}, ["no group size"]),
    "no ranks": (("1f1b", 0, 8), {}, ["stages", '"0"']),
    "half a rank": (("1f1b", 1.5, 8), {}, ["stages", '"1.5"']),
    "no P": (("1f1b", None, 8), {}, ["stages: is not given"]),
    "no M": (("1f1b", 4, None), {}, ["microbatches: is not given"]),
    "a slip": (("1f1", 4, 8), {}, ['"1f1" is no schedule', "did you mean 1f1b?"]),
    "a word": (("everything", 4, 8), {}, ["is no schedule", "expected one of naive, gpipe"]),
    "auto": (("auto", 4, 8), {}, ["a choice among schedules"]),
    "nothing": ((None, 4, 8), {}, ["no schedule is given"]),
    "many ranks": (("1f1b", 5000, 8), {}, ["stages", "at most 4,096"]),
    "many batches": (("1f1b", 4, 10**6), {}, ["microbatches", "at most 100,000"]),
    "many operations": (("1f1b", 4096, 4096), {}, ["33,554,432 operations", "4,000,000"]),
    "a whole V": (("interleaved", 4, 8), {"chunks": 10**9}, ["too many to simulate"]),
}


@pytest.mark.parametrize("case", BAD_SHAPES)
def test_bad_shapes(case: str) -> None:
    (schedule, stages, microbatches), options, expected = BAD_SHAPES[case]
    with pytest.raises(InputError) as caught:
        planner.simulate(schedule, stages=stages, microbatches=microbatches, **options)
    for word in expected:
        assert word in str(caught.value)


def test_options_that_contradict() -> None:
    with pytest.raises(InputError, match=r"schedule: .* contradicted by an order"):
        planner.simulate("gpipe", order=GPIPE)
    with pytest.raises(InputError, match="microbatches: is contradicted by an order"):
        planner.simulate(order=GPIPE, microbatches=2)
    with pytest.raises(InputError, match="forward_ms: is contradicted by a plan"):
        planner.simulate(Plan(model="gpt2"), forward_ms=1)
    with pytest.raises(InputError, match="model, cluster and training"):
        planner.simulate("gpipe", stages=2, microbatches=2, model="gpt2")


# --- foreign orders ------------------------------------------------------------------------------


def test_an_order_is_simulated(tmp_path: Path) -> None:
    path = tmp_path / "gpipe.csv"
    path.write_text("0F0,0F1,,0B0,0B1\n1F0,1F1,1B0,1B1\n")
    ours = planner.simulate("gpipe", stages=2, microbatches=2, comm_ms=1)
    for given_order in (GPIPE, order_from_lists("order", GPIPE), str(path), path):
        found = planner.simulate(order=given_order, comm_ms=1)
        assert found.makespan_ms == ours.makespan_ms
        assert found.order.rank_lists() == GPIPE
        assert found.schedule == "order"
    assert planner.simulate(order=path).title == "order of gpipe.csv, P=2, M=2"


def test_our_own_answer_is_an_order(tmp_path: Path) -> None:
    found = planner.simulate("interleaved", stages=2, microbatches=4, chunks=2)
    path = tmp_path / "answer.json"
    path.write_text(found.to_json(operations=True))
    again = planner.simulate(order=path)
    assert again.order.rank_lists() == found.order.rank_lists()
    assert (again.makespan_ms, again.chunks) == (found.makespan_ms, 2)


BAD_ORDERS: dict[str, tuple[list[list[str]], list[str]]] = {
    "missing": ([GPIPE[0], ["1F0", "1F1", "1B0"]], ["lacks 1B1"]),
    "doubled": ([[*GPIPE[0], "0F1"], GPIPE[1]], ["rank 0 operation 4", '"0F1" runs twice']),
    "early": ([GPIPE[0], ["1B0", "1F0", "1F1", "1B1"]], ["rank 1 operation 0", "before 1F0"]),
    "misplaced": (
        [["0F0", "0F1", "0B0"], [*GPIPE[1], "0B1"]],
        ["rank 1 operation 4", "away from its forward on rank 0"],
    ),
    "B and I": ([["0F0", "0B0", "0I0"]], ["rank 0 operation 2", "second backward"]),
    "no W": ([["0F0", "0I0"]], ["lacks 0W0"]),
    "circular": (
        [["0F0", "0B0", "0F1", "0B1"], ["1F0", "1F1", "1B0", "1B1"]],
        ["deadlocks", "rank 0 waits at 0B0 for 1B0", "rank 1 waits at 1F1 for 0F1"],
    ),
    "idle": ([GPIPE[0], GPIPE[1], []], ["rank 2 has no operation"]),
    "nothing": ([], ["no operation"]),
    "a word": ([["0F0", "go"]], ['"go" is no operation']),
}


@pytest.mark.parametrize("case", BAD_ORDERS)
def test_bad_orders(case: str, tmp_path: Path) -> None:
    lists, expected = BAD_ORDERS[case]
    with pytest.raises(OrderError) as caught:
        planner.simulate(order=lists)
    for word in expected:
        assert word in str(caught.value)
    if case in ("nothing", "idle"):
        return
    # The same from a file, where rank and operation are a line and a column.
    path = tmp_path / "bad.csv"
    path.write_text("".join("," + ",".join(cells) + "\n" for cells in lists))
    with pytest.raises(OrderError) as caught:
        planner.simulate(order=path)
    message = str(caught.value)
    assert "bad.csv" in message
    for word in expected:
        if word.startswith("rank") and "operation" in word:
            _, rank, _, operation = word.split()
            assert f"bad.csv:{int(rank) + 1} column {int(operation) + 2}" in message
        else:
            assert word in message


def test_what_is_no_order() -> None:
    with pytest.raises(OrderError, match=r"rank 0: .* is no list of operations"):
        planner.simulate(order=["0F0", "0B0"])
    with pytest.raises(OrderError, match="is no list of operations"):
        planner.simulate(order=[[1, 2]])  # type: ignore[list-item]


def test_times_of_a_foreign_order_are_by_its_own_stages() -> None:
    # Three chunks on two ranks, all of them on neighbours: chunk 2 is back on rank 0.
    lists = [["0F0", "2F0", "2B0", "0B0"], ["1F0", "1B0"]]
    found = planner.simulate(order=lists, forward_ms=[1, 2, 3], backward_ms=[1, 1, 1], comm_ms=0.5)
    assert found.makespan_ms == 6.0 + 3.0 + 4 * 0.5
    assert found.chunks == 2
    with pytest.raises(InputError, match="1 or 3, one a chunk"):
        planner.simulate(order=lists, forward_ms=[1, 2])


def test_torchs_orders_are_ours_and_are_written_as_torch_does(shared_dir: Path) -> None:
    names = {
        "Interleaved1F1B": "interleaved", "InterleavedZeroBubble": "interleaved-zb",
        "LoopedBFS": "looped-bfs", "ZBVZeroBubble": "zb-v", "DualPipeV": "dualpipe-v",
    }  # fmt: skip
    paths = sorted((shared_dir / "data" / "schedules").glob("torch_csv_*_compute_only.csv"))
    assert len(paths) == 5
    for path in paths:
        _, _, name, ranks, count, *_ = path.stem.split("_")
        ours = planner.simulate(
            names[name], stages=int(ranks[1:]), microbatches=int(count[1:]), chunks=2
        )
        theirs = read_order(str(path)).order
        assert ours.order.rank_lists() == theirs.rank_lists()
        assert write_torch_csv(ours.order) == write_torch_csv(theirs)
        # A lowered file is the same order, and is simulated to the same time.
        lowered = planner.simulate(order=str(path).replace("compute_only", "compute_comms"))
        assert lowered.makespan_ms == ours.makespan_ms
        assert lowered.in_flight == ours.in_flight
        assert "left out" in lowered.notes[0]


# --- plans ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize("sends", ["overlapped", "blocking"])
def test_a_plan_takes_what_it_says(schedule: str, sends: str) -> None:
    plan = planner.plan(
        tiny_llama(), small_cluster(), global_batch_size=64, pp=4, dp=2, tp=1, microbatch_size=2,
        schedules=schedule, sends=sends,
    )  # fmt: skip
    found = planner.simulate(plan, model=tiny_llama())
    assert plan.step_terms is not None
    assert found.makespan_ms == plan.step_terms.makespan_ms
    assert found.step_time_ms == plan.step_time_ms
    assert found.timeline.bubble_fraction == pytest.approx(plan.bubble_fraction)
    assert found.in_flight == tuple(stage.in_flight for stage in plan.stages)
    # The curve's peak is the memory that the plan states, to the byte.
    assert found.memory_bytes == tuple(stage.memory_bytes for stage in plan.stages)
    assert found.to_dict()["budget_bytes"] == [stage.budget_bytes for stage in plan.stages]
    assert (found.schedule, found.num_ranks, found.num_microbatches) == (schedule, 4, 16)
    assert found.fits
    assert found.notes == ()
    held, unit = found.held()
    assert unit == "GiB"
    assert held.max() == pytest.approx(max(found.memory_bytes) / 2**30)


UNEVEN = (1.0, 2, 3, 1.5, 2.5, 1, 4, 2, 1, 1, 2, 3)


@pytest.mark.parametrize("schedule", list(Schedule))
def test_plans_of_every_schedule(schedule: Schedule) -> None:
    """The picture's time and memory are the plan's, whatever a rank holds."""
    rules = RULES[schedule]
    model = chain_model(UNEVEN, output_bytes=1000, activation_bytes=10**9, parameter_bytes=10**8)
    plan = planner.partition(
        model, 4, 1 if schedule is Schedule.NAIVE else 8, schedule=schedule.value,
        vpp=1 if rules.chunks == 1 else 2, bandwidth_bytes_per_s=1e6,
        # Enough for GPipe's eight micro-batches; zb-auto has to do with three.
        memory_bytes=14 * 10**9 if schedule is Schedule.ZB_AUTO else 28 * 10**9,
    )  # fmt: skip
    found = planner.simulate(plan, model=model)
    assert plan.step_terms is not None
    if rules.asynchronous:
        # The plan's step is the steady state; the picture also fills and drains.
        assert found.makespan_ms > plan.step_terms.makespan_ms
        assert "steady state" in found.notes[-1]
    else:
        assert found.makespan_ms == plan.step_terms.makespan_ms
        assert found.step_time_ms == plan.step_time_ms
    assert found.memory_bytes == tuple(stage.memory_bytes for stage in plan.stages)
    assert found.in_flight == tuple(stage.in_flight for stage in plan.stages)
    assert found.fits
    assert found.chunks == plan.layout.vpp


def test_a_plan_file_and_a_partition(tmp_path: Path) -> None:
    profile = tmp_path / "p.csv"
    rows = "".join(f"l{i},{i + 1},{2 * i + 2},100,200,1000\n" for i in range(6))
    header = "name,forward_ms,backward_ms,parameter_bytes,activation_bytes,output_bytes\n"
    profile.write_text(header + rows)
    plan = planner.partition(str(profile), 3, 8, bandwidth_bytes_per_s=1e6, latency_ms=0.25)
    path = tmp_path / "plan.json"
    path.write_text(plan.to_json())
    for source in (plan, str(path), path):
        found = planner.simulate(source)
        assert plan.step_terms is not None
        assert found.makespan_ms == plan.step_terms.makespan_ms == plan.step_time_ms
        assert found.to_dict()["times_ms"]["forward"] == [s.forward_ms for s in plan.stages]
        # 1000 bytes at 1 MB/s and the latency.
        assert found.to_dict()["times_ms"]["comm_forward"] == [1.25, 1.25]
        assert found.to_dict()["budget_bytes"] is None
    assert not planner.simulate(plan, activation_limit=2).fits


def test_what_a_plan_says_is_not_believed() -> None:
    model = chain_model([1.0, 2.0, 3.0, 4.0])
    plan = planner.partition(model, 2, 4)
    assert plan.step_time_ms is not None
    boast = plan.model_copy(update={"step_time_ms": plan.step_time_ms / 2})
    found = planner.simulate(boast, model=model)
    assert found.step_time_ms == plan.step_time_ms
    assert "not so" in found.notes[0]
    lost = plan.model_copy(update={"stages": plan.stages[:1]})
    with pytest.raises(PlanFileError, match="cannot be simulated"):
        planner.simulate(lost, model=model)
    with pytest.raises(PlanFileError, match="names no model"):
        planner.simulate(Plan(layout=Layout(pp=2)))


def test_a_plan_that_does_not_fit_is_drawn_all_the_same() -> None:
    model = chain_model([1.0] * 4, activation_bytes=1000, parameter_bytes=2)
    plan = planner.partition(model, 2, 4, memory_bytes=2**20)
    setup = json.loads(plan.inputs["setup"]) | {"memory_bytes": 3500}
    tight = plan.model_copy(update={"inputs": {**plan.inputs, "setup": json.dumps(setup)}})
    found = planner.simulate(tight, model=model)
    # Rank 0 keeps two micro-batches of two layers, 4000 bytes; rank 1 one.
    assert found.over_limit == (0,)
    assert not found.fits
    assert found.makespan_ms == planner.simulate(plan, model=model).makespan_ms
    assert "rank 0 is" in found.notes[0]
    nothing = plan.model_copy(update={"status": Status.INFEASIBLE})
    with pytest.raises(PlanFileError, match="status is infeasible"):
        planner.simulate(nothing, model=model)


def test_a_sketch_gets_its_best_cut() -> None:
    training = Training(global_batch_size=8, sequence_length=128)
    sketch = Plan(layout=Layout(pp=2, num_microbatches=8))
    found = simulate_plan(
        sketch, model=tiny_llama(), cluster=small_cluster(1, 2), training=training
    )
    assert found.num_ranks == 2
    assert found.title == "tiny-llama, 1F1B, P=2, M=8"


# --- comparisons ---------------------------------------------------------------------------------


def test_schedules_are_compared_on_the_same_work() -> None:
    names = (Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED, Schedule.ZB_V)
    found, notes = compare_schedules(names, 4, 8, chunks=2)
    assert [sim.schedule for sim in found] == ["gpipe", "1f1b", "interleaved", "zb-v"]
    assert len({tuple(sim.to_dict()["busy_ms"]) for sim in found}) == 1
    assert found[2].makespan_ms == 24 + 9 / 2
    assert "1/V" in notes[0]
    assert "interleaved 1F1B V=2" in notes[0]
    # No times were given: torch's order, not one that is fitted.
    plain = planner.simulate("zb-v", stages=4, microbatches=8)
    assert found[3].order.rank_lists() == plain.order.rank_lists()
    assert compare_schedules(names[:2], 4, 8)[1] == ()


def test_ranks_share_their_times_among_their_chunks() -> None:
    times = TimeOptions(forward_ms=[1, 2, 3, 4], backward_ms=[2], wgrad_ms=[1, 1, 1, 0])
    names = (Schedule.ONE_F_ONE_B, Schedule.LOOPED_BFS, Schedule.ZB_V)
    found, _ = compare_schedules(names, 4, 8, chunks=2, times=times)
    told = [sim.to_dict()["times_ms"] for sim in found]
    assert told[0]["forward"] == [1, 2, 3, 4]
    assert told[1]["forward"] == [0.5, 1, 1.5, 2, 0.5, 1, 1.5, 2]
    assert told[2]["forward"] == [0.5, 1, 1.5, 2, 2, 1.5, 1, 0.5]
    assert told[2]["wgrad"] == [0.5, 0.5, 0.5, 0, 0, 0.5, 0.5, 0.5]
    assert told[1]["backward"] == [1.0] * 8
    assert np.allclose(found[0].timeline.busy, found[1].timeline.busy)


def test_comparisons_that_are_none() -> None:
    with pytest.raises(InputError, match="no schedules to compare"):
        compare_schedules((), 4, 8)
    with pytest.raises(InputError, match="compared with itself"):
        compare_schedules((Schedule.GPIPE, Schedule.GPIPE), 4, 8)
    with pytest.raises(ScheduleError, match="even number"):
        compare_schedules((Schedule.GPIPE, Schedule.DUALPIPE), 3, 8)
    bad = TimeOptions(forward_ms=[1] * 8)
    with pytest.raises(InputError, match="1 or 4, one a rank"):
        compare_schedules((Schedule.LOOPED_BFS,), 4, 8, chunks=2, times=bad)
