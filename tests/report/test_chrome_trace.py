"""Chrome traces: the events the trace event format defines, and the timeline in them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from timeline_examples import ORDERS, make_picture

from planner.report.chrome_trace import chrome_trace
from planner.report.timeline_picture import TimelinePicture, tail_of
from planner.schedules.timeline import StageTimes
from planner.specs import Sends

# Trace Event Format (Google): keys an event of each phase must have, and may have.
_REQUIRED = {
    "M": {"name", "pid", "args"},
    "X": {"name", "pid", "tid", "ts", "dur"},
    "s": {"name", "cat", "id", "pid", "tid", "ts"},
    "f": {"name", "cat", "id", "pid", "tid", "ts"},
    "C": {"name", "pid", "ts", "args"},
}
_ALLOWED = {"ph", "name", "cat", "pid", "tid", "ts", "dur", "args", "id", "bp", "cname"}
_METADATA = {
    "process_name": "name", "thread_name": "name",
    "process_sort_index": "sort_index", "thread_sort_index": "sort_index",
}  # fmt: skip


def check_trace(trace: dict[str, Any]) -> None:
    """Judge a trace by the format alone."""
    again = json.loads(json.dumps(trace, allow_nan=False))
    assert again == trace, "nothing but JSON's own types"
    assert trace["displayTimeUnit"] in ("ms", "ns")
    slices: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in trace["traceEvents"]:
        phase = event["ph"]
        assert _REQUIRED[phase] <= event.keys() <= _ALLOWED
        assert type(event["pid"]) is int
        assert event["pid"] > 0, "process 0 is the idle task to Perfetto"
        assert isinstance(event.get("args", {}), dict)
        if phase == "M":
            kind = type(event["args"][_METADATA[event["name"]]])
            assert kind is (str if event["name"].endswith("name") else int)
            continue
        assert isinstance(event["ts"], int | float)
        assert event["ts"] >= 0
        if phase == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())
        if phase == "X":
            assert event["dur"] >= 0
            assert event["tid"] > 0, "thread 0 is the process to Perfetto"
            span = event["ts"], event["ts"] + event["dur"]
            slices.setdefault((event["pid"], event["tid"]), []).append(span)
    for spans in slices.values():
        # Complete events of a thread follow each other; none overlaps.
        ends = 0.0
        for begin, end in sorted(spans):
            assert begin >= ends - 1e-6
            ends = max(ends, end)
    check_flows(trace["traceEvents"], slices)
    check_names(trace["traceEvents"], slices)


def check_flows(
    events: list[dict[str, Any]], slices: dict[tuple[int, int], list[tuple[float, float]]]
) -> None:
    """Every start has its one finish, later, and both lie in an event of their thread."""
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert len(starts) + len(ends) == sum(event["ph"] in "sf" for event in events)
    for number, start in starts.items():
        end = ends[number]
        assert (start["name"], start["cat"]) == (end["name"], end["cat"])
        assert end["bp"] == "e"
        assert start["ts"] <= end["ts"]
        assert start["tid"] != end["tid"], "between ranks"
        for event in (start, end):
            spans = slices[event["pid"], event["tid"]]
            assert any(a <= event["ts"] < b or a == b == event["ts"] for a, b in spans), (
                "inside an event"
            )


def check_names(events: list[dict[str, Any]], slices: dict[tuple[int, int], Any]) -> None:
    processes = {e["pid"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    threads = {
        (e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"
    }
    assert {e["pid"] for e in events} <= processes
    assert slices.keys() <= threads


def by_phase(trace: dict[str, Any], phase: str) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == phase]


def thread_of(trace: dict[str, Any], name: str) -> int:
    (tid,) = (
        event["tid"] for event in by_phase(trace, "M")
        if event["name"] == "thread_name" and event["args"]["name"] == name
    )  # fmt: skip
    return int(tid)


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("sends", Sends)
@pytest.mark.parametrize("quantum_ms", [1.0, 0.0137, 1e-6])
def test_traces_are_valid(name: str, sends: Sends, quantum_ms: float) -> None:
    ranks = len(ORDERS[name])
    check_trace(
        chrome_trace(
            make_picture(
                name, uneven=1, sends=sends, quantum_ms=quantum_ms, unit="GiB",
                limits=(2.0, *(float("inf"),) * (ranks - 1)), fixed=(0.5,) * ranks,
            )
        )
    )  # fmt: skip


def test_traces_without_any_time_are_valid() -> None:
    zero = np.zeros(4, np.int64)
    check_trace(
        chrome_trace(make_picture("1f1b", times=StageTimes(zero, zero, zero, zero[:3], zero[:3])))
    )


def test_a_broken_trace_is_noticed() -> None:
    good = chrome_trace(make_picture("1f1b", uneven=1))
    check_trace(good)
    changes: tuple[tuple[str, str, object], ...] = (
        ("X", "ts", -1.0), ("X", "dur", 1e9), ("f", "id", -1), ("s", "ts", 1e9),
        ("C", "args", {"held": "3"}), ("M", "pid", 7),
    )  # fmt: skip
    for phase, key, value in changes:
        broken = json.loads(json.dumps(good))
        next(event for event in broken["traceEvents"] if event["ph"] == phase)[key] = value
        with pytest.raises(AssertionError):
            check_trace(broken)


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("sends", Sends)
def test_every_operation_is_an_event_of_its_rank(name: str, sends: Sends) -> None:
    picture = make_picture(name, uneven=4, sends=sends, quantum_ms=0.5)
    timeline, order = picture.timeline, picture.timeline.order
    trace = chrome_trace(picture)
    found = {}
    for event in by_phase(trace, "X"):
        if event["cat"] not in ("send", "tail", "critical path"):
            for part in event["name"].split(" & "):
                assert (part, event["tid"]) not in found
                found[part, event["tid"]] = event
    assert len(found) == order.num_operations
    for at in range(order.num_operations):
        event = found[order.name(at), thread_of(trace, f"rank {order.rank[at]}")]
        assert event["ts"] == int(timeline.start[at]) * 500.0
        assert event["dur"] == int(timeline.end[at] - timeline.start[at]) * 500.0
        facts = event["args"].get("operations", [event["args"]])
        wanted = {
            "kind": "FBIW"[int(order.kind[at])],
            "stage": int(order.stage[at]),
            "microbatch": int(order.microbatch[at]),
            "chunk": int(picture.chunk[at]),
        }
        assert any(wanted.items() <= fact.items() for fact in facts)
        assert event["args"]["held_activations"] == picture.held[at]
    busy = [0.0] * order.num_ranks
    for rank in range(order.num_ranks):
        tid = thread_of(trace, f"rank {rank}")
        busy[rank] = sum(
            e["dur"] for e in by_phase(trace, "X") if e["tid"] == tid and e["cat"] != "tail"
        )
    assert busy == (timeline.busy * 500.0).tolist()


def test_the_tail_ends_with_the_step() -> None:
    picture = make_picture("1f1b", uneven=4)
    tail = [event for event in by_phase(chrome_trace(picture), "X") if event["cat"] == "tail"]
    assert len(tail) == len(tail_of(picture.timeline)) == 8
    assert max(event["ts"] + event["dur"] for event in tail) == picture.timeline.step * 1000.0


@pytest.mark.parametrize("name", ORDERS)
def test_flows_are_the_sends_between_ranks(name: str) -> None:
    picture = make_picture(name, uneven=6)
    timeline = picture.timeline
    trace = chrome_trace(picture)
    waiting = np.flatnonzero(timeline.need >= 0)
    starts = {event["id"]: event for event in by_phase(trace, "s")}
    ends = {event["id"]: event for event in by_phase(trace, "f")}
    assert sorted(starts) == waiting.tolist()
    for at in waiting.tolist():
        source = int(timeline.need[at])
        rank = timeline.order.rank
        assert starts[at]["tid"] == thread_of(trace, f"rank {rank[source]}")
        assert ends[at]["tid"] == thread_of(trace, f"rank {rank[at]}")
        assert starts[at]["ts"] == pytest.approx(timeline.end[source] * 1000.0, abs=0.002)
        assert ends[at]["ts"] == timeline.start[at] * 1000.0
        assert starts[at]["args"]["latency_us"] == timeline.lag[at] * 1000.0


@pytest.mark.parametrize("name", ORDERS)
def test_counters_follow_what_is_held(name: str) -> None:
    ranks = len(ORDERS[name])
    picture = make_picture(name, uneven=3, fixed=(1.25,) * ranks, limits=(9.0,) * ranks)
    trace = chrome_trace(picture)
    counters = by_phase(trace, "C")
    for rank in range(ranks):
        steps = [
            (event["ts"], event["args"]["activations"]) for event in counters
            if event["name"] == f"rank {rank} held"
        ]  # fmt: skip
        moments = [moment for moment, _ in steps]
        assert moments == sorted(set(moments)), "one value a moment"
        assert steps[-1][1] == 1.25
        assert max(value for _, value in steps) == pytest.approx(picture.peak[rank])
        order = picture.timeline.order
        for at in range(int(order.rank_start[rank]), int(order.rank_start[rank + 1])):
            middle = 500.0 * (picture.timeline.start[at] + picture.timeline.end[at])
            now = [value for moment, value in steps if moment <= middle][-1]
            assert now == pytest.approx(picture.held[at])
        limits = [e for e in counters if e["name"] == f"rank {rank} limit"]
        assert [e["args"]["activations"] for e in limits] == [9.0, 9.0]
        assert limits[1]["ts"] == picture.total * 1000.0


def test_counters_of_many_ranks_sort_in_their_order() -> None:
    lists = [[f"{r}F0", f"{r}B0"] for r in range(12)]
    names = {event["name"] for event in by_phase(chrome_trace(make_picture(lists)), "C")}
    assert sorted(names) == [f"rank {rank:02} held" for rank in range(12)]


def test_the_critical_path_is_a_thread_of_its_own() -> None:
    picture: TimelinePicture = make_picture("zb", uneven=2, title="a <title>")
    trace = chrome_trace(picture)
    tid = thread_of(trace, "critical path")
    path = [event for event in by_phase(trace, "X") if event["tid"] == tid]
    order = picture.timeline.order
    names = [
        f"{order.name(at)} on rank {order.rank[at]}" for at in picture.timeline.critical_path()
    ]
    assert [event["name"] for event in path] == names
    critical = [e for e in by_phase(trace, "X") if e["args"].get("critical")]
    assert sorted(f"{e['name']} on rank" for e in critical) == sorted(
        name.rsplit(" ", 1)[0] for name in names
    )
    process = [e for e in by_phase(trace, "M") if e["name"] == "process_name"]
    assert [e["args"]["name"] for e in process] == ["a <title>", "held on the ranks"]
    assert trace["otherData"]["makespan_ms"] == picture.timeline.makespan
