"""A priced layout and which blocks its ranks hold: what the parts of an assembled plan share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np

from planner.cost.pricing import Pricer
from planner.cost.stage_table import ChainProblem
from planner.cost.tables import BlockTable, StateTable
from planner.plans import Layout, Stage
from planner.specs import Origin

__all__ = ["Priced", "pieces"]


@dataclass(frozen=True)
class Priced:
    """One layout with its tables."""

    pricer: Pricer
    problem: ChainProblem
    layout: Layout
    blocks: BlockTable
    states: StateTable
    assembled: dict[object, Stage] = field(default_factory=dict)
    """A rank that was assembled, by all that its figures depend on."""
    at_depth_one: dict[object, dict[str, int]] = field(default_factory=dict)
    """Memory with one micro-batch in flight, by blocks and recompute."""

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

    @cached_property
    def kinds(self) -> list[int]:
        """A number for each block, equal where nothing but the name differs."""
        blocks, states, problem = self.blocks, self.states, self.problem
        columns = [getattr(blocks, each.name) for each in fields(blocks)]
        columns += [getattr(states, each.name) for each in fields(states)]
        columns += [
            problem.static_bytes, problem.kept_bytes, problem.kept_selective_bytes,
            problem.kept_full_bytes, problem.weight_gradient, problem.reduction, problem.update,
        ]  # fmt: skip
        size = len(blocks.forward)
        rows = np.stack(
            [
                column
                for column in columns
                if isinstance(column, np.ndarray) and column.shape == (size,)
            ]
        )
        tied = np.zeros(size, np.int64)
        for pair in states.tied:  # each of them is a kind of its own
            tied[[pair.first, pair.second]] = [pair.first + 1, pair.second + 1]
        origins = np.array([list(Origin).index(origin) for origin in blocks.origins], np.int64)
        members = np.array([len(layers) for layers in self.pricer.chain.blocks], np.int64)
        rows = np.concatenate([rows, [tied, origins, members]])
        known: dict[bytes, int] = {}
        return [known.setdefault(row.tobytes(), len(known)) for row in rows.T.copy()]

    def total(self, name: str, intervals: Sequence[tuple[int, int]]) -> int:
        """What one of :attr:`sums` comes to over some intervals of blocks."""
        sums = self.sums[name]
        return sum(sums[end] - sums[start] for start, end in intervals)


def pieces(problem: ChainProblem, rank: int, cuts: Sequence[int]) -> list[tuple[int, int]]:
    """The intervals of blocks that a rank holds."""
    held = problem.rank_stages[rank] if problem.is_grouped else (rank,)
    return [(cuts[stage], cuts[stage + 1]) for stage in held]
