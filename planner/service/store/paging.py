"""Page tokens and the keys that every kind of store accepts alike."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
from collections.abc import Sequence

from planner.errors import InputError
from planner.service.store.records import NewPlan

__all__ = [
    "check_keys",
    "check_plan",
    "checked_page_size",
    "read_page_token",
    "write_page_token",
]

MAX_PAGE_SIZE = 1000
MAX_KEY_BYTES = 800
"""Three of them fit a PostgreSQL index entry (2704 bytes)."""
MAX_INTEGER = 2**63 - 1


def check_keys(**keys: str | None) -> None:
    """Refuse a key that some database could not hold or compare: the same in every store.

    Examples
    --------
    >>> check_keys(caller="a" * 801)
    Traceback (most recent call last):
    planner.errors.InputError: caller has 801 bytes; expected at most 800
    """
    for what, value in keys.items():
        if value is not None:
            _check_key(what, value)


def _check_key(what: str, value: str) -> None:
    try:
        encoded = value.encode()
    except UnicodeEncodeError:
        raise InputError(f"{what} is no Unicode text") from None
    if b"\0" in encoded:
        raise InputError(f"{what} contains a NUL character")
    if len(encoded) > MAX_KEY_BYTES:
        raise InputError(f"{what} has {len(encoded)} bytes", expected=f"at most {MAX_KEY_BYTES}")


def check_plan(plan: NewPlan) -> None:
    """Refuse a plan whose id, caller or labels cannot be stored."""
    labels = plan.labels
    check_keys(plan_id=plan.plan_id, caller=plan.caller)
    check_keys(model=labels.model, cluster=labels.cluster, status=labels.status)
    if not 0 <= labels.num_gpus <= MAX_INTEGER:
        raise InputError("num_gpus is out of range", value=labels.num_gpus)
    if labels.step_time_ms is not None and not math.isfinite(labels.step_time_ms):
        raise InputError("step_time_ms is not finite", value=labels.step_time_ms)


def checked_page_size(page_size: int) -> int:
    """Return the page size to use: large ones are cut, those below 1 refused."""
    if page_size < 1:
        raise InputError("page_size is too small", value=page_size, expected="at least 1")
    return min(page_size, MAX_PAGE_SIZE)


def write_page_token(filters: Sequence[str | None], last: Sequence[str | float]) -> str:
    """Return the opaque token of the page after the record with the sort key ``last``.

    Examples
    --------
    >>> token = write_page_token(["plans", None], [1.5, "b", "me"])
    >>> read_page_token(["plans", None], token, 3)
    (1.5, 'b', 'me')
    """
    text = json.dumps([_fingerprint(filters), *last], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_page_token(
    filters: Sequence[str | None], token: str, length: int
) -> tuple[float | str, ...] | None:
    """Return the sort key that a page starts after, or None for the first page.

    A sort key is one instant and ``length - 1`` names. A token that is damaged or was made for
    other filters is refused.
    """
    if not token:
        return None
    refusal = InputError(
        "page_token is not one of this listing", fix="ask for the first page again"
    )
    try:
        padded = token.encode("ascii") + b"=" * (-len(token) % 4)
        found = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (UnicodeError, ValueError, binascii.Error, RecursionError):
        raise refusal from None
    if not (isinstance(found, list) and len(found) == length + 1):
        raise refusal
    fingerprint, instant, *names = found
    if (
        fingerprint != _fingerprint(filters)
        or not isinstance(instant, float)
        or not math.isfinite(instant)
        or not all(isinstance(name, str) for name in names)
    ):
        raise refusal
    for name in names:
        check_keys(page_token=name)
    return (instant, *names)


def _fingerprint(filters: Sequence[str | None]) -> str:
    return hashlib.sha256(json.dumps(list(filters)).encode()).hexdigest()[:12]
