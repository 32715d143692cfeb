"""From a cut of a priced chain to the plan a reader sees: stages, step terms, groups, origins.

Nothing is decided here. Solvers hand in cuts, the judge hands in a plan's own cuts, and both get
the same figures from the same prices.
"""

from planner.assembly.plan import (
    assemble_plan,
    least_memory,
    slowest_stage,
    step_breakdown,
    unfitting_plan,
)

__all__ = [
    "assemble_plan",
    "least_memory",
    "slowest_stage",
    "step_breakdown",
    "unfitting_plan",
]
