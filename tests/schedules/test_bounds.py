"""Bounds never exceed what they bound; where they claim to be exact, they are."""

from __future__ import annotations

import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from planner.schedules.bounds import layout_bound, makespan_bound, root_bound
from planner.schedules.prices import UNREACHABLE, prices_of
from planner.schedules.simulate import RECURRENT, simulate_many
from planner.schedules.stage_terms import StageTerms
from planner.specs import Schedule, Sends

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "solvers"))
from step_instances import step_problem


def all_cuts(problem):
    interior = combinations(range(1, problem.num_blocks), problem.num_stages - 1)
    return np.array([(0, *c, problem.num_blocks) for c in interior], np.int64)


def random_pipeline(rng, count=40):
    ranks = int(rng.integers(1, 8))
    microbatches = int(rng.choice([1, 2, 3, 4, 5, 7, 8, 12, 24, 41]))
    top = int(rng.choice([4, 30, 900]))
    edge = int(rng.choice([0, 1, top // 10 + 1, 3 * top]))
    f = rng.integers(1, top, (count, ranks))
    b = 2 * f if rng.random() < 0.4 else rng.integers(1, 2 * top, (count, ranks))
    ef = rng.integers(0, edge + 1, (count, ranks - 1))
    eb = ef if rng.random() < 0.4 else rng.integers(0, edge + 1, (count, ranks - 1))
    return microbatches, f, b, ef, eb


@pytest.mark.parametrize("sends", list(Sends))
@pytest.mark.parametrize("schedule", RECURRENT)
def test_pipeline_and_layout_bounds_never_exceed(schedule, sends):
    rng = np.random.default_rng(11)
    exact = total = 0
    for _ in range(70):
        microbatches, f, b, ef, eb = random_pipeline(rng)
        ranks = f.shape[1]
        spans = simulate_many(schedule, f, b, ef, eb, microbatches, sends).max(1)
        whole = layout_bound(
            schedule,
            ranks,
            microbatches,
            f.sum(1),
            b.sum(1),
            (f + b).max(1),
            ef.sum(1) + eb.sum(1),
        )
        assert (whole <= spans).all()
        for k in range(len(f)):
            bound = makespan_bound(schedule, f[k], b[k], ef[k], eb[k], microbatches, sends)
            assert bound <= spans[k], (f[k], b[k], ef[k], eb[k], microbatches)
            exact += bound == spans[k]
            total += 1
    assert exact == total if schedule is Schedule.GPIPE else exact > total / 2


def test_layout_bound_is_tight_on_equal_stages():
    for schedule in RECURRENT:
        got = layout_bound(schedule, np.array([4, 8]), np.array([8, 64]), 8, 16, 0, 0)
        assert got.tolist() == [(8 + 3) * 6, (64 + 7) * 3]


def test_layout_bound_of_few_microbatches_is_close_on_equal_stages():
    for ranks, microbatches, share in ((8, 8, 0.94), (16, 16, 0.95), (8, 4, 0.9), (32, 8, 0.85)):
        real = 3 * (microbatches + ranks - 1)
        bound = int(layout_bound(Schedule.ONE_F_ONE_B, ranks, microbatches, ranks, 2 * ranks, 3, 0))
        assert share * real <= bound <= real


def test_terms_never_exceed_any_cut():
    met = 0
    for seed in range(1500):
        problem = step_problem(seed, max_blocks=8)
        cuts = all_cuts(problem)
        values = prices_of(problem).evaluate(cuts).value
        terms = StageTerms(problem)
        stage = np.arange(problem.num_stages)[None, :]
        x, y = cuts[:, :-1] - terms.low[:-1], cuts[:, 1:] - terms.low[1:]
        bound = terms.primary[stage, x, y].max(1) + terms.secondary[stage, x, y].max(1)
        real = values < UNREACHABLE
        met += int(real.sum())
        assert (bound[real] <= values[real]).all(), seed
    assert met > 2000


def test_root_bound_never_exceeds_the_best_and_windows_lose_nothing():
    closed = feasible = 0
    for seed in range(1200):
        problem = step_problem(seed)
        values = prices_of(problem).evaluate(all_cuts(problem)).value
        best = int(values.min())
        bound, _ = root_bound(problem)
        if best == UNREACHABLE:
            assert bound is None
            continue
        feasible += 1
        assert bound is not None
        assert bound <= best, seed
        closed += bound == best
        unlimited, _ = StageTerms(problem).bound()
        assert unlimited <= best, seed
        below, _ = root_bound(problem, upper_bound=best)
        assert below <= best
        above, _ = root_bound(problem, upper_bound=best + 1)
        assert above <= best
        # Every cut at or under a ceiling lies inside its windows, under its own value.
        ceiling = best + (int(values[values < UNREACHABLE].max()) - best) // (1 + seed % 4)
        terms = StageTerms(problem, ceiling)
        rows = all_cuts(problem)[values <= ceiling]
        assert terms.below(rows, None).tolist() == rows.tolist(), seed
        stage = np.arange(problem.num_stages)[None, :]
        x, y = rows[:, :-1] - terms.low[:-1], rows[:, 1:] - terms.low[1:]
        inside = terms.primary[stage, x, y].max(1) + terms.secondary[stage, x, y].max(1)
        assert (inside <= values[values <= ceiling]).all(), seed
    assert feasible > 500
    assert closed > feasible / 2
