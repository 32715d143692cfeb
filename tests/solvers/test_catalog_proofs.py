"""Without communication, every partition of the catalog's models is proved."""

from __future__ import annotations

from catalog_chains import catalog_chains

from planner.cost.tables import FixedLink
from planner.schedules.step import evaluate_cuts
from planner.solvers.chain import solve_bottleneck
from planner.solvers.step_time import solve_step_time


def test_every_partition_without_communication_is_proved():
    count = 0
    for name, layout, problem in catalog_chains(FixedLink(), (2, 4, 8, 16, 32, 64)):
        bottleneck = solve_bottleneck(problem)
        solution = solve_step_time(problem, seeds=[bottleneck.cuts], node_limit=40_000)
        assert solution.proven, (name, layout.short(), solution.value, solution.bound)
        count += 1
        if count % 7 == 0:
            evaluated = evaluate_cuts(problem, solution.cuts)
            assert evaluated.value == solution.value == solution.bound
    assert count > 1000
