"""What outlives a request: operations, idempotency keys, models sent once, plans.

`open_store` gives a `PlanStore`: in memory, in an SQLite file, or in a PostgreSQL database that
several replicas share. What a call returned is stored; nothing stored here is needed to compute
a plan, so that losing a store costs time and never an answer.
"""

from planner.service.store.errors import StoreError, StoreFullError, StoreUnavailableError
from planner.service.store.memory import MemoryCaps
from planner.service.store.opening import open_store
from planner.service.store.protocol import PlanStore
from planner.service.store.records import (
    BegunRequest,
    Creation,
    HeldRequest,
    ModelRecord,
    NewPlan,
    OperationRecord,
    OperationState,
    Page,
    PlanLabels,
    PlanRecord,
    RequestOutcome,
    StoreCounts,
)

__all__ = [
    "BegunRequest",
    "Creation",
    "HeldRequest",
    "MemoryCaps",
    "ModelRecord",
    "NewPlan",
    "OperationRecord",
    "OperationState",
    "Page",
    "PlanLabels",
    "PlanRecord",
    "PlanStore",
    "RequestOutcome",
    "StoreCounts",
    "StoreError",
    "StoreFullError",
    "StoreUnavailableError",
    "open_store",
]
