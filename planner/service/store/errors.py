"""What a store can fail with, beside `planner.errors.InputError` for what it cannot accept.

The tree::

    PlannerError
    └── StoreError                  reason "STORE_FAILED"        the database refused a statement
        ├── StoreUnavailableError   reason "STORE_UNAVAILABLE"   not reachable now: try again
        └── StoreFullError          reason "STORE_FULL"          a cap or the disk is reached
"""

from __future__ import annotations

from typing import ClassVar

from planner.errors import PlannerError

__all__ = ["StoreError", "StoreFullError", "StoreUnavailableError"]


class StoreError(PlannerError):
    """The store could not do what it was asked; nothing of the call was stored."""

    reason: ClassVar[str] = "STORE_FAILED"


class StoreUnavailableError(StoreError):
    """The store cannot be reached at the moment.

    The call may be repeated. Where the connection was lost while a change was being
    acknowledged, that change may have been stored.
    """

    reason: ClassVar[str] = "STORE_UNAVAILABLE"


class StoreFullError(StoreError):
    """The store holds as much as it may; what it holds is untouched."""

    reason: ClassVar[str] = "STORE_FULL"
