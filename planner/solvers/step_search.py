"""Branch and bound over prefixes of the cuts, many nodes a numpy call.

A node fixes the first stages. Its bound is the larger of the stage terms along the prefix and
the least largest terms after it, and of a simulation of the fixed ranks alone whose last F
comes back no sooner than the rest of the chain takes at least
(:func:`~planner.schedules.simulate.simulate_many` with later ranks). Both hold for every
completion of the prefix. At the last stage the simulation is the value itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.deadlines import OutOfTimeError, late
from planner.schedules.prices import UNREACHABLE
from planner.schedules.simulate import finishes, simulate_many
from planner.schedules.stage_terms import StageTerms
from planner.specs import Schedule

__all__ = ["BranchResult", "branch_and_bound"]

I64 = NDArray[np.int64]

_BATCH = 128

# Prefixes are simulated while M is at most this many times P.
_SIMULATE_UP_TO = 3

# A batch with fewer completions than this goes straight to its leaves.
_FEW_LEAVES = 32


@dataclass(frozen=True)
class BranchResult:
    """``bound``: no cut is below it (at most the best value); ``nodes``: prefixes bounded."""

    bound: int
    nodes: int


@dataclass(frozen=True)
class _Batch:
    """K prefixes of the same depth d: offsets (K, d+1) into the windows, and their bounds."""

    offsets: I64
    bounds: I64


def branch_and_bound(
    terms: StageTerms,
    limit: int,
    meet: Callable[[Sequence[tuple[int, ...]]], int | None],
    node_limit: int,
) -> BranchResult:
    """Search all cuts inside the windows of ``terms`` for values below ``limit``.

    Parameters
    ----------
    meet
        Evaluates full cut vectors and returns the new limit.
    node_limit
        Prefixes to bound at most; what is left open then decides the returned bound.
    """
    if terms.empty:
        return BranchResult(limit, 0)
    search = _Nodes(terms, limit)
    stack = [_Batch(np.zeros((1, 1), np.int64), np.zeros(1, np.int64))]
    nodes = 0
    while stack and nodes < node_limit and not late():
        batch = stack.pop()
        keep = batch.bounds < limit
        if not keep.any():
            continue
        try:
            children = search.expand(_Batch(batch.offsets[keep], batch.bounds[keep]), limit)
            nodes += search.bounded
            if not len(children.bounds):
                continue
            order = np.argsort(children.bounds, kind="stable")
            if children.offsets.shape[1] == terms.stages + 1:
                cuts = np.take_along_axis(
                    terms.position, children.offsets[order].T, axis=1
                ).T  # (K, P+1)
                # Leaves carry their exact value; only the best can matter.
                least = children.bounds[order[0]]
                ties = int((children.bounds == least).sum())
                now = meet([tuple(row) for row in cuts[: min(ties, 16)].tolist()])
                limit = limit if now is None else min(limit, now)
                continue
        except OutOfTimeError:
            stack.append(batch)
            break
        parts = range(0, len(order), _BATCH)
        for first in reversed(parts):
            chosen = order[first : first + _BATCH]
            stack.append(_Batch(children.offsets[chosen], children.bounds[chosen]))
    left = [int(batch.bounds.min()) for batch in stack]
    return BranchResult(min([limit, *left]), nodes)


class _Nodes:
    """What bounds of prefixes are made of."""

    def __init__(self, terms: StageTerms, limit: int) -> None:
        self.terms = terms
        self.bounded = 0
        both = terms.edge_forward + terms.edge_backward
        time_of = terms.forward + terms.backward
        self.rest = terms.shortest_after(time_of, both)
        self.primary_after = terms.largest_after(terms.primary)
        self.secondary_after = terms.largest_after(terms.secondary)
        self.optimizer_after = terms.largest_after(
            np.where(terms.possible, terms.optimizer, UNREACHABLE)
        )
        self.leaves = np.zeros(terms.position.shape)  # ways to complete a prefix
        self.leaves[-1, 0] = 1
        hopeful = (terms.primary + terms.secondary < limit).astype(np.float64)
        for i in range(terms.stages - 1, -1, -1):
            self.leaves[i] = hopeful[i] @ self.leaves[i + 1]
        if terms.prices.schedule is Schedule.GPIPE:
            self.forward_after, self.backward_after = (
                terms.largest_after(np.where(terms.possible, cell, UNREACHABLE))
                for cell in (terms.forward, terms.backward)
            )

    def expand(self, batch: _Batch, limit: int) -> _Batch:
        """Children of a batch whose bound is below the limit, one stage deeper."""
        terms = self.terms
        depth = batch.offsets.shape[1] - 1
        ends = np.arange(terms.position.shape[1])[None, :]
        at = batch.offsets[:, -1:]
        rank = np.arange(depth)[None, :]
        along = (rank, batch.offsets[:, :-1], batch.offsets[:, 1:])
        primary = np.maximum(terms.primary[depth, at, ends], self.primary_after[depth + 1, ends])
        secondary = np.maximum(
            terms.secondary[depth, at, ends], self.secondary_after[depth + 1, ends]
        )
        if depth:
            primary = np.maximum(primary, terms.primary[along].max(1)[:, None])
            secondary = np.maximum(secondary, terms.secondary[along].max(1)[:, None])
        bound = np.maximum(primary + secondary, batch.bounds[:, None])
        parent, end = np.nonzero((bound < limit) & (primary < UNREACHABLE))
        self.bounded = len(parent)
        offsets = np.concatenate([batch.offsets[parent], end[:, None]], axis=1)
        bounds = bound[parent, end]
        whole = depth + 1 == terms.stages
        tests = [self._simulated]
        if terms.prices.schedule is Schedule.ONE_F_ONE_B and not whole:
            # Cycles cost nothing per micro-batch; simulating many of them on prefixes does.
            few = terms.microbatches <= _SIMULATE_UP_TO * terms.stages
            tests = [self._cycles, self._simulated] if few else [self._cycles]
        if not whole and (depth == 0 or self.leaves[depth + 1, end].sum() <= _FEW_LEAVES):
            tests = []  # one rank alone is its own term; a few leaves are soon tried
        for test in tests:
            if not len(bounds):
                break
            bounds = np.maximum(bounds, test(offsets))
            keep = bounds < limit
            offsets, bounds = offsets[keep], bounds[keep]
        return _Batch(offsets, bounds)

    def _cycles(self, offsets: I64) -> I64:
        """Step value that the windows ending at the last known rank enforce.

        The cycle bound of :mod:`~planner.schedules.order_bounds` for every window s..q, q the
        last known rank, from rank s; windows that end earlier were counted for the parent.
        """
        terms = self.terms
        f, b, ef, eb, cells, last = self._known(offsets)
        known, m_all = f.shape[1], terms.microbatches
        t = f + b
        edges = np.zeros_like(t)
        edges[:, 1:] = ef + eb
        before = np.cumsum(t + edges, axis=1) - t
        forward_before = np.cumsum(f, axis=1) - f
        forward_before[:, 1:] += np.cumsum(ef, axis=1)
        through = before[:, -1:] + t[:, -1:]
        after = through + self.rest[known, last][:, None] - before - t
        rank = np.arange(known)[None, :]
        w, first = terms.stages - 1 - rank, terms.stages - known
        length = known - rank
        turns = np.maximum(0, (m_all - 1 - first) // length)
        m = first + turns * length
        waits = np.maximum(0, after - np.minimum(w, m_all - 1) * b)
        left = np.maximum(
            (m_all - m) * t + np.minimum(w, m) * b + waits, f + after + (m_all - m) * b
        )
        span = np.where(turns > 0, first * f + turns * (through - before) + left, 0)
        reduction = terms.reduction[cells]
        ends = np.maximum(before + span + reduction[:, :1], forward_before + span + reduction).max(
            1
        )
        return self._with_tail(ends, cells, known, last)

    def _known(self, offsets: I64) -> tuple[I64, I64, I64, I64, tuple[I64, I64, I64], I64]:
        """(f, b, e_fwd, e_bwd) of the fixed ranks, their cells, and where the last one ends."""
        terms = self.terms
        known = offsets.shape[1] - 1
        cells = (np.arange(known)[None, :], offsets[:, :-1], offsets[:, 1:])
        cut = np.arange(1, known)[None, :]
        return (
            terms.forward[cells],
            terms.backward[cells],
            terms.edge_forward[cut, offsets[:, 1:-1]],
            terms.edge_backward[cut, offsets[:, 1:-1]],
            cells,
            offsets[:, -1],
        )

    def _with_tail(self, ends: I64, cells: tuple[I64, I64, I64], known: int, last: I64) -> I64:
        terms = self.terms
        optimizer = np.maximum(terms.optimizer[cells].max(1), self.optimizer_after[known, last])
        value: I64 = ends + optimizer + terms.prices.fixed_tail
        return value

    def _simulated(self, offsets: I64) -> I64:
        """Step value that the prefix alone enforces; the value itself for full cuts."""
        terms, prices = self.terms, self.terms.prices
        f, b, ef, eb, cells, last = self._known(offsets)
        known, m_all = f.shape[1], terms.microbatches
        rest = self.rest[known, last]
        if known == terms.stages:
            finish = finishes(prices.schedule, f, b, ef, eb, m_all)
        else:
            later = terms.stages - known
            finish = simulate_many(
                prices.schedule, f, b, ef, eb, m_all, later_ranks=later, turnaround=rest
            )
        ends = (finish + terms.reduction[cells]).max(1)
        if prices.schedule is Schedule.GPIPE:
            # Later stages may set either pace.
            whole = f.sum(1) + b.sum(1) + ef.sum(1) + eb.sum(1) + rest
            pace = np.maximum(f.max(1), self.forward_after[known, last])
            pace = pace + np.maximum(b.max(1), self.backward_after[known, last])
            ends = np.maximum(ends, whole + (m_all - 1) * pace + terms.reduction[cells][:, 0])
        return self._with_tail(ends, cells, known, last)
