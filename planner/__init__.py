"""Proven pipeline partitions and parallel layouts for distributed training.

>>> import planner
>>> sorted(name for name in planner.__all__ if name.islower())
['errors', 'evaluate', 'explain', 'load_cluster', 'load_model', 'partition', 'plan']
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from planner import errors

if TYPE_CHECKING:
    from planner.api import (
        InputWarning,
        evaluate,
        explain,
        load_cluster,
        load_model,
        partition,
        plan,
    )
    from planner.plans import Plan
    from planner.specs import Cluster, Model, Training

__all__ = [
    "Cluster",
    "InputWarning",
    "Model",
    "Plan",
    "Training",
    "errors",
    "evaluate",
    "explain",
    "load_cluster",
    "load_model",
    "partition",
    "plan",
]

_HOME = {
    "Cluster": "planner.specs",
    "Model": "planner.specs",
    "Training": "planner.specs",
    "Plan": "planner.plans",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: ``import planner`` stays light."""
    if name.startswith("_") or name not in __all__:
        raise AttributeError(f"module 'planner' has no attribute {name!r}")
    value = getattr(import_module(_HOME.get(name, "planner.api")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
