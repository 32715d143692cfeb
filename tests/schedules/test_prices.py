"""Array prices equal the plain definitions, cell by cell and cut by cut."""

from __future__ import annotations

import sys
from itertools import combinations
from pathlib import Path

import numpy as np

from planner.schedules.prices import UNREACHABLE, prices_of
from planner.schedules.step import evaluate_cuts

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "solvers"))
from step_instances import step_problem


def test_cells_equal_definitions():
    for seed in range(120):
        problem = step_problem(seed)
        prices = prices_of(problem)
        cells = [
            (s, a, e)
            for s in range(problem.num_stages)
            for a in range(problem.num_blocks)
            for e in range(a + 1, problem.num_blocks + 1)
        ]
        stage, start, end = (np.array(x, np.int64) for x in zip(*cells, strict=True))
        allowed = prices.allowed(stage, start, end)
        extra, memory = prices.recompute(stage, start, end)
        exposed = prices.exposed_reduction(start, end)
        for i, (s, a, e) in enumerate(cells):
            choice = problem.recompute_choice(s, a, e)
            assert allowed[i] == problem.allowed(s, a, e)
            assert (extra[i] == UNREACHABLE) == (choice is None)
            if choice is not None:
                assert (extra[i], memory[i]) == (choice.extra, choice.memory_bytes)
            assert exposed[i] == problem.exposed_reduction(a, e)
        if prices.memory_is_free:
            assert (extra == 0).all()


def test_cut_values_equal_evaluation():
    compared = 0
    for seed in range(1000):
        problem = step_problem(seed, max_blocks=7)
        interior = list(combinations(range(1, problem.num_blocks), problem.num_stages - 1))
        cuts = np.array([(0, *c, problem.num_blocks) for c in interior], np.int64)
        for rows in (cuts, cuts[:2]):
            values = prices_of(problem).evaluate(rows)
            for k, row in enumerate(rows.tolist()):
                plain = evaluate_cuts(problem, row)
                assert (plain is None) == (values.value[k] == UNREACHABLE)
                if plain is not None:
                    compared += 1
                    assert plain.value == values.value[k]
                    assert plain.makespan == values.makespan[k]
                    assert plain.choices == prices_of(problem).choices(plain.cuts)
                    assert plain.bottleneck == values.bottleneck[k]
                    assert plain.lightest_stage == values.lightest[k]
                    assert plain.peak_bytes == values.peak_bytes[k]
    assert compared > 1000
