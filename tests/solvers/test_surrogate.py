from itertools import pairwise

import pytest
from instances import make_problem, random_problem

from planner.solvers import chain_packed
from planner.solvers.brute_force import best_step_time
from planner.solvers.chain import solve_bottleneck
from planner.solvers.surrogate import solve_surrogate, surrogate_value

KERNELS = ["python", *(["numba"] if chain_packed.numba_installed() else [])]


def closed_form(problem, cuts):
    costs = [problem.stage_cost(s, *ends) for s, ends in enumerate(pairwise(cuts))]
    return sum(costs) + (problem.num_microbatches - 1) * max(costs)


@pytest.mark.parametrize("block", range(4))
def test_equals_brute_force(block):
    chased = 0
    for seed in range(600 * block, 600 * (block + 1)):
        problem = random_problem(seed)
        expected = best_step_time(problem, lambda cuts: closed_form(problem, cuts))  # noqa: B023
        bottleneck = solve_bottleneck(problem)
        if expected is None:
            assert bottleneck is None
            continue
        answers = [solve_surrogate(problem, bottleneck, kernel=kernel) for kernel in KERNELS]
        assert len(set(answers)) == 1, seed
        for cuts in answers:
            assert closed_form(problem, cuts) == expected[0], seed
            assert surrogate_value(problem, cuts) == expected[0]
        chased += closed_form(problem, bottleneck.cuts) != expected[0]
    assert chased > 3


def test_uniform_cuts_leave_the_bottleneck_optimal():
    problem = make_problem([3, 1, 4, 1, 5, 9, 2, 6], 3, edges=2)
    bottleneck = solve_bottleneck(problem)
    assert solve_surrogate(problem, bottleneck) == bottleneck.cuts


def test_cuts_that_do_not_fit_have_no_value():
    problem = make_problem([1, 1], 1, static=5, budget=9)
    with pytest.raises(ValueError, match="does not fit"):
        surrogate_value(problem, (0, 2))
