"""Timelines as Chrome trace events, which Perfetto and chrome://tracing open.

The JSON object form of the Trace Event Format (Google, "Trace Event Format", 2016): metadata
events (``M``) name processes and threads, complete events (``X``) are operations, flow events
(``s`` to ``f``) are what one rank sends to another, counter events (``C``) what a rank holds.
Times are microseconds.

One process has a thread a rank: Perfetto keeps threads in the order of their numbers, but sorts
processes by how many events they have, and takes thread 0 for the process itself. The thread with
its process' number comes first; that is the critical path. Counters stand in a second process,
sorted by name.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.report.timeline_picture import (
    KIND_WORDS,
    TimelinePicture,
    critical_runs,
    sends_of,
    slots_of,
    tail_of,
)

__all__ = ["chrome_trace"]

Event = dict[str, Any]

_NANOSECOND_US = 1e-3
_TIMELINE, _MEMORY = 1, 2
_FIRST_RANK = 1000


def chrome_trace(picture: TimelinePicture) -> dict[str, Any]:
    """A timeline as a trace: a thread a rank, one that walks the critical path, and counters.

    An overlapped pair is one event with both operations in its ``args``. The dictionary holds
    nothing but JSON's own types.
    """
    timeline = picture.timeline
    ranks = timeline.order.num_ranks
    events = _names(picture)
    events += _operations(picture)
    events += _tail(picture)
    events += _flows(picture)
    events += _counters(picture)
    events += _critical_path(picture)
    quantum = picture.quantum_ms
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "title": picture.title,
            "schedule": timeline.order.schedule,
            "ranks": ranks,
            "microbatches": timeline.order.num_microbatches,
            "makespan_ms": timeline.makespan * quantum,
            "step_ms": timeline.step * quantum,
            "span_ms": timeline.span * quantum,
            "bubble_fraction": timeline.bubble_fraction,
            "held_unit": picture.held_unit,
        },
    }


def _us(picture: TimelinePicture, quanta: int) -> float:
    """Microseconds; rounded where binary fractions would show, far below a nanosecond."""
    return round(quanta * picture.quantum_ms * 1e3, 9)


def _names(picture: TimelinePicture) -> list[Event]:
    """Names and places of processes and threads."""
    ranks = picture.timeline.order.num_ranks
    threads = [(_FIRST_RANK + rank, f"rank {rank}", rank + 1) for rank in range(ranks)]
    events = [
        _metadata("process_name", _TIMELINE, 0, {"name": picture.title}),
        _metadata("process_sort_index", _TIMELINE, 0, {"sort_index": 0}),
        _metadata("process_name", _MEMORY, 0, {"name": "held on the ranks"}),
        _metadata("process_sort_index", _MEMORY, 0, {"sort_index": 1}),
    ]
    for thread, name, place in [(_TIMELINE, "critical path", 0), *threads]:
        events += [
            _metadata("thread_name", _TIMELINE, thread, {"name": name}),
            _metadata("thread_sort_index", _TIMELINE, thread, {"sort_index": place}),
        ]
    return events


def _metadata(name: str, process: int, thread: int, args: Event) -> Event:
    return {"ph": "M", "name": name, "pid": process, "tid": thread, "ts": 0, "args": args}


def _complete(
    picture: TimelinePicture, name: str, category: str, thread: int, span: tuple[int, int],
    args: Event,
) -> Event:  # fmt: skip
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": _TIMELINE,
        "tid": thread,
        "ts": _us(picture, span[0]),
        "dur": _us(picture, span[1] - span[0]),
        "args": args,
    }


def _operations(picture: TimelinePicture) -> list[Event]:
    """Operations in each rank's order, each followed by its blocking send."""
    timeline = picture.timeline
    order = timeline.order
    critical = {at for first, last in critical_runs(timeline) for at in range(first, last + 1)}
    start, end = timeline.start.tolist(), timeline.end.tolist()
    ranks = order.rank.tolist()
    events = []
    slots = (*slots_of(timeline), sends_of(timeline))
    for first, last, hold in zip(*(column.tolist() for column in slots), strict=True):
        members = [first] if first == last else [first, last]
        name = " & ".join(order.name(at) for at in members)
        args: Event = {
            "critical": any(at in critical for at in members),
            f"held_{picture.held_unit}": float(picture.held[first]),
        }
        if len(members) == 1:
            args |= _facts(picture, first)
            category = KIND_WORDS[int(order.kind[first])]
        else:
            args["operations"] = [_facts(picture, at) for at in members]
            category = "overlapped pair"
        thread, span = _FIRST_RANK + ranks[first], (start[first], end[first])
        events.append(_complete(picture, name, category, thread, span, args))
        if hold:
            span = (end[first], end[first] + hold)
            events.append(_complete(picture, f"send {name}", "send", thread, span, {"of": name}))
    return events


def _facts(picture: TimelinePicture, at: int) -> Event:
    order = picture.timeline.order
    return {
        "kind": "FBIW"[int(order.kind[at])],
        "stage": int(order.stage[at]),
        "microbatch": int(order.microbatch[at]),
        "chunk": int(picture.chunk[at]),
    }


def _tail(picture: TimelinePicture) -> list[Event]:
    return [
        _complete(picture, span.name, "tail", _FIRST_RANK + span.rank, (span.start, span.end), {})
        for span in tail_of(picture.timeline)
    ]


def _flows(picture: TimelinePicture) -> list[Event]:
    """An arrow a send between ranks, from the operation that ends to the one that waits."""
    timeline = picture.timeline
    ranks = timeline.order.rank.tolist()
    start, end = timeline.start.tolist(), timeline.end.tolist()
    events = []
    for at in np.flatnonzero(timeline.need >= 0).tolist():
        source = int(timeline.need[at])
        # A flow belongs to the event that encloses its moment, whose end is outside it.
        begin, leave = _us(picture, start[source]), _us(picture, end[source])
        leave = max(begin, leave - min(_NANOSECOND_US, (leave - begin) / 2))
        common = {"cat": "transfer", "name": "transfer", "id": at, "pid": _TIMELINE}
        args = {"latency_us": _us(picture, int(timeline.lag[at]))}
        events += [
            {"ph": "s", "tid": _FIRST_RANK + ranks[source], "ts": leave, "args": args, **common},
            {
                "ph": "f",
                "bp": "e",
                "tid": _FIRST_RANK + ranks[at],
                "ts": _us(picture, start[at]),
                **common,
            },
        ]
    return events


def _counters(picture: TimelinePicture) -> list[Event]:
    """What every rank holds, where it changes, and its limit."""
    timeline = picture.timeline
    order = timeline.order
    first, _ = slots_of(timeline)
    events = []
    for rank in range(order.num_ranks):
        begin, end = order.rank_start[rank : rank + 2].tolist()
        mine = first[(first >= begin) & (first < end)]
        moments = [0]
        amounts = [0.0 if picture.fixed is None else float(picture.fixed[rank])]
        for at in mine.tolist():
            moments += [int(timeline.start[at]), int(timeline.end[at])]
            amounts += [float(picture.held[at]), float(picture.held_after[at])]
        shown: float | None = None
        for place, (moment, amount) in enumerate(zip(moments, amounts, strict=True)):
            # Where one operation ends as the next one starts, only what comes after lasts.
            passing = place + 1 < len(moments) and moments[place + 1] == moment
            if passing or amount == shown:
                continue
            shown = amount
            events.append(_counter(picture, rank, "held", moment, amount))
        limit = None if picture.limits is None else picture.limits[rank]
        if limit is not None and np.isfinite(limit):
            events += [
                _counter(picture, rank, "limit", moment, float(limit))
                for moment in (0, picture.total)
            ]
    return events


def _counter(picture: TimelinePicture, rank: int, name: str, moment: int, amount: float) -> Event:
    # Counters are sorted by name: as many digits for every rank.
    digits = len(str(picture.timeline.order.num_ranks - 1))
    return {
        "ph": "C",
        "name": f"rank {rank:0{digits}} {name}",
        "pid": _MEMORY,
        "tid": 0,
        "ts": _us(picture, moment),
        # Binary sums of decimal sizes: ten digits are more than anyone reads.
        "args": {picture.held_unit: round(amount, 10)},
    }


def _critical_path(picture: TimelinePicture) -> list[Event]:
    """The path as one sequence of events; gaps between them are transfers."""
    timeline = picture.timeline
    order = timeline.order
    events = []
    before = -1
    for at in timeline.critical_path():
        span = (int(timeline.start[at]), int(timeline.end[at]))
        rank = int(order.rank[at])
        name = f"{order.name(at)} on rank {rank}"
        args = {"rank": rank, **_facts(picture, at)}
        if span[0] >= before:
            category = "critical path"
            events.append(_complete(picture, name, category, _TIMELINE, span, args))
        before = span[1]
    return events
