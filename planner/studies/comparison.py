"""Several schedules of the same ranks and work, to be looked at side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from planner.errors import InputError
from planner.schedule_rules import RULES, searched_chunks
from planner.specs import Schedule, Sends
from planner.studies.simulation import per_chunk, simulate_schedule
from planner.studies.simulation_result import Simulation
from planner.studies.simulation_times import Milliseconds, Placement, TimeOptions

__all__ = ["compare_schedules"]

_WORK = {"forward_ms": 1.0, "backward_ms": 2.0, "wgrad_ms": None, "pair_ms": None}


def compare_schedules(
    schedules: Sequence[Schedule],
    num_ranks: int,
    num_microbatches: int,
    *,
    chunks: int | None = None,
    group_size: int | None = None,
    times: TimeOptions | None = None,
    activation_limit: float | Sequence[float] | None = None,
    freed_at_i: float = 0.0,
    sends: Sends = Sends.OVERLAPPED,
    aim: Literal["span", "makespan"] = "span",
) -> tuple[list[Simulation], tuple[str, ...]]:
    """Simulate each schedule on the same work.

    The times are those of a rank's whole share of the model, one value or one a rank: where a
    schedule has V chunks a rank, each takes 1/V of them. (In :func:`simulate` they are those of
    a chunk, which would give such a schedule V times the work.)

    Parameters
    ----------
    chunks, group_size
        For the schedules that take them; chunks default to 2.

    Returns
    -------
    The simulations in the order given, and what a reader should know of how they compare.

    Raises
    ------
    InputError
        No schedule, one named twice, or what ``simulate`` refuses.
    """
    if not schedules:
        raise InputError("no schedules to compare are given", expected="names, as gpipe,1f1b")
    twice = [schedule for schedule in schedules if schedules.count(schedule) > 1]
    if twice:
        raise InputError("is compared with itself", value=twice[0].value, fix="name it once")
    options = times or TimeOptions()
    found = []
    split = []
    for schedule in schedules:
        rules = RULES[schedule]
        free = rules.chunks is None
        held = chunks if free and chunks is not None else searched_chunks(schedule)
        if held > 1:
            split.append(f"{rules.title} V={held}")
        grouped = free and schedule is not Schedule.LOOPED_BFS
        found.append(
            simulate_schedule(
                schedule,
                num_ranks,
                num_microbatches,
                chunks=held if free else None,
                group_size=group_size if grouped else None,
                times=_chunk_times(options, schedule, num_ranks, held),
                activation_limit=activation_limit,
                freed_at_i=freed_at_i,
                sends=sends,
                aim=aim,
                fitted=bool(options.given or activation_limit is not None),
            )
        )
    # Of the whole share that is said below, not chunk by chunk.
    said = [tuple(note for note in one.notes if note != per_chunk(one)) for one in found]
    found = [replace(one, notes=kept) for one, kept in zip(found, said, strict=True)]
    notes = []
    if split:
        notes.append(
            "times are those of a rank's whole share of the model: a chunk takes 1/V of them "
            f"({', '.join(split)})"
        )
    return found, tuple(notes)


def _chunk_times(
    options: TimeOptions, schedule: Schedule, num_ranks: int, chunks: int
) -> TimeOptions:
    """The times of a rank shared among its chunks."""
    if chunks == 1:
        return options
    home = Placement.of_schedule(schedule, num_ranks, chunks).home[:, 0].tolist()
    changed: dict[str, Any] = {}
    for name, default in _WORK.items():
        given: Milliseconds | None = getattr(options, name)
        if given is None:
            given = default
        if given is None:
            continue
        if isinstance(given, int | float | np.number):
            changed[name] = _shared(given, chunks)
        elif len(given) in (1, num_ranks):
            by_rank = [_shared(value, chunks) for value in given]
            changed[name] = [by_rank[rank if len(given) > 1 else 0] for rank in home]
        else:
            raise InputError(
                f"has {len(given)} values", file=name, expected=f"1 or {num_ranks}, one a rank"
            )
    return replace(options, **changed)


def _shared(value: Any, chunks: int) -> Any:
    # What is no number is left for the one who reads the times to refuse.
    return value / chunks if isinstance(value, int | float | np.number) else value
