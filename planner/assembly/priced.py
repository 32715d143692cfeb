"""A priced layout and which blocks its ranks hold: what the parts of an assembled plan share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

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

    @cached_property
    def sums(self) -> dict[str, list[int]]:
        """Prefix sums over blocks of what stages add up, by name."""
        problem, blocks, states = self.problem, self.blocks, self.states
        tensor = problem.tensor_parallel
        values = {
            "reduction": problem.reduction,
            "tensor_parallel": tensor if len(tensor) else np.zeros_like(problem.reduction),
            "parameter_bytes": states.parameter_bytes,
            "gradient_bytes": states.gradient_bytes,
            "optimizer_bytes": states.optimizer_bytes,
            "logits_bytes": blocks.logits_bytes,
        }
        return {name: [0, *np.cumsum(each).tolist()] for name, each in values.items()}

    def total(self, name: str, intervals: Sequence[tuple[int, int]]) -> int:
        """What one of :attr:`sums` comes to over some intervals of blocks."""
        sums = self.sums[name]
        return sum(sums[end] - sums[start] for start, end in intervals)


def pieces(problem: ChainProblem, rank: int, cuts: Sequence[int]) -> list[tuple[int, int]]:
    """The intervals of blocks that a rank holds."""
    held = problem.rank_stages[rank] if problem.is_grouped else (rank,)
    return [(cuts[stage], cuts[stage + 1]) for stage in held]
