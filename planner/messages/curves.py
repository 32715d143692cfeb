"""Scaling curves as messages, and back."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from planner.curves import Allocation, CurvePoint, ScalingCurve, SizeRange
from planner.errors import InputError
from planner.messages.convert import from_message, read_fields, to_message
from planner.messages.fields import RequestError, at_field
from planner.v1 import curve_pb2

__all__ = [
    "allocations_of",
    "curve_message",
    "curve_of",
    "point_message",
    "point_of",
    "time_of",
]


def allocations_of(question: Any) -> list[Allocation] | SizeRange:
    """What a curve question asks about.

    Raises
    ------
    RequestError
        Nothing, or both a list and a range.
    """
    if question.HasField("size_range"):
        if question.allocations:
            raise RequestError("size_range", "contradicts allocations; give one of the two")
        with at_field("size_range"):
            return from_message(question.size_range, SizeRange)
    if not question.allocations:
        raise RequestError("allocations", "is empty; expected allocations or a size_range")
    found = []
    for index, message in enumerate(question.allocations):
        with at_field(f"allocations[{index}]"):
            found.append(from_message(message, Allocation))
    return found


_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
"""``date-time`` of RFC 3339, section 5.6; which days and hours there are is another question."""


def time_of(text: str) -> str:
    """A point in time as RFC 3339 writes it, unchanged.

    Raises
    ------
    InputError
        Another spelling, no time zone, or a day or hour that does not exist.

    Examples
    --------
    >>> time_of("2027-01-01T00:00:00Z")
    '2027-01-01T00:00:00Z'
    """
    problem = InputError(
        "is no time of RFC 3339", value=text[:80], expected="as 2027-01-31T12:00:00Z"
    )
    if not _TIME.fullmatch(text):
        raise problem
    leap = text[17:19] == "60"  # a leap second, which datetime does not know
    try:
        datetime.fromisoformat(f"{text[:17]}{'59' if leap else text[17:19]}")
        zone = text[19:].lstrip(".0123456789").upper()
        datetime.fromisoformat(f"2000-01-01T00:00:00{zone}")
    except ValueError:
        raise problem from None
    return text


def point_message(point: CurvePoint) -> curve_pb2.CurvePoint:
    """A point as a message; :func:`point_of` gives back an equal one."""
    return to_message(point, curve_pb2.CurvePoint())


def point_of(message: curve_pb2.CurvePoint) -> CurvePoint:
    """A point from its message."""
    return from_message(message, CurvePoint)


def curve_message(curve: ScalingCurve) -> curve_pb2.ScalingCurve:
    """A curve as a message; its revisions travel beside it."""
    return to_message(curve, curve_pb2.ScalingCurve())


def curve_of(message: curve_pb2.ScalingCurve, **revisions: str) -> ScalingCurve:
    """A curve from its message.

    Parameters
    ----------
    revisions
        ``model_revision``, ``calibration_revision`` and ``planner_version`` of the answer.
    """
    return ScalingCurve(**{"points": (), **read_fields(message, ScalingCurve), **revisions})
