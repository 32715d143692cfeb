"""The oracle: every cut of a small chain, priced by the plain definitions.

Nothing here is fast or clever on purpose; the solvers are tested against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations, pairwise

from planner.cost.stage_table import ChainProblem

__all__ = ["best_bottleneck", "best_step_time", "feasible_cuts"]


def feasible_cuts(problem: ChainProblem) -> Iterator[tuple[tuple[int, ...], list[int]]]:
    """Every feasible cut vector (0, .., N) in lexicographic order with its P stage costs.

    A stage that is not allowed (pins, colocation) or fits in no way to recompute rules the cuts
    out; every stage holds at least one block.
    """
    known: dict[tuple[int, int, int], int | None] = {}

    def cost(stage: int, start: int, end: int) -> int | None:
        key = (stage, start, end)
        if key not in known:
            known[key] = problem.stage_cost(stage, start, end)
        return known[key]

    count = problem.num_blocks
    for interior in combinations(range(1, count), problem.num_stages - 1):
        cuts = (0, *interior, count)
        costs: list[int] = []
        for stage, (start, end) in enumerate(pairwise(cuts)):
            price = cost(stage, start, end)
            if price is None:
                break
            costs.append(price)
        else:
            yield cuts, costs


def best_bottleneck(problem: ChainProblem) -> tuple[int, tuple[int, ...]] | None:
    """The least largest stage cost (quanta) and its smallest cuts; None where nothing fits."""
    best: tuple[int, tuple[int, ...]] | None = None
    for cuts, costs in feasible_cuts(problem):
        if best is None or max(costs) < best[0]:
            best = (max(costs), cuts)
    return best


def best_step_time(
    problem: ChainProblem, evaluate: Callable[[tuple[int, ...]], int]
) -> tuple[int, tuple[int, ...]] | None:
    """The least ``evaluate(cuts)`` over all feasible cuts and its smallest cuts.

    Parameters
    ----------
    evaluate
        Prices one cut vector (P+1 positions from 0 to N), e.g. by simulation.
    """
    best: tuple[int, tuple[int, ...]] | None = None
    for cuts, _ in feasible_cuts(problem):
        value = evaluate(cuts)
        if best is None or value < best[0]:
            best = (value, cuts)
    return best
