"""Keyword arguments and stored questions as validated specs, with one clear error each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from pydantic import ValidationError

from planner.deadlines import Deadline
from planner.errors import InputError, PlanFileError
from planner.formats.plan_file import plain_problem
from planner.formats.spelling import did_you_mean
from planner.schedule_rules import AUTOMATIC
from planner.search.run import SearchLimits
from planner.specs import Cluster, Limits, Objective, PartitionSetup, Pins, Schedule, Training

__all__ = ["deadline_of", "objective_of", "schedules_of", "search_limits", "spec_of", "stored_spec"]

Spec = TypeVar("Spec", Training, PartitionSetup, Limits, Pins)
Stored = TypeVar("Stored", Training, PartitionSetup, Cluster)


def spec_of(kind: type[Spec], **fields: Any) -> Spec:
    """A spec from keyword arguments.

    Raises
    ------
    InputError
        The first field that does not validate, in plain words.
    """
    try:
        return kind(**fields)
    except ValidationError as error:
        raise InputError(f"option {plain_problem(error)}") from None


def stored_spec(kind: type[Stored], inputs: dict[str, str], key: str) -> Stored:
    """A spec that a plan carries as JSON in its ``inputs``.

    Raises
    ------
    PlanFileError
        It is missing or does not validate.
    """
    try:
        return kind.model_validate_json(inputs[key])
    except KeyError:
        raise PlanFileError(f"inputs.{key} is missing", fix="make the plan again") from None
    except ValidationError as error:
        raise PlanFileError(
            f"inputs.{key}: {plain_problem(error)}", fix="make the plan again"
        ) from None


def objective_of(value: Objective | str) -> Objective:
    """An objective by name.

    Raises
    ------
    InputError
        No such objective; the message lists them.
    """
    try:
        return Objective(value)
    except ValueError:
        known = ", ".join(member.value for member in Objective)
        raise InputError("is no objective", value=value, expected=known) from None


def schedules_of(value: object) -> tuple[Schedule, ...]:
    """Schedules to choose from: ``auto``, a comma list, or several names.

    ``auto`` is every synchronous schedule that stores the parameters once.

    Raises
    ------
    InputError
        An unknown name; the nearest one is suggested.
    """
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, Iterable):
        names = [names]
    found: list[Schedule] = []
    for name in names:
        word = str(name).strip().lower()
        if word == "auto":
            found += [schedule for schedule in AUTOMATIC if schedule not in found]
            continue
        try:
            schedule = Schedule(word)
        except ValueError:
            known = [member.value for member in Schedule]
            hint = did_you_mean(word, known)
            raise InputError(
                "is no schedule",
                value=word,
                expected=f"auto or one of {', '.join(known)}",
                fix=hint,
            ) from None
        if schedule not in found:
            found.append(schedule)
    return tuple(found)


def search_limits(work_limit: int | None) -> SearchLimits:
    """What a search may use beside time."""
    checked = spec_of(Limits, work=work_limit)
    return SearchLimits() if checked.work is None else SearchLimits(nodes_per_layout=checked.work)


def deadline_of(time_limit_s: float | None, stop: Callable[[], bool] | None) -> Deadline:
    """A deadline whose clock starts now."""
    checked = spec_of(Limits, wall_s=time_limit_s)
    at = None if checked.wall_s is None else time.monotonic() + checked.wall_s
    return Deadline(at, stop)
