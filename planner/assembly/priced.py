"""A priced layout and which blocks its ranks hold: what the parts of an assembled plan share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.cost.pricing import Pricer
from planner.cost.stage_table import ChainProblem
from planner.cost.tables import BlockTable, StateTable
from planner.plans import Layout

__all__ = ["Priced", "pieces"]


@dataclass(frozen=True)
class Priced:
    """One layout with its tables."""

    pricer: Pricer
    problem: ChainProblem
    layout: Layout
    blocks: BlockTable
    states: StateTable


def pieces(problem: ChainProblem, rank: int, cuts: Sequence[int]) -> list[tuple[int, int]]:
    """The intervals of blocks that a rank holds."""
    held = problem.rank_stages[rank] if problem.is_grouped else (rank,)
    return [(cuts[stage], cuts[stage + 1]) for stage in held]
