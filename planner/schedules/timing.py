"""The timeline of one priced cut under any schedule: recurrence, order simulation or period."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from planner.cost.stage_table import ChainProblem
from planner.deadlines import poll
from planner.operations import Order
from planner.schedule_rules import RULES
from planner.schedules.closed_forms import steady_period
from planner.schedules.grouping import order_of_problem
from planner.schedules.memory_curve import peak_by_rank
from planner.schedules.orders import build_order
from planner.schedules.simulate import Timing, effective_times, simulate
from planner.schedules.timeline import StageTimes, run_order
from planner.specs import Schedule, Sends

__all__ = ["StageCosts", "automatic_order_of", "order_timing", "timing_of"]


@dataclass(frozen=True)
class StageCosts:
    """What the stages of one cut cost a micro-batch, in quanta; S entries, S-1 for the edges."""

    forward: tuple[int, ...]
    input_gradient: tuple[int, ...]
    """With what recompute adds."""
    weight_gradient: tuple[int, ...]
    edge_forward: tuple[int, ...]
    edge_backward: tuple[int, ...]
    mirrored_forward: tuple[int, ...] | None = None
    mirrored_backward: tuple[int, ...] | None = None

    @cached_property
    def backward(self) -> tuple[int, ...]:
        """Full backward, I + W."""
        return tuple(i + w for i, w in zip(self.input_gradient, self.weight_gradient, strict=True))

    def times(self) -> StageTimes:
        """As the simulator of orders takes them."""
        mirrored = self.mirrored_forward, self.mirrored_backward
        return StageTimes(
            forward=np.array(self.forward, np.int64),
            input_gradient=np.array(self.input_gradient, np.int64),
            weight_gradient=np.array(self.weight_gradient, np.int64),
            edge_forward=np.array(self.edge_forward, np.int64),
            edge_backward=np.array(self.edge_backward, np.int64),
            mirrored_forward=None if mirrored[0] is None else np.array(mirrored[0], np.int64),
            mirrored_backward=None if mirrored[1] is None else np.array(mirrored[1], np.int64),
        )


def timing_of(
    problem: ChainProblem, costs: StageCosts, activation_limit: Sequence[int] | None = None
) -> tuple[Timing, tuple[int, ...] | None]:
    """When each rank works, and for ``zb-auto`` how many micro-batches it really holds.

    GPipe and 1F1B take the exact recurrence; asynchronous schedules never drain, so that a step
    is M times their steady period; every other schedule is simulated by its order.

    Parameters
    ----------
    activation_limit
        Micro-batches each rank has memory for (``zb-auto``).
    """
    schedule, count = problem.schedule, problem.num_microbatches
    if schedule in (Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.NAIVE):
        form = Schedule.ONE_F_ONE_B if schedule is Schedule.ONE_F_ONE_B else Schedule.GPIPE
        edges = (costs.edge_forward, costs.edge_backward)
        return simulate(form, costs.forward, costs.backward, *edges, count, problem.sends), None
    if RULES[schedule].asynchronous:
        return _steady(problem, costs), None
    if schedule is Schedule.ZB_AUTO:
        order = automatic_order_of(problem, costs, activation_limit)
        poll()
        held = tuple(int(peak) for peak in np.rint(peak_by_rank(order)).tolist())
        return order_timing(problem, costs, order), held
    return order_timing(problem, costs, order_of_problem(problem)), None


def automatic_order_of(
    problem: ChainProblem, costs: StageCosts, activation_limit: Sequence[int] | None
) -> Order:
    """The order that ``zb-auto`` fits to a cut and its memory; the smallest makespan first."""
    limit = None if activation_limit is None else tuple(activation_limit)
    return _fitted(problem.num_ranks, problem.num_microbatches, costs, limit, problem.sends)


@lru_cache(maxsize=48)
def _fitted(
    num_ranks: int,
    num_microbatches: int,
    costs: StageCosts,
    limit: tuple[int, ...] | None,
    sends: Sends,
) -> Order:
    return build_order(
        Schedule.ZB_AUTO,
        num_ranks,
        num_microbatches,
        times=costs.times(),
        activation_limit=limit,
        aim="makespan",
        sends=sends,
        effort="quick",
    )


def order_timing(problem: ChainProblem, costs: StageCosts, order: Order) -> Timing:
    """An order's exact timeline as seen by its ranks."""
    timeline = run_order(order, costs.times(), problem.sends)
    return Timing(
        finish=tuple(timeline.finish.tolist()),
        makespan=timeline.makespan,
        busy=tuple(timeline.busy.tolist()),
        start=tuple(timeline.rank_begin.tolist()),
    )


def _steady(problem: ChainProblem, costs: StageCosts) -> Timing:
    f, b, ef, eb = effective_times(
        costs.forward, costs.backward, costs.edge_forward, costs.edge_backward, problem.sends
    )
    times = [x + y for x, y in zip(f, b, strict=True)]
    period = steady_period(times, ef, eb) * problem.num_microbatches
    whole = -(-period.numerator // period.denominator)
    ranks = len(times)
    return Timing(
        finish=(whole,) * ranks,
        makespan=whole,
        busy=tuple(problem.num_microbatches * time for time in times),
        start=(0,) * ranks,
    )
