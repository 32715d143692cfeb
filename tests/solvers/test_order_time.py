"""Step time under order-simulated schedules: against enumeration of every cut."""

import pytest
from order_instances import ONE_STAGE, SEVERAL_STAGES, all_cuts, chain_under, grouped_under

from planner.schedules.cut_batch import takes_batches
from planner.schedules.general_bounds import none_below
from planner.schedules.step import evaluate_cuts
from planner.solvers.chain import solve_bottleneck
from planner.solvers.step_time import solve_step_time


def enumerate_values(problem):
    values = [evaluate_cuts(problem, cuts) for cuts in all_cuts(problem)]
    return [found.value for found in values if found is not None]


@pytest.mark.parametrize("schedule", [s for s in ONE_STAGE if takes_batches(s)])
def test_equals_enumeration_with_enough_nodes(schedule):
    fitting = 0
    for seed in range(80):
        problem = chain_under(schedule, 500 + seed)
        if problem is None:
            continue
        values = enumerate_values(problem)
        solution = solve_step_time(problem, node_limit=20000)
        if not values:
            assert solution.cuts is None
            assert solution.infeasible
            continue
        fitting += 1
        assert solution.value == min(values)
        assert solution.bound == solution.value
        assert solution.proven
        found = evaluate_cuts(problem, solution.cuts)
        assert (found.value, found.choices) == (solution.value, solution.choices)
        assert none_below(problem, solution.value, 2000) is True
        assert none_below(problem, solution.value + 1, 2000) is False
    assert fitting > 25


@pytest.mark.parametrize("schedule", ONE_STAGE)
def test_without_nodes_the_bound_holds(schedule):
    for seed in range(40 if takes_batches(schedule) else 10):
        problem = chain_under(schedule, 900 + seed)
        if problem is None:
            continue
        values = enumerate_values(problem)
        solution = solve_step_time(problem, node_limit=0)
        if values:
            assert solution.bound <= min(values) <= (solution.value or min(values))


@pytest.mark.parametrize("schedule", SEVERAL_STAGES)
def test_several_stages_a_rank_are_within_their_bound(schedule):
    close = found = 0
    for seed in range(80):
        problem = grouped_under(schedule, 3000 + seed)
        if problem is None:
            continue
        values = enumerate_values(problem)
        balanced = solve_bottleneck(problem)
        if values:
            assert balanced is not None  # the table's own limits are necessary ones
        solution = solve_step_time(problem, node_limit=2000)
        if solution.cuts is None:
            continue
        found += 1
        assert solution.bound <= min(values) <= solution.value
        close += solution.value <= 1.05 * min(values)
        assert evaluate_cuts(problem, solution.cuts).value == solution.value
    assert found > 10
    assert close >= 0.8 * found
