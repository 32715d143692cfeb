"""What a search may use, and what it finds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from planner.cost.stage_table import ChainProblem
from planner.deadlines import OutOfTimeError
from planner.plans import Layout
from planner.schedules.step import StepEvaluation, evaluate_cuts
from planner.search.bounding import SpaceBounds
from planner.search.space import LayoutSpace
from planner.solvers.step_time import StepSolution
from planner.specs import Objective

__all__ = ["LayoutResult", "SearchLimits", "SearchResult", "least_bottleneck_of", "measured"]


@dataclass(frozen=True)
class SearchLimits:
    """What the search may use, beside the time until the deadline in force."""

    nodes_per_layout: int = 40_000
    """Branch-and-bound nodes for a layout whose bound is still open at the end."""


@dataclass(frozen=True)
class LayoutResult:
    """The best cut found for one layout."""

    index: int
    layout: Layout
    cuts: tuple[int, ...]
    step: int
    step_bound: int
    bottleneck: int
    smallest_stage: int
    peak_bytes: int

    def value(self, objective: Objective) -> int:
        """The objective as an integer to be minimised."""
        if objective is Objective.BOTTLENECK:
            return self.bottleneck
        if objective is Objective.TOKENS_PER_DOLLAR:
            return self.step * self.layout.num_gpus
        return self.step

    def rank(self, objective: Objective) -> tuple[int, ...]:
        """Sort key: the objective, then the tie-breaks in their documented order."""
        other = self.step if objective is Objective.BOTTLENECK else self.bottleneck
        lead = (self.layout.num_gpus,) if objective is Objective.FEWEST_GPUS else ()
        return (
            *lead,
            self.value(objective),
            other,
            -self.smallest_stage,
            self.peak_bytes,
            self.index,
        )


def measured(
    index: int,
    layout: Layout,
    evaluated: StepSolution | StepEvaluation,
    step: int,
    bound: int,
) -> LayoutResult:
    """What ranks a cut, from its solution or evaluation."""
    lightest = (
        evaluated.lightest if isinstance(evaluated, StepSolution) else evaluated.lightest_stage
    )
    assert evaluated.bottleneck is not None
    cuts = tuple(evaluated.cuts or ())
    return LayoutResult(
        index, layout, cuts, step, bound, evaluated.bottleneck, lightest, evaluated.peak_bytes
    )


def least_bottleneck_of(
    problem: ChainProblem, candidates: Iterable[Sequence[int] | None]
) -> StepEvaluation | None:
    """The best of some cuts for the bottleneck objective: least bottleneck, then step."""
    options = []
    with suppress(OutOfTimeError):
        for cuts in candidates:
            evaluated = None if cuts is None else evaluate_cuts(problem, cuts)
            if evaluated is not None:
                options.append(evaluated)
    return min(options, key=lambda e: (e.bottleneck, e.value, e.cuts), default=None)


@dataclass
class SearchResult:
    """What a search found, in rank order, with the proof of its first entry."""

    ranking: list[LayoutResult]
    bound: int
    """Proven lower bound of the objective value over the whole space."""
    proven: bool
    interrupted: str | None
    """Why the deadline cut the search short (``Deadline.passed``); None where it did not."""
    space: LayoutSpace
    bounds: SpaceBounds
    no_fit: dict[int, str] = field(default_factory=dict)
    """Layouts that cannot hold the model, and why in a word."""
    pin_errors: dict[int, str] = field(default_factory=dict)
    solved: dict[int, LayoutResult] = field(default_factory=dict)
    refined: dict[int, int] = field(default_factory=dict)
    """Sharpened step bounds of layouts that were looked at."""
    simulations: int = 0
    nodes: int = 0
    probes: int = 0
    cut_solves: int = 0
    bottleneck_solves: int = 0
