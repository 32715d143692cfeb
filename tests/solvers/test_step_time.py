"""The step-time solver against every cut of small chains, and on model-like chains."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from instances import make_problem
from step_instances import step_problem

from planner.deadlines import NEVER, Deadline, within
from planner.schedules import stage_terms
from planner.schedules.bounds import root_bound
from planner.schedules.simulate import RECURRENT
from planner.schedules.step import evaluate_cuts
from planner.solvers import step_search, step_time
from planner.solvers.step_time import solve_step_time
from planner.specs import Recompute, Schedule, Sends


def every_evaluation(problem):
    for interior in combinations(range(1, problem.num_blocks), problem.num_stages - 1):
        evaluation = evaluate_cuts(problem, (0, *interior, problem.num_blocks))
        if evaluation is not None:
            yield evaluation


def check_against_brute_force(problem, deadline=NEVER, **arguments):
    with within(deadline):
        solution = solve_step_time(problem, **arguments)
    evaluations = list(every_evaluation(problem))
    if not evaluations:
        assert solution.infeasible or (solution.cuts is None and deadline is not NEVER)
        assert solution.cuts is None
        return None
    best = min(e.value for e in evaluations)
    assert not solution.infeasible
    assert solution.bound <= best
    if solution.value is None:  # no seed was given, and no time to look for a cut
        assert deadline is not NEVER
        return solution
    assert solution.value >= best
    if solution.proven:
        assert solution.value == best == solution.bound
    chosen = evaluate_cuts(problem, solution.cuts)
    assert (chosen.value, chosen.makespan) == (solution.value, solution.makespan)
    assert chosen.bottleneck == solution.bottleneck
    assert chosen.choices == solution.choices
    if solution.bound_kind == "interval_dp":
        assert root_bound(problem, solution.witness["upper_bound"])[0] >= solution.bound
    return solution


@pytest.mark.parametrize(
    ("first_seed", "few_leaves", "simulate_up_to"),
    [(10_000, 32, 3), (11_700, 0, 100), (13_400, 0, 0)],
    ids=["as shipped", "always simulate prefixes", "never simulate prefixes"],
)
def test_equals_brute_force(monkeypatch, first_seed, few_leaves, simulate_up_to):
    monkeypatch.setattr(step_search, "_FEW_LEAVES", few_leaves)
    monkeypatch.setattr(step_search, "_SIMULATE_UP_TO", simulate_up_to)
    feasible = at_root = 0
    for seed in range(first_seed, first_seed + 1700):
        solution = check_against_brute_force(step_problem(seed, max_blocks=8))
        if solution is not None:
            assert solution.proven, seed
            feasible += 1
            at_root += solution.nodes == 0
    assert feasible >= 700
    assert at_root > 0.7 * feasible


def test_seeds_and_limits_never_spoil_the_bound():
    for seed in range(20_000, 20_500):
        problem = step_problem(seed, max_blocks=8)
        evaluations = list(every_evaluation(problem))
        seeds = [e.cuts for e in evaluations[:2]]
        check_against_brute_force(problem, seeds=[*seeds, (0, 0)], node_limit=seed % 4)
        if not evaluations:
            continue
        best = min(e.value for e in evaluations)
        for limit in (best - 3, best, best + 1, best + 50):
            solution = solve_step_time(problem, seeds=seeds, upper_bound=limit)
            assert solution.bound <= best
            assert solution.bound >= min(limit, best)
            if limit > best:
                assert solution.value == best


def test_expired_deadline_still_answers_with_a_bound():
    for seed in range(30_000, 30_200):
        check_against_brute_force(step_problem(seed), Deadline(time.monotonic() - 1))


@pytest.mark.parametrize("cells", [1, 12, 40])
def test_tables_that_cannot_be_afforded_weaken_the_bound_and_nothing_else(monkeypatch, cells):
    monkeypatch.setattr(stage_terms, "_MAX_CELLS", cells)
    found = 0
    for seed in range(40_000, 40_400):
        problem = step_problem(seed, max_blocks=8)
        evaluations = list(every_evaluation(problem))
        seeds = [e.cuts for e in evaluations[:1]]
        solution = solve_step_time(problem, seeds=seeds)
        if not evaluations:
            assert solution.cuts is None
            continue
        best = min(e.value for e in evaluations)
        assert solution.bound <= best <= solution.value
        bound, _ = root_bound(problem)
        assert bound is not None
        assert bound <= best
        found += 1
    assert found > 100


def test_repeats_itself():
    for seed in range(40):
        problem = step_problem(seed)
        assert solve_step_time(problem) == solve_step_time(replace(problem))


def test_scale_changes_nothing():
    for seed in range(300):
        problem = step_problem(seed, max_blocks=7)
        names = (
            "forward", "input_gradient", "weight_gradient", "selective_extra", "full_extra",
            "edge_forward", "edge_backward", "reduction", "update",
        )  # fmt: skip
        larger = replace(
            problem,
            **{name: getattr(problem, name) * 10**6 for name in names},
            reduction_latency=problem.reduction_latency * 10**6,
            fixed_tail=problem.fixed_tail * 10**6,
        )
        one, other = solve_step_time(problem), solve_step_time(larger)
        assert one.cuts == other.cuts
        if one.value is not None:
            assert (one.value * 10**6, one.bound * 10**6) == (other.value, other.bound)


def model_like(blocks, stages, microbatches, *, edge=0, schedule=Schedule.ONE_F_ONE_B):
    times = [5, *[1000] * (blocks - 2), 700]
    problem = make_problem(
        times,
        stages,
        backward=[2 * t for t in times],
        num_microbatches=microbatches,
        schedule=schedule,
        edges=edge,
        edges_backward=[[edge] * (blocks + 1)],
    )
    update = np.full(blocks, 40, np.int64)
    update[0] = 150
    reduction = np.full(blocks, 800, np.int64)
    reduction[0] = 2000
    return replace(problem, update=update, reduction=reduction, overlap_reduction=True)


@pytest.mark.parametrize("schedule", RECURRENT)
@pytest.mark.parametrize("microbatches", [8, 64, 512])
@pytest.mark.parametrize(("blocks", "stages"), [(34, 4), (82, 8), (98, 16), (130, 32)])
def test_models_without_communication_are_proved(schedule, microbatches, blocks, stages):
    problem = replace(
        model_like(blocks, stages, microbatches, schedule=schedule),
        update=np.zeros(blocks, np.int64),
        reduction=np.zeros(blocks, np.int64),
    )
    solution = solve_step_time(problem)
    assert solution.proven


def test_forced_recompute_is_part_of_the_price():
    problem = make_problem(
        [10] * 6, 2, backward=20, modes=(Recompute.NONE, Recompute.LAYERS), full_extra=10,
        kept=10, kept_full=1, budget=[40, 40], num_microbatches=4,
    )  # fmt: skip
    solution = check_against_brute_force(problem)
    assert solution.proven
    assert any(choice.extra for choice in solution.choices)


def test_nothing_fits():
    problem = make_problem([1, 1, 1], 2, kept=5, budget=1)
    solution = solve_step_time(problem, seeds=[(0, 1, 3)])
    assert solution.infeasible
    assert not solution.proven


def test_blocking_sends_cost_more():
    problem = model_like(12, 4, 8, edge=200)
    overlapped = check_against_brute_force(problem)
    blocking = check_against_brute_force(replace(problem, sends=Sends.BLOCKING))
    assert overlapped.value < blocking.value


def test_spread_cuts_are_cuts_and_help_where_edges_count(monkeypatch):
    for seed in range(300):
        problem = step_problem(seed)
        if problem.num_stages <= problem.num_blocks:
            assert all(step_time.is_cut(problem, cuts) for cuts in step_time.ramps(problem))
    problem = replace(
        model_like(50, 32, 128, edge=300),
        update=np.zeros(50, np.int64),
        reduction=np.zeros(50, np.int64),
    )
    found = solve_step_time(problem, node_limit=200)
    monkeypatch.setattr(step_time, "ramps", lambda problem: [])
    assert found.value < 0.995 * solve_step_time(problem, node_limit=200).value
