"""The plain enumeration that judges bounds, against every cut of small chains."""

from __future__ import annotations

from itertools import combinations

import pytest
from instances import make_problem
from step_instances import step_problem

from planner.schedules.exhaust import nothing_below
from planner.schedules.simulate import RECURRENT
from planner.schedules.step import evaluate_cuts
from planner.solvers.step_time import solve_step_time


def values(problem):
    for interior in combinations(range(1, problem.num_blocks), problem.num_stages - 1):
        evaluation = evaluate_cuts(problem, (0, *interior, problem.num_blocks))
        if evaluation is not None:
            yield evaluation.value


def test_equals_brute_force():
    feasible = 0
    for seed in range(70_000, 71_000):
        problem = step_problem(seed, max_blocks=8)
        found = list(values(problem))
        if not found:
            assert nothing_below(problem, 10**15) is True
            continue
        feasible += 1
        best = min(found)
        assert nothing_below(problem, best) is True, seed
        assert nothing_below(problem, best + 1) is False, seed
        assert nothing_below(problem, best - 7) is True, seed
        assert nothing_below(problem, max(found) + 50) is False, seed
    assert feasible > 400


def test_a_node_limit_never_decides_wrongly():
    undecided = 0
    for seed in range(71_000, 71_200):
        problem = step_problem(seed, max_blocks=8)
        found = list(values(problem))
        if not found:
            continue
        for limit in (min(found), min(found) + 1):
            answer = nothing_below(problem, limit, max_nodes=4)
            undecided += answer is None
            assert answer in (None, limit == min(found))
    assert undecided > 20


def test_more_stages_than_blocks():
    assert nothing_below(make_problem([1, 2], 3), 10**9) is True


@pytest.mark.parametrize("schedule", RECURRENT)
def test_proves_a_model_sized_chain_in_few_nodes(schedule):
    times = [5, *[100] * 32, 70]
    problem = make_problem(
        times, 8, backward=[2 * t for t in times], num_microbatches=64, schedule=schedule
    )
    best = solve_step_time(problem)
    assert best.proven
    assert nothing_below(problem, best.value) is True
    assert nothing_below(problem, best.value + 1) is False
