"""Proven lower bounds on what a rank needs from its first start to its last end.

They say when the automatic zero-bubble search may stop. One chunk a rank, rank j: F, I, W with
the blocking sends that follow them included in the first two, t = F + I + W, R the time from the
end of F(m) to the start of I(m) over the later ranks, a memory limit of L activations of which
a residue share rho stays from I to W. Right after an F starts, a others have run F and not I, and
b have run I and not W, with 1 + a + rho b <= L: at most k = floor(L) micro-batches have run F and
not I, at most c = 1 + floor((L - 1) / rho) have started F and not ended W.

* Work: M t.
* First window, from the start of F(0) to the start of I(0): only F of k micro-batches fit, so
  the rank idles F + R - k F.
* Last window, from the start of F(M-1) to the start of I(M-1): before it the others were run but
  for a (I + W) + b W, and from its start to the end it lasts F + R and I + W, or the work that is
  left. For M > k the windows are disjoint and both idle times count.
* Memory: F(m+k) starts after I(m) ends, so F + R + I later than F(m); F(m+c) after W(m).
  Counted n times, the M - n k (or M - n c) micro-batches that are left need the above.
* Path: a rank r <= j runs W(M-1) after the last I has come back from j. Until then rank j has run
  everything but b W before the last window and has a I to run in it, a and b as they like best.

A folded pipeline is such a chain of 2P chunks (a rank's other chunk leaves less room and time,
so all but the work terms hold as they are), with the work and the first window of its ranks.
"""

from __future__ import annotations

from math import floor

from planner.schedules.zero_bubble_problem import Problem

__all__ = ["span_bounds"]


def span_bounds(problem: Problem) -> list[int]:
    """By rank: least time from its first start to its last end in any order within the limits."""
    ranks, chunks = problem.num_ranks, problem.num_chunks
    stages = ranks * chunks
    duration, travel = problem.duration, problem.travel
    forward = [
        s * problem.codes if s < ranks else (stages - 1 - s) * problem.codes + 1
        for s in range(stages)
    ]
    backward = [x + chunks for x in forward]
    reached, away = [0] * stages, [0] * stages
    for s in range(1, stages):
        reached[s] = reached[s - 1] + duration[forward[s - 1]] + travel[forward[s - 1]]
    for s in range(stages - 2, -1, -1):
        inner = duration[forward[s + 1]] + away[s + 1] + duration[backward[s + 1]]
        away[s] = travel[forward[s]] + inner + travel[backward[s + 1]]
    bounds = [0] * ranks
    for s in range(stages):
        rank = s if s < ranks else stages - 1 - s
        whole, returned = _stage_bounds(problem, forward[s], away[s], problem.limit[rank])
        bounds[rank] = max(bounds[rank], whole if chunks == 1 else 0)
        for r in range(s, -1, -1):
            if r < s:
                returned += travel[backward[r + 1]] + duration[backward[r]]
            if r < ranks:
                after = duration[backward[r] + chunks]
                bounds[r] = max(bounds[r], reached[s] - reached[r] + returned + after)
    if chunks == 2:
        for rank in range(ranks):
            # From the start of F(0) of the first chunk to that of I(0) of the second.
            second = stages - 1 - rank
            window = reached[second] - reached[rank] + duration[forward[second]] + away[second]
            bounds[rank] = max(bounds[rank], _folded_bound(problem, rank, window))
    return bounds


def _stage_bounds(problem: Problem, at: int, away: int, limit: float) -> tuple[int, int]:
    """From the start of F(0) to the end of all, and to the end of the last I, on one chunk."""
    chunks, total = problem.num_chunks, problem.num_microbatches
    f_own, i_own = problem.duration[at], problem.duration[at + chunks]
    weight = problem.duration[at + 2 * chunks]
    f = f_own + problem.hold[at]
    i = i_own + problem.hold[at + chunks]
    open_most = floor(limit)
    held_most = total
    if problem.residue > 0:
        held_most = min(total, 1 + floor((limit - 1) / problem.residue))
    best_whole = best_returned = 0
    for step, period in (
        (open_most, f_own + away + i),
        (held_most, f_own + away + i + weight),
    ):
        most = (total - 1) // step
        whole_counts = (total - open_most - 1) // step
        for count in {0, *range(max(0, whole_counts), most + 1)}:
            left = total - count * step
            idle = max(0, f_own + away - min(open_most, left) * f)
            done = count * period + idle + left * (f + i)
            whole, returned = left * weight, max(0, left - held_most) * weight
            if left > open_most:
                states = _states(open_most, left, limit, problem.residue)
                window = f_own + away - f
                whole += max(0, window - max(a * (i + weight) + b * weight for a, b in states))
                returned = min(
                    (left - 1 - a - b) * weight - a * i + max(window, a * i) for a, b in states
                )
            best_whole = max(best_whole, done + whole)
            best_returned = max(best_returned, done + returned - (i - i_own))
    return best_whole, best_returned


def _states(open_most: int, left: int, limit: float, residue: float) -> list[tuple[int, int]]:
    """(a, b): the others that still need I and W, and W, when the last F starts."""
    states = []
    for a in range(open_most):
        b = left - 1 - a
        if residue > 0:
            b = min(b, floor((limit - 1 - a) / residue))
        states.append((a, b))
    return states


def _folded_bound(problem: Problem, rank: int, window: int) -> int:
    """Work of both chunks, and what forwards within the limit leave of the first window."""
    total, base = problem.num_microbatches, rank * problem.codes
    spent = [problem.duration[base + code] + problem.hold[base + code] for code in range(6)]
    larger, smaller = max(spent[:2]), min(spent[:2])
    room = floor(problem.limit[rank])
    filled = min(room, total) * larger + min(max(0, room - total), total) * smaller
    return total * sum(spent) + max(0, window - filled)
