"""Best-first search over layouts, stopped by the proven bound.

Each layout enters a heap with its vectorised bound. Popped, it first gets its exact largest
stage (``solvers.chain``), which sharpens the bound, and goes back; popped again, its step time
is minimised over all cuts (``solvers.step_time``) with simulation. The search ends when the
smallest bound left cannot beat what is held. Where schedules with weak bounds are among those
asked for, the smallest closed-form estimate comes first instead, and layouts are set aside once
their bound cannot beat what is held. Work is grouped into waves of fixed size and results are
taken in order, so the answer does not depend on workers or on completion order.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.cost.pricing import Pricer
from planner.cost.stage_table import ChainProblem
from planner.deadlines import NEVER, OutOfTimeError, in_force, late, within
from planner.errors import InputError, LayoutError, PinError
from planner.plans import Layout
from planner.schedules.grouping import cannot_fit
from planner.schedules.simulate import RECURRENT
from planner.schedules.step import StepEvaluation, evaluate_cuts
from planner.search.bounding import SpaceBounds, bound_layouts, no_bounds, refine_bound
from planner.search.incumbents import Reporter, Watcher
from planner.search.results import (
    LayoutResult,
    SearchLimits,
    SearchResult,
    least_bottleneck_of,
    measured,
)
from planner.search.space import LayoutSpace
from planner.search.workers import Task, solutions_of
from planner.solvers.chain import BottleneckSolution, solve_bottleneck
from planner.solvers.step_time import StepSolution
from planner.specs import Objective

__all__ = ["LayoutResult", "SearchLimits", "SearchResult", "search_layouts"]

I64 = NDArray[np.int64]

_WAVES = (1, 1, 2, 4)
"""Layouts solved side by side: few at first, since the first ones found leave out most others."""
_FIRST_NODES = 300
"""Branch-and-bound nodes of the first attempt to close a layout that may hold the optimum."""
_MOST_IMPROVED = 12
"""Layouts under order-simulated schedules whose cuts are improved, best first: their bounds seldom
close, so that trying all of them harder would take minutes and prove little."""


def search_layouts(
    pricer: Pricer,
    space: LayoutSpace,
    *,
    objective: Objective = Objective.STEP_TIME,
    keep: int = 1,
    limits: SearchLimits | None = None,
    executor: Executor | None = None,
    exhaustive: bool = False,
    progress: Callable[[str], None] | None = None,
    on_incumbent: Watcher | None = None,
    warm_start: tuple[Layout, tuple[int, ...]] | None = None,
    beat: int | None = None,
) -> SearchResult:
    """The best layouts of a space.

    Parameters
    ----------
    pricer, space
        The question and its legal layouts.
    objective
        What is minimised; for ``fewest-gpus`` the space is searched by GPU count, ascending.
    keep
        How many of the best layouts are found exactly (1 for the plan, more for runners-up).
    limits
        Work; None means the defaults. The deadline in force ends the search in any case.
    executor
        Any ``concurrent.futures`` executor; None runs in this thread.
    exhaustive
        Solve every layout; nothing is pruned (a test of the pruning).
    on_incumbent
        Told of every better value and every better bound.
    warm_start
        A layout and its cuts to fall back on while nothing better is found.
    beat
        A value of the objective: layouts that cannot undercut it are left alone. What is found
        may still reach it.

    Raises
    ------
    OutOfTimeError
        The deadline in force passed before the layouts had their first bounds, and there is no
        warm start that is legal here.
    """
    limits = limits or SearchLimits()
    try:
        bounds = bound_layouts(pricer, space)
    except OutOfTimeError:
        if warm_start is None or space.index(warm_start[0]) is None:
            raise
        bounds = no_bounds(space)
    state = _Search(
        pricer, space, bounds, objective, keep, limits, executor, exhaustive, progress, on_incumbent
    )
    state.beat = beat
    if warm_start is not None:
        state.start_from(*warm_start)
    with suppress(OutOfTimeError):  # wherever it is raised: what was found before stands
        if objective is Objective.FEWEST_GPUS:
            for count in np.unique(space.num_gpus).tolist():
                state.run(np.flatnonzero(space.num_gpus == count))
                if state.result.solved or late():
                    break
                if progress is not None:
                    progress(f"{count} GPUs are too few")
        else:
            state.run(np.arange(len(space)))
    return state.finish()


class _Search:
    """State of one search; ``search_layouts`` is its face."""

    def __init__(
        self,
        pricer: Pricer,
        space: LayoutSpace,
        bounds: SpaceBounds,
        objective: Objective,
        keep: int,
        limits: SearchLimits,
        executor: Executor | None,
        exhaustive: bool,
        progress: Callable[[str], None] | None,
        on_incumbent: Watcher | None,
    ) -> None:
        self.progress = progress
        self.pricer = pricer
        self.space = space
        self.bounds = bounds
        self.objective = objective
        self.keep = keep
        self.limits = limits
        self.executor = executor
        self.exhaustive = exhaustive
        self.problems: dict[int, ChainProblem] = {}
        self.bottlenecks: dict[int, BottleneckSolution] = {}
        # What the objective of each layout cannot beat; object: GPU time may exceed 64 bits.
        by_cost = objective is Objective.TOKENS_PER_DOLLAR
        self.closed = 1 << (126 if by_cost else 62)  # the bound of a layout that does not fit
        kind = object if by_cost else np.int64
        self.current: NDArray[Any] = np.full(len(space), self.closed, kind)
        self.entered = np.zeros(len(space), np.bool_)
        self.warm: LayoutResult | None = None
        self.reporter = None if on_incumbent is None else Reporter(on_incumbent, len(space))
        self.beat: int | None = None
        self.improved: set[int] = set()
        self.ordered: list[int] | None = None  # values that are held, once somebody asks
        self.by_bound = all(schedule in RECURRENT for schedule in space.schedules)
        self.result = SearchResult([], 0, False, None, space, bounds)

    # --- the loop -----------------------------------------------------------------------------

    def run(self, members: I64) -> None:
        """Search some layouts."""
        short = self.bounds.memory_short[members] > 0
        self.result.no_fit.update(dict.fromkeys(members[short].tolist(), "memory"))
        fit = members[~short]
        self.current[members[short]] = self.closed
        self.current[fit] = self._first_bounds(fit)
        self.entered[members] = True
        self._report()
        priorities = self._priorities(fit).tolist()
        heap = [
            (priority, 0, index) for priority, index in zip(priorities, fit.tolist(), strict=True)
        ]
        heapq.heapify(heap)
        wave: list[int] = []
        sizes = chain(_WAVES, repeat(_WAVES[-1]))
        size = next(sizes)
        while heap or wave:
            if late():
                break
            self._set_hopeless_aside(heap)
            if heap:
                priority, visits, index = heapq.heappop(heap)
                if visits == 0:
                    sharper = self._sharpen(index)
                    if sharper is not None:
                        later = max(priority, sharper) if self.by_bound else priority
                        heapq.heappush(heap, (later, 1, index))
                    continue
                wave.append(index)
                self._set_hopeless_aside(heap)
                if len(wave) < size and heap:
                    continue
            if not wave:
                break
            self._solve_wave(wave, 0)
            wave, size = [], next(sizes)
            self._say()
        self._close_gaps()

    def _first_bounds(self, members: I64) -> NDArray[Any]:
        """Bounds of the objective from totals alone."""
        if self.objective is Objective.BOTTLENECK:
            return self.bounds.largest_stage[members]
        bounds = self.bounds.step[members]
        if self.objective is Objective.TOKENS_PER_DOLLAR:
            scaled: NDArray[Any] = bounds.astype(object) * self.space.num_gpus[members]
            return scaled
        return bounds

    def _priorities(self, members: I64) -> NDArray[Any]:
        """What is looked at first: the smallest bound where bounds are tight; else the smallest
        estimate, since a weak bound says little about what a layout comes to."""
        if self.by_bound or self.objective is Objective.BOTTLENECK:
            return self._first_bounds(members)
        estimates = self.bounds.estimate[members]
        if self.objective is Objective.TOKENS_PER_DOLLAR:
            return estimates * self.space.num_gpus[members]
        return estimates

    def _set_hopeless_aside(self, heap: list[tuple[float, int, int]]) -> None:
        """Layouts whose bound cannot beat what is held leave the heap's top."""
        if not (heap and self._hopeless(int(self.current[heap[0][2]]))):
            return
        if self.by_bound and self.objective is not Objective.BOTTLENECK:
            # What stands behind the smallest bound cannot beat it either.
            heap.clear()
        while heap and self._hopeless(int(self.current[heap[0][2]])):
            heapq.heappop(heap)

    def _report(self) -> None:
        """Tell what is held, to whom it may concern."""
        if self.reporter is None:
            return
        found = list(self.result.solved.values())
        if self.warm is not None and self.objective is not Objective.FEWEST_GPUS:
            found.append(self.warm)
        best = min(found, key=lambda one: one.rank(self.objective), default=None)
        value = None if best is None else best.value(self.objective)
        bound = int(self.current[self.entered].min(initial=self.closed))
        done = self.current[self.entered] >= (self.closed if value is None else value)
        # The bound of fewest-gpus is of one count of GPUs: nothing before that count is known.
        proven = bound < self.closed and (
            value is not None or self.objective is not Objective.FEWEST_GPUS
        )
        ms = self.pricer.quantum.ms
        self.reporter.tell(
            None if value is None else ms(value),
            ms(bound) if proven else None,
            None if best is None else best.layout,
            int(done.sum()),
        )

    def start_from(self, layout: Layout, cuts: tuple[int, ...]) -> None:
        """Hold a known plan, where it is legal here, until something better is found.

        It prunes nothing, so that what is found does not depend on it.
        """
        index = self.space.index(layout)
        if index is None:
            return
        try:
            with within(NEVER):
                evaluated = evaluate_cuts(self.pricer.problem(layout), cuts)
        except InputError:
            return
        if evaluated is not None:
            bound = int(self.bounds.step[index])
            self.warm = measured(index, layout, evaluated, evaluated.value, bound)

    def _is_behind(self, known: LayoutResult) -> bool:
        """Whether everything found is worth less than a known plan."""
        values = [found.rank(self.objective)[:1] for found in self.result.solved.values()]
        return not values or known.rank(self.objective)[:1] < min(values)

    def _say(self) -> None:
        if self.progress is not None:
            values = [found.step for found in self.result.solved.values()]
            best = f", best so far {self.pricer.quantum.ms(min(values)):.1f} ms" if values else ""
            self.progress(f"{self.result.cut_solves} layouts solved{best}")

    def _hopeless(self, bound: int) -> bool:
        goal = self._goal()
        return goal is not None and bound >= goal

    def _goal(self) -> int | None:
        """The value that a layout has to undercut; None where each is solved."""
        if self.exhaustive or len(self.result.solved) < self.keep:
            return self.beat
        held = self._threshold(self.keep)
        return held if self.beat is None else min(held, self.beat)

    def _threshold(self, place: int) -> int:
        if self.ordered is None:
            solved = self.result.solved.values()
            self.ordered = sorted(found.value(self.objective) for found in solved)
        return self.ordered[min(place, len(self.ordered)) - 1]

    def _objective_bound(self, index: int, step_bound: int) -> int:
        if self.objective is Objective.BOTTLENECK:
            return int(self.bounds.largest_stage[index])
        if self.objective is Objective.TOKENS_PER_DOLLAR:
            return step_bound * int(self.space.num_gpus[index])
        return step_bound

    def _sharpen(self, index: int) -> int | None:
        """Second visit's bound: the exact largest stage; None where nothing fits."""
        layout = self.space.layout(index)
        try:
            problem = self.pricer.problem(layout)
        except (PinError, LayoutError) as error:
            self.result.pin_errors[index] = str(error)
            self.current[index] = self.closed
            return None
        try:
            solution = solve_bottleneck(problem, kernel="loaded")
        except OutOfTimeError:
            return None
        self.result.bottleneck_solves += 1
        if solution is None:
            self._close(index)
            return None
        self.result.probes += solution.probes
        self.problems[index] = problem
        self.bottlenecks[index] = solution
        if self.objective is Objective.BOTTLENECK:
            return int(self.bounds.largest_stage[index]) if problem.is_grouped else solution.bound
        edges = problem.edge_forward + problem.edge_backward
        widest = int(edges.max(initial=0)) * (2 if layout.pp > 2 else 1)
        refined = refine_bound(self.bounds, self.space, index, solution.bound - widest)
        self.result.refined[index] = refined
        self.current[index] = self._objective_bound(index, refined)
        return int(self.current[index])

    def _close(self, index: int) -> None:
        """No cut of the layout fits."""
        self.result.no_fit[index] = "memory"
        self.current[index] = self.closed

    # --- solving ------------------------------------------------------------------------------

    def _solve_wave(self, wave: list[int], node_limit: int) -> None:
        tasks = [self._task(index, node_limit) for index in wave]
        for index, solution in zip(wave, solutions_of(tasks, self.executor), strict=False):
            self._take(index, solution)
            self._report()

    def _task(self, index: int, node_limit: int) -> Task:
        goal = self._goal()
        upper: int | None = None
        if goal is not None:
            if self.objective is Objective.TOKENS_PER_DOLLAR:
                upper = -(-goal // int(self.space.num_gpus[index]))
            elif self.objective is not Objective.BOTTLENECK:
                upper = goal
        return (
            self.problems[index],
            self.bottlenecks[index].cuts,
            upper,
            node_limit,
            in_force(),
        )

    def _take(self, index: int, solution: StepSolution) -> None:
        self.result.cut_solves += 1
        self.result.simulations += solution.simulations
        self.result.nodes += solution.nodes
        bound = max(solution.bound, self.result.refined.get(index, 0))
        self.result.refined[index] = bound
        found: StepSolution | StepEvaluation | None = solution
        if self.objective is Objective.BOTTLENECK:
            found = least_bottleneck_of(
                self.problems[index], (self.bottlenecks[index].cuts, solution.cuts)
            )
        if found is None or found.cuts is None or found.value is None:
            self.current[index] = self._objective_bound(index, bound)
            if self.problems[index].is_grouped and cannot_fit(self.problems[index]):
                self._close(index)
            return
        self.ordered = None
        layout, value = self.space.layout(index), found.value
        result = measured(index, layout, found, value, min(bound, value))
        known = self.result.solved.get(index)
        if known is None or result.rank(self.objective) < known.rank(self.objective):
            self.result.solved[index] = result
        elif bound > known.step_bound:
            self.result.solved[index] = replace(known, step_bound=min(bound, known.step))
        self.current[index] = self._proven_of(index)

    def _proven_of(self, index: int) -> int:
        """The bound of a layout that was solved."""
        if self.objective is not Objective.BOTTLENECK:
            return self._objective_bound(index, self.result.solved[index].step_bound)
        exact = 0 if self.problems[index].is_grouped else self.bottlenecks[index].bound
        return max(exact, int(self.bounds.largest_stage[index]))

    def _close_gaps(self) -> None:
        """Branch on layouts whose bound undercuts what is held: all nodes for the best layout,
        a first attempt for runners-up."""
        if self.objective is Objective.BOTTLENECK:
            return
        most = self.limits.nodes_per_layout
        self._look_for_room()
        if self.exhaustive:
            self._branch(None, min(most, _FIRST_NODES))
        self._branch(1, most)
        if self.keep > 1:
            self._branch(self.keep, min(most, _FIRST_NODES))

    def _look_for_room(self) -> None:
        """Search harder for cuts that fit on promising layouts where ranks hold several stages,
        and where a short look found none."""
        crowded = [
            index
            for index, problem in self.problems.items()
            if problem.is_grouped
            and index not in self.result.solved
            and index not in self.result.no_fit
            and not self._hopeless(int(self.current[index]))
        ]
        crowded.sort(key=lambda index: (self.bounds.estimate[index], index))
        for index in crowded[:_MOST_IMPROVED]:
            if late():
                return
            self._solve_wave([index], _FIRST_NODES)

    def _branch(self, place: int | None, most_nodes: int) -> None:
        """Solve again, with ever more nodes, what may still beat the value at a place."""
        node_limit = 0
        while self.result.solved and node_limit < most_nodes:
            node_limit = min(max(_FIRST_NODES, node_limit * 8), most_nodes)
            undecided = [
                index
                for index in sorted(self.problems)
                if index in self.result.refined
                and index not in self.result.no_fit
                and self._may_beat(index, place)
            ]
            undecided = self._worth_improving(undecided)
            if not undecided or late():
                break
            for start in range(0, len(undecided), _WAVES[-1]):
                self._solve_wave(undecided[start : start + _WAVES[-1]], node_limit)

    def _worth_improving(self, undecided: list[int]) -> list[int]:
        """Leave out order-simulated layouts that were tried harder already, or are not among the
        best ones held."""
        others = [index for index in undecided if not self._is_recurrent(index)]
        if not others:
            return undecided
        held = sorted(
            (index for index in others if index in self.result.solved),
            key=lambda index: self.result.solved[index].rank(self.objective),
        )
        chosen = set(held[: max(0, _MOST_IMPROVED - len(self.improved))]) - self.improved
        self.improved |= chosen
        return [index for index in undecided if self._is_recurrent(index) or index in chosen]

    def _is_recurrent(self, index: int) -> bool:
        return self.problems[index].schedule in RECURRENT

    def _may_beat(self, index: int, place: int | None) -> bool:
        bound = self._objective_bound(index, self.result.refined[index])
        known = self.result.solved.get(index)
        if known is not None and bound >= known.value(self.objective):
            return False
        return place is None or bound < self._threshold(place)

    # --- the answer ---------------------------------------------------------------------------

    def finish(self) -> SearchResult:
        """Rank what was found and state what is proven."""
        result = self.result
        result.interrupted = late()
        if self.warm is not None and self._is_behind(self.warm):
            result.solved[self.warm.index] = self.warm
        result.ranking = sorted(
            result.solved.values(), key=lambda found: found.rank(self.objective)
        )
        if not result.ranking:
            return result
        best = result.ranking[0].value(self.objective)
        result.bound = min(best, int(self.current[self.entered].min(initial=self.closed)))
        result.proven = result.bound >= best
        self._report()
        return result
