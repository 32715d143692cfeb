"""Independent evidence for a bottleneck: is any cut of the chain within a limit?

The judge confirms "value v is optimal" by asking whether v - 1 is reachable. This program
shares no code with the solvers: it walks stage by stage over the set of positions where a
stage can end, pricing every stage from the arrays of the problem.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.cost.stage_table import ChainProblem
from planner.specs import Recompute

__all__ = ["reachable"]

I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]


def _running(values: I64) -> I64:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(values, dtype=np.int64)))


def reachable(problem: ChainProblem, limit: int) -> bool:
    """Whether some cuts into exactly P non-empty, allowed, fitting stages cost at most ``limit``.

    Parameters
    ----------
    limit
        Largest allowed stage cost (compute, recompute and cuts), in quanta of the problem.

    Returns
    -------
    bool
        True if and only if such cuts exist.
    """
    count, stages = problem.num_blocks, problem.num_stages
    if stages > count:
        return False
    work = _Work(problem)
    starts = np.zeros(count + 1, bool)
    starts[0] = True
    for stage in range(stages):
        ends = np.zeros(count + 1, bool)
        for start in np.flatnonzero(starts).tolist():
            # What is left must fit into the stages that are left, whatever the cuts.
            if int(work.compute[count] - work.compute[start]) > limit * (stages - stage):
                continue
            work.mark_ends(ends, stage, start, limit)
        starts = ends
    return bool(starts[count])


class _Work:
    """The arrays that every price needs."""

    def __init__(self, problem: ChainProblem) -> None:
        self.problem = problem
        self.compute = _running(problem.forward + problem.backward)
        self.static = _running(problem.static_bytes)
        self.modes = set(problem.recompute_modes) or {Recompute.NONE}
        able = problem.recomputable
        none = (
            np.zeros(problem.num_blocks, np.int64), problem.kept_bytes, problem.transient_bytes
        )  # fmt: skip
        full = (
            np.where(able, problem.full_extra, 0),
            np.where(able, problem.kept_full_bytes, problem.kept_bytes),
            np.where(able, problem.transient_full_bytes, problem.transient_bytes),
        )
        selective = (
            problem.selective_extra, problem.kept_selective_bytes, problem.transient_bytes
        )  # fmt: skip
        self.none, self.full = none, full
        additive = {Recompute.NONE: none, Recompute.SELECTIVE: selective, Recompute.FULL: full}
        self.additive = [rows for mode, rows in additive.items() if mode in self.modes]

    def mark_ends(self, ends: Mask, stage: int, start: int, limit: int) -> None:
        """Set ``ends[k]`` for every k such that ``stage`` may be [start, k) within the limit."""
        problem = self.problem
        count, last = problem.num_blocks, problem.num_stages - 1
        far = int(np.searchsorted(self.compute, self.compute[start] + limit, side="right")) - 1
        far = min(far, count - (last - stage))
        banned = (problem.stage_low[start:far] > stage) | (problem.stage_high[start:far] < stage)
        if banned.any():
            far = start + int(banned.argmax())
        if far <= start or (stage == last and far < count):
            return
        span = slice(start, far)
        ends_here = np.arange(start + 1, far + 1)
        spare_time = limit - (self.compute[ends_here] - self.compute[start])
        if stage > 0:
            tier = problem.boundary_tier[stage - 1]
            spare_time -= problem.edge_forward[tier, start] + problem.edge_backward[tier, start]
        if stage < last:
            tier = problem.boundary_tier[stage]
            spare_time -= problem.edge_forward[tier, ends_here]
            spare_time -= problem.edge_backward[tier, ends_here]
        states = self.static[ends_here] - self.static[start]
        for pair in problem.tied:
            if start <= pair.first:
                states -= np.where(ends_here > pair.second, pair.shared_bytes, 0)
        buffers = problem.buffer_bytes if problem.num_stages > 1 else 0
        spare = int(problem.budget_bytes[stage]) - buffers - states
        flight = int(problem.in_flight[stage])
        fine = np.zeros(far - start, bool)
        for extra, kept, transient in self.additive:
            held = flight * np.cumsum(kept[span]) + np.maximum.accumulate(transient[span])
            fine |= (np.cumsum(extra[span]) <= spare_time) & (held <= spare)
        if Recompute.LAYERS in self.modes and not fine.all():
            fine |= self._some_layers(span, flight, spare_time, spare)
        ends[ends_here] |= fine & problem.legal_cut[ends_here]

    def _some_layers(self, span: slice, flight: int, spare_time: I64, spare: I64) -> Mask:
        """Ends for which recomputing some number of leading blocks in full is within limits."""
        fine = np.zeros(len(spare), bool)
        able = self.problem.recomputable[span]
        choices = zip(self.none, self.full, strict=True)
        (extra_none, extra_full), (kept_none, kept_full), (plain, redone) = choices
        for redo in range(int(able.sum()) + 1):
            mask = able & (np.cumsum(able) <= redo)
            enough = np.cumsum(able) >= redo
            extra = np.cumsum(np.where(mask, extra_full[span], extra_none[span]))
            kept = np.cumsum(np.where(mask, kept_full[span], kept_none[span]))
            space = np.maximum.accumulate(np.where(mask, redone[span], plain[span]))
            fine |= enough & (extra <= spare_time) & (flight * kept + space <= spare)
        return fine
