"""The best layout of many cluster sizes, quickly: one bounded space, few layouts solved.

For every size the layouts are taken by rising bound. Each is solved by
:mod:`planner.solvers.quick_terms` against the best value held: its least stage terms, and the
simulation of the cuts that attain them. The size is done when the smallest bound left cannot beat
what is held. Nothing is branched on, so that a few points keep a gap; what is stated as proven
is. A size's answer does not depend on the other sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.cost.curve_prices import CurvePrices
from planner.deadlines import late
from planner.plans import Layout
from planner.search.curve_space import CurveSpace, SpaceQuestion, bounded_space
from planner.solvers import quick_kernels as kernels
from planner.solvers.quick_terms import solve
from planner.specs import Cluster, Recompute, Schedule, Sends, Tier

__all__ = ["CurveCounts", "SizeResult", "solve_sizes"]

I64 = NDArray[np.int64]

_TIERS = list(Tier)
_MODES = (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)
_SEVERAL = 1 << 60


@dataclass
class CurveCounts:
    """Work done: a deterministic measure of cost."""

    layouts: int = 0
    """Bounded."""
    layouts_solved: int = 0
    simulations: int = 0


@dataclass(frozen=True)
class SizeResult:
    """What was found for one size; ``layout`` is None where nothing was."""

    layout: Layout | None
    cuts: tuple[int, ...] = ()
    value: int = 0
    bound: int = 0
    """No step of this size is shorter, in quanta."""
    interrupted: str | None = None
    """Why time ended the search; None where it did not."""
    has_degrees: bool = True
    has_layouts: bool = True
    refusal: str | None = None
    """Why no layout could be priced."""
    recompute: tuple[Recompute, ...] = ()
    """Of each rank."""
    memory_bytes: tuple[int, ...] = ()
    """Of each rank."""
    loads: tuple[int, ...] = ()
    """F + B of each rank, recompute included."""


def solve_sizes(
    question: SpaceQuestion,
    counts: CurveCounts,
    on_size: Callable[[int, SizeResult], None] | None = None,
) -> list[SizeResult]:
    """The best layout of every size of a question.

    Parameters
    ----------
    counts
        Work is added to it.
    on_size
        Told of each size as it is done.
    """
    space = bounded_space(question)
    counts.layouts += len(space)
    starts = np.searchsorted(space.size, np.arange(len(question.clusters) + 1))
    results = []
    for index in range(len(question.clusters)):
        result = _SizeSearch(question, space, index, counts).run(
            int(starts[index]), int(starts[index + 1])
        )
        results.append(result)
        if on_size is not None:
            on_size(index, result)
    return results


class _SizeSearch:
    """Best first over the layouts of one size."""

    def __init__(
        self, question: SpaceQuestion, space: CurveSpace, index: int, counts: CurveCounts
    ) -> None:
        self.prices: CurvePrices = question.prices
        self.training = question.training
        self.cluster: Cluster = question.clusters[index]
        self.space = space
        self.index = index
        self.counts = counts

    def run(self, start: int, end: int) -> SizeResult:
        """Search the layouts ``start .. end-1`` of the space."""
        space = self.space
        has = bool(space.has_degrees[self.index])
        if start == end:
            refused = space.refused is not None and bool(space.refused[self.index])
            why = space.refusals[0] if refused else None
            return SizeResult(None, has_degrees=has, has_layouts=refused, refusal=why)
        fit = np.flatnonzero(~space.short[start:end]) + start
        batch = (space.dp * space.microbatch_size * space.num_microbatches)[fit]
        order = fit[np.argsort(space.bound[fit] / batch, kind="stable")]
        best, samples, bound = _SEVERAL, 1, _SEVERAL
        found: tuple[int, tuple[I64, ...], I64] | None = None
        interrupted: str | None = None
        for which in order.tolist():
            least = int(space.bound[which])
            # Of a range of batches, the time of a sample counts.
            own = space.batch(which)
            upper = min(_SEVERAL, -(-best * own // samples))
            if least >= upper:
                break
            interrupted = late()
            if interrupted:
                bound = min(bound, least)
                break
            arrays = self._arrays(which)
            c, w, s, _, _, tied, p = arrays
            if not kernels.fits(c, w, s, tied, p):
                continue
            cuts = np.zeros(p[kernels.STAGES] + 1, np.int64)
            count = np.zeros(1, np.int64)
            value, proved = solve(*arrays, least, upper, cuts, count)
            self.counts.layouts_solved += 1
            self.counts.simulations += int(count[0])
            bound = min(bound, int(proved))
            if value < upper:
                best, samples, found = int(value), own, (which, arrays, cuts)
        if found is None:
            return SizeResult(None, interrupted=interrupted)
        return self._result(*found, best, min(bound, best), interrupted)

    def _result(
        self,
        which: int,
        arrays: tuple[I64, ...],
        cuts: I64,
        value: int,
        bound: int,
        interrupted: str | None,
    ) -> SizeResult:
        c, w, s, _, _, tied, p = arrays
        modes, memory, loads, _ = kernels.describe(c, w, s, tied, p, cuts).tolist()
        layout = self.space.layout(which)
        buffers = self._buffers(layout)
        return SizeResult(
            layout=layout,
            cuts=tuple(cuts.tolist()),
            value=value,
            bound=bound,
            interrupted=interrupted,
            recompute=tuple(_MODES[mode] for mode in modes),
            memory_bytes=tuple(m + buffers for m in memory),
            loads=tuple(loads),
        )

    def _buffers(self, layout: Layout) -> int:
        kinds = self.prices.kinds(layout.tp, layout.microbatch_size)
        return kinds.buffer_bytes if layout.pp > 1 else 0

    def _arrays(self, which: int) -> tuple[I64, ...]:
        """The problem of one layout, as the kernels take it."""
        prices, cluster = self.prices, self.cluster
        layout = self.space.layout(which)
        tp, dp, pp, mbs = layout.tp, layout.dp, layout.pp, layout.microbatch_size
        c, w = prices.block_rows(tp, mbs)
        s = prices.state_rows(cluster, tp, dp, mbs)
        states = prices.states(cluster, tp, dp, mbs)
        tiers = prices.boundaries(cluster, dp, tp, pp)
        used = set(tiers)
        e = prices.edge_rows(tp, mbs, used)
        rows = np.array([_TIERS.index(tier) for tier in tiers], np.int64)
        p = np.zeros(kernels.SCALARS, np.int64)
        p[kernels.STAGES] = pp
        p[kernels.MICROBATCHES] = layout.num_microbatches
        p[kernels.GPIPE] = layout.schedule is Schedule.GPIPE
        p[kernels.ROOM] = cluster.budget_bytes - self._buffers(layout)
        p[kernels.LATENCY] = states.latency
        p[kernels.OVERLAP] = self.training.overlap_gradient_reduction
        p[kernels.FIXED] = prices.fixed_tail(cluster, layout)
        p[kernels.BLOCKING] = self.training.sends is Sends.BLOCKING
        p[kernels.HAS_NONE : kernels.HAS_FULL + 1] = prices.has
        p[kernels.LEAST_OPTIMIZER] = max(-(-states.update_total // pp), int(states.update.max()))
        if pp > 1:
            cheapest = {tier: prices.least_edge(tp, mbs, tier) for tier in used}
            p[kernels.EDGES] = sum(cheapest[tier] for tier in tiers)
        return c, w, s, e, rows, states.tied, p
