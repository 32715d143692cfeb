"""Random chains with everything that the step time reads: tails, sends, wild edges."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
from instances import random_problem

from planner.cost.in_flight import in_flight_microbatches
from planner.cost.stage_table import ChainProblem
from planner.specs import Sends


def step_problem(seed: int, max_blocks: int = 9, max_stages: int = 5) -> ChainProblem:
    """``random_problem`` with reductions, optimizer times, either send and more micro-batches."""
    rng = random.Random(seed)
    problem = random_problem(seed, max_blocks, max_stages)
    count = problem.num_blocks
    top = int(problem.forward.max()) + 1
    scale = rng.choice([0, 0, 1, 4])

    def row(size: int) -> np.ndarray:
        return np.array([rng.randint(0, size) for _ in range(count)], np.int64)

    microbatches = rng.choice([1, 2, 3, 4, 6, 8, 13, 40])
    shape = rng.random()
    forward, gradient = problem.forward, problem.input_gradient
    weight = row(top) if rng.random() < 0.5 else problem.weight_gradient
    if shape < 0.4:  # like a model: equal blocks between light or heavy ends
        forward = np.full(count, rng.randint(1, top))
        gradient = 2 * forward
        weight = np.zeros(count, np.int64)
        forward[0] = rng.randint(0, top)
        forward[-1] = rng.randint(0, 2 * top)
    return replace(
        problem,
        forward=forward.astype(np.int64),
        input_gradient=gradient.astype(np.int64),
        weight_gradient=weight,
        sends=rng.choice([Sends.OVERLAPPED, Sends.OVERLAPPED, Sends.BLOCKING]),
        num_microbatches=microbatches,
        in_flight=np.array(
            in_flight_microbatches(problem.schedule, problem.num_stages, microbatches), np.int64
        ),
        reduction=row(scale * top),
        reduction_latency=rng.randint(0, scale),
        overlap_reduction=rng.random() < 0.6,
        update=row(scale * top // 2),
        fixed_tail=rng.randint(0, 5),
    )
