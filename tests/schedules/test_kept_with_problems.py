"""What is kept with a problem goes when the problem goes."""

import gc
import weakref

import pytest
from order_instances import chain_under, grouped_under

from planner.schedules.cut_batch import batch_of
from planner.schedules.general_bounds import general_terms
from planner.solvers.step_time import solve_step_time
from planner.specs import Schedule


@pytest.mark.parametrize("schedule", [Schedule.ZB_H1, Schedule.ZB_V, Schedule.ONE_F_ONE_B])
def test_problems_are_not_kept(schedule):
    make = grouped_under if schedule is Schedule.ZB_V else chain_under
    problem = next(filter(None, (make(schedule, seed) for seed in range(99))))
    batch_of(problem)
    if not problem.is_grouped:
        general_terms(problem)
    solve_step_time(problem, node_limit=50)
    gone = weakref.ref(problem)
    del problem
    gc.collect()
    assert gone() is None
