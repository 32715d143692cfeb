"""Proven pipeline partitions and parallel layouts for distributed training.

>>> import planner
>>> sorted(name for name in planner.__all__ if name.islower())
['errors', 'evaluate', 'explain', 'load_cluster', 'load_model', 'partition', 'plan', \
'scaling_curve', 'simulate']
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
    from planner.search.incumbents import Incumbent
    from planner.specs import Cluster, Model, Training
    from planner.studies.scaling_curve import scaling_curve
    from planner.studies.simulation import simulate
    from planner.studies.simulation_result import Simulation

__all__ = [
    "Cluster",
    "Incumbent",
    "InputWarning",
    "Model",
    "Plan",
    "Simulation",
    "Training",
    "errors",
    "evaluate",
    "explain",
    "load_cluster",
    "load_model",
    "partition",
    "plan",
    "scaling_curve",
    "simulate",
]

_HOME = {
    "Cluster": "planner.specs",
    "Incumbent": "planner.search.incumbents",
    "Model": "planner.specs",
    "Training": "planner.specs",
    "Plan": "planner.plans",
    "scaling_curve": "planner.studies.scaling_curve",
    "Simulation": "planner.studies.simulation_result",
    "simulate": "planner.studies.simulation",
}


_FROM_API = [name for name in __all__ if name != "errors" and name not in _HOME]


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: ``import planner`` stays light."""
    if name.startswith("_") or name not in __all__:
        raise AttributeError(f"module 'planner' has no attribute {name!r}")
    if name in _HOME:
        globals()[name] = getattr(import_module(_HOME[name]), name)
    else:
        # All at once: importing the api also binds the module planner.explain to the name of the
        # function, which is what planner.explain is to mean.
        api = import_module("planner.api")
        globals().update({exported: getattr(api, exported) for exported in _FROM_API})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted(__all__)
