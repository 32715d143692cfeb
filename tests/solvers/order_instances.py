"""Random chains under schedules that are simulated by their order, grouped or not."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations

import numpy as np
from step_instances import step_problem

from planner.cost.in_flight import allowed_recompute, in_flight_microbatches
from planner.cost.stage_table import ChainProblem
from planner.schedule_rules import RULES, shape_problem, stages_of_rank
from planner.specs import Schedule

ONE_STAGE = [
    s
    for s in Schedule
    if not RULES[s].several_stages
    and s not in (Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.NAIVE)
]
SEVERAL_STAGES = [s for s in Schedule if RULES[s].several_stages]


def chain_under(schedule: Schedule, seed: int, max_blocks: int = 7) -> ChainProblem | None:
    """A random chain with one stage a rank; None where the schedule keeps no recompute mode."""
    problem = step_problem(seed, max_blocks, 4)
    modes = allowed_recompute(schedule, problem.recompute_modes)
    if problem.recompute_modes and not modes:
        return None
    flight = in_flight_microbatches(schedule, problem.num_stages, problem.num_microbatches)
    return replace(
        problem, schedule=schedule, recompute_modes=modes, in_flight=np.array(flight, np.int64)
    )


def grouped_under(schedule: Schedule, seed: int) -> ChainProblem | None:
    """A random chain whose ranks hold several stages; None where the shape is not legal."""
    rng = random.Random(seed)
    ranks = rng.choice([1, 2, 2, 3, 4])
    chunks = RULES[schedule].chunks or rng.choice([2, 3])
    microbatches = rng.choice([1, 2, 3, 4, 6, 8, 12])
    if shape_problem(schedule, ranks, microbatches, chunks) is not None:
        return None
    stages = ranks if RULES[schedule].two_way else ranks * chunks
    problem = step_problem(seed, stages + 4, stages)
    if problem.num_blocks < stages:
        return None
    modes = allowed_recompute(schedule, problem.recompute_modes)
    if problem.recompute_modes and not modes:
        return None
    tiers = len(problem.edge_forward)
    border = np.array([rng.randrange(tiers) for _ in range(stages - 1)], np.int64)
    budget = int(problem.budget_bytes[0]) * rng.choice([1, 2, 4])
    count = problem.num_blocks
    return replace(
        problem,
        schedule=schedule,
        num_stages=stages,
        num_microbatches=microbatches,
        recompute_modes=modes,
        in_flight=np.ones(stages, np.int64),
        budget_bytes=np.full(stages, budget, np.int64),
        boundary_tier=border,
        mirrored_tier=border[::-1].copy() if RULES[schedule].two_way else None,
        stage_low=np.zeros(count, np.int64),
        stage_high=np.full(count, stages - 1, np.int64),
        rank_stages=stages_of_rank(schedule, ranks, chunks),
    )


def all_cuts(problem: ChainProblem) -> list[tuple[int, ...]]:
    """Every vector of rising positions from 0 to N."""
    inner = range(1, problem.num_blocks)
    chosen = combinations(inner, problem.num_stages - 1)
    return [(0, *cuts, problem.num_blocks) for cuts in chosen]
