from instances import make_problem

from planner.solvers.brute_force import best_bottleneck, best_step_time, feasible_cuts


def test_known_optimum_by_hand():
    assert best_bottleneck(make_problem([1, 5, 2, 2, 1], 3)) == (5, (0, 1, 2, 5))


def test_edges_are_paid_by_both_neighbours():
    # [3 | 4] with a cut of 10: stages cost 13 and 14.
    assert best_bottleneck(make_problem([3, 4], 2, edges=10)) == (14, (0, 1, 2))


def test_every_cut_is_visited_once_in_order():
    cuts = [cuts for cuts, _ in feasible_cuts(make_problem([1] * 6, 3))]
    assert cuts == sorted(set(cuts))
    assert len(cuts) == 10  # choose 2 of 5


def test_memory_and_pins_rule_cuts_out():
    problem = make_problem([1] * 4, 2, static=1, budget=[1, 3])
    assert best_bottleneck(problem) == (3, (0, 1, 4))
    assert best_bottleneck(make_problem([1] * 4, 2, static=1, budget=[1, 2])) is None
    assert best_bottleneck(make_problem([1] * 4, 2, low=[0, 0, 0, 1])) == (2, (0, 2, 4))
    assert best_bottleneck(make_problem([1] * 4, 2, high=[1, 1, 0, 1])) == (3, (0, 3, 4))


def test_step_time_uses_the_given_evaluation():
    problem = make_problem([1] * 4, 2)
    assert best_step_time(problem, lambda cuts: cuts[1]) == (1, (0, 1, 4))
    assert best_step_time(problem, lambda cuts: -cuts[1]) == (-3, (0, 3, 4))
