"""Bounds of 1F1B over all cuts from walks that use several ranks: a threshold test by states.

A term of :mod:`~planner.schedules.order_bounds` lets one rank work and all others pass. Where
M is near P or below, the longest chains work on more than one rank: a heavy early rank runs
many forwards first, or many backwards last, and a later one alternates in between. With
f_i, b_i, t_i = f_i + b_i of rank i, w_i = P-1-i, n_q = min(w_q, M-1), R_q the way from the end
of F_q to the start of the same micro-batch's B_q, these operations follow each other by
dependency or rank order (edges belong to each hop):

- *first forwards*, i <= q: F_i(0) .. F_i(n_q), then F(n_q) goes to q. Rank q runs B_q(0) after
  F_q(n_q), and after R_q; so B_q(0) starts no sooner than
  pre^F_q + f_q + max(R_q, n_q max_{i<=q} f_i);
- *last backwards*, i <= q: B_q(M-1-n_q) goes to i and B_i(M-1-n_q) .. B_i(M-1) to the end. Rank
  q runs B_q(M-1-n_q) after F_q(M-1), so behind the end of F_q(M-1) there is at least
  b_q + pre^B_q + max(R_q, n_q max_{i<=q} b_i);
- *alternation* on j, M >= w_j + 2: from the start of B_j(0) to the end of F_j(M-1) the rank runs
  (M-1-w_j) t_j.

Two potentials of a prefix of stages 0..q carry what any completion meets:

- ``sent``: F_q(M-1) ends no sooner than ``sent`` minus the backwards (with edges) of 0..q. It
  is the largest over j <= q of first forwards or R_j, alternation on j, and the way of F(M-1)
  from j to q; with fewer than w_j + 2 micro-batches, M-1 first forwards take the place of the
  alternation.
- ``tail``: behind the start of B_q(0) there is at least ``tail`` more than b_q + pre^B_q. It is
  the largest over j <= q of (M-1-w_j) t_j + max(R_j, w_j max_{i<=j} b_i) where M >= w_j + 2
  (B(0) comes to j, which alternates to the end of F_j(M-1)), and of (M-1) max_{i<=q} b_i.

So the makespan is at least ``sent`` + max(R_q, n_q max b) and at least
pre_q + t_q + max(R_q, n_q max f) + ``tail``, for every q.

Every rule is monotone in (max f, max b, sent, tail). The componentwise least states over all
prefixes that end at one position therefore prove as much for every completion as the best of
them could: if no stage passes the test on them, no cut has a value below the threshold.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.deadlines import poll
from planner.schedules import path_kernels
from planner.schedules.prices import UNREACHABLE
from planner.schedules.stage_terms import StageTerms
from planner.specs import Schedule

__all__ = ["raised_bound", "surviving_stages"]

I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

# Thresholds between what the stage terms prove and the value to beat lie on a grid this fine,
# which depends on the problem alone so that others find the same bound again.
_GRID = 4096

# Tests on the stages that the test before left.
_MAX_ROUNDS = 4


def surviving_stages(terms: StageTerms, limit: int) -> StageTerms | None:
    """``terms`` reduced to the stages that cuts of a value below ``limit`` may have.

    None when there is no such cut (inside the windows of ``terms``). GPipe is returned as it is:
    its own terms are exact.
    """
    if terms.empty:
        return None
    if terms.prices.schedule is Schedule.GPIPE:
        return terms
    for _ in range(_MAX_ROUNDS):
        alive = _alive(terms, limit)
        if not alive.any():
            return None
        if (alive == terms.possible).all():
            break
        terms = terms.restricted(alive)
    return terms


def raised_bound(terms: StageTerms, proven: int, limit: int, unit: int) -> int:
    """Largest threshold found that no cut inside the windows undercuts.

    Parameters
    ----------
    proven
        A bound that already holds.
    limit
        Values at or above this do not matter.
    unit
        A positive time of the problem's own scale; thresholds are multiples of ``unit / 4096``.
    """
    if proven >= limit or terms.prices.schedule is Schedule.GPIPE:
        return proven
    if surviving_stages(terms, limit) is None:
        return limit
    step = max(1, unit // _GRID)
    low, high = proven // step, -(-limit // step)
    while high - low > 1:
        middle = (low + high) // 2
        if surviving_stages(terms, middle * step) is None:
            low = middle
        else:
            high = middle
    return max(proven, low * step)


def _alive(terms: StageTerms, limit: int) -> Mask:
    """Stages on paths whose states stay below the limit at every stage."""
    m_all, stages = terms.microbatches, terms.stages
    alive = terms.possible & (terms.primary < UNREACHABLE)
    floor = terms.least_largest(np.where(alive, terms.secondary, UNREACHABLE))
    if floor is None:
        return np.zeros_like(alive)
    alive &= terms.primary + np.maximum(terms.secondary, floor) < limit
    if not alive[0].any():
        return np.zeros_like(alive)
    room = limit - terms.prices.fixed_tail - floor - int(terms.reduction[0][alive[0]].min())
    both = terms.edge_forward + terms.edge_backward
    if path_kernels.pays():
        poll()
        path_kernels.compiled_path(path_kernels.alive_walks)(
            alive, terms.forward, terms.backward, terms.before, terms.after, both,
            m_all, room, UNREACHABLE,
        )  # fmt: skip
        return alive
    width = terms.position.shape[1]
    most_f, most_b, tail = (np.zeros(width, np.int64) for _ in range(3))
    sent = np.full(width, -UNREACHABLE, np.int64)
    reached = np.arange(width) == 0
    for q in range(stages):
        poll()
        f, b = terms.forward[q], terms.backward[q]
        t = f + b
        w = stages - 1 - q
        few = min(w, m_all - 1)
        before, rest = terms.before[q][:, None], terms.after[q + 1][None, :]
        f_max, b_max = np.maximum(most_f[:, None], f), np.maximum(most_b[:, None], b)
        first = np.maximum(rest, few * f_max)
        last = np.maximum(rest, few * b_max)
        behind = np.maximum(tail[:, None], (m_all - 1) * b_max)
        if m_all >= w + 2:
            own = before + (m_all - w) * t + first
            behind = np.maximum(behind, (m_all - 1 - w) * t + last)
        else:
            own = before + t + few * f_max
        away = np.maximum((sent + both[q])[:, None] + t, own)
        alive[q] &= reached[:, None] & (np.maximum(away + last, before + t + first + behind) < room)
        reached = alive[q].any(0)
        most_f, most_b, sent, tail = (
            np.where(reached, np.where(alive[q], state, UNREACHABLE).min(0), 0)
            for state in (f_max, b_max, away, behind)
        )
    leads = np.arange(width) == 0
    for q in range(stages - 1, -1, -1):
        alive[q] &= leads[None, :]
        leads = alive[q].any(1)
    return alive
