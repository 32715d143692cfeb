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
from planner.solvers.quick_terms import improve, solve
from planner.specs import Cluster, Recompute, Schedule, Sends

__all__ = ["CurveCounts", "SizeResult", "solve_sizes"]

I64 = NDArray[np.int64]

_MODES = (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)
_SEVERAL = kernels.UNREACHABLE
_MOST_IMPROVED = 4
"""Layouts of a size that are tried harder."""


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


@dataclass(eq=False)
class _Held:
    """A layout that was looked at."""

    which: int
    arrays: tuple[I64, ...]
    cuts: I64
    value: int
    bound: int
    """No cut of it is below, as far as that matters."""


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
        self._count = np.zeros(1, np.int64)

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
        interrupted: str | None = None
        held: _Held | None = None
        attempts: list[_Held] = []
        bound = _SEVERAL
        for which in order.tolist():
            least = int(space.bound[which])
            upper = self._upper(held, which)
            if least >= upper:
                break
            interrupted = late()
            if interrupted:
                bound = min(bound, least)
                break
            if space.huge[which]:
                self.prices.pricer.problem(space.layout(which))  # refuses the sizes
            arrays = self._arrays(which)
            c, w, s, _, _, tied, p = arrays
            if not kernels.fits(c, w, s, tied, p):
                continue
            cuts = np.zeros(p[kernels.STAGES] + 1, np.int64)
            value, proved = solve(*arrays, least, upper, cuts, self._count)
            self.counts.layouts_solved += 1
            tried = _Held(which, arrays, cuts, int(value), int(proved))
            attempts.append(tried)
            if value < upper:
                held = tried
        if not interrupted:
            held, interrupted = self._improved(held, attempts)
        self.counts.simulations += int(self._count[0])
        if held is None or held.value >= _SEVERAL:
            open_left = any(tried.bound < _SEVERAL for tried in attempts)
            return SizeResult(
                None, interrupted=interrupted or ("work_limit" if open_left else None)
            )
        bound = min([bound, held.value, *(tried.bound for tried in attempts)])
        return self._result(held, bound, interrupted)

    def _upper(self, held: _Held | None, which: int) -> int:
        """What a layout has to undercut; of a range of batches, the time of a sample counts."""
        if held is None:
            return _SEVERAL
        own, other = self.space.batch(which), self.space.batch(held.which)
        return held.value if own == other else -(-held.value * own // other)

    def _improved(
        self, held: _Held | None, attempts: list[_Held]
    ) -> tuple[_Held | None, str | None]:
        """Try harder on layouts that may still beat what is held, the smallest bounds first."""
        tries = 0
        for tried in sorted(attempts, key=lambda t: (t.bound / self.space.batch(t.which), t.which)):
            upper = self._upper(held, tried.which) if held is not tried else _SEVERAL
            if tried.bound >= min(upper, tried.value):
                continue
            interrupted = late()
            if interrupted:
                return held, interrupted
            if tries == _MOST_IMPROVED:
                break
            tries += 1
            value, proved = improve(
                *tried.arrays, tried.bound, upper, tried.value, tried.cuts, self._count
            )
            tried.value, tried.bound = int(value), int(proved)
            if held is None or value < upper:
                held = tried
        return held, None

    def _result(self, held: _Held, bound: int, interrupted: str | None) -> SizeResult:
        which, cuts, value = held.which, held.cuts, held.value
        c, w, s, _, _, tied, p = held.arrays
        modes, memory, loads, _ = kernels.describe(c, w, s, tied, p, cuts).tolist()
        layout = self.space.layout(which)
        buffers = self._buffers(layout.tp, layout.pp, layout.microbatch_size)
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

    def _buffers(self, tp: int, pp: int, microbatch_size: int) -> int:
        return self.prices.kinds(tp, microbatch_size).buffer_bytes if pp > 1 else 0

    def _arrays(self, which: int) -> tuple[I64, ...]:
        """The problem of one layout, as the kernels take it."""
        prices, cluster, space = self.prices, self.cluster, self.space
        tp, dp, pp = int(space.tp[which]), int(space.dp[which]), int(space.pp[which])
        mbs = int(space.microbatch_size[which])
        schedule = space.schedules[int(space.schedule[which])]
        c, w = prices.block_rows(tp, mbs)
        s = prices.state_rows(cluster, tp, dp, mbs)
        states = prices.states(cluster, tp, dp, mbs)
        rows, tiers = prices.boundaries(cluster, dp, tp, pp)
        e = prices.edge_rows(tp, mbs, frozenset(tier for tier, _ in tiers))
        p = np.zeros(kernels.SCALARS, np.int64)
        p[kernels.STAGES] = pp
        p[kernels.MICROBATCHES] = space.num_microbatches[which]
        p[kernels.GPIPE] = schedule is Schedule.GPIPE
        p[kernels.ROOM] = cluster.budget_bytes - self._buffers(tp, pp, mbs)
        p[kernels.LATENCY] = states.latency
        p[kernels.OVERLAP] = self.training.overlap_gradient_reduction
        p[kernels.FIXED] = prices.fixed_tail(cluster, dp, tp, pp, mbs)
        p[kernels.BLOCKING] = self.training.sends is Sends.BLOCKING
        p[kernels.HAS_NONE : kernels.HAS_FULL + 1] = prices.has
        p[kernels.LEAST_OPTIMIZER] = max(-(-states.update_total // pp), states.update_largest)
        p[kernels.EDGES] = sum(prices.least_edge(tp, mbs, tier) * n for tier, n in tiers)
        return c, w, s, e, rows, states.tied, p
