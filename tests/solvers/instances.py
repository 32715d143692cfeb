"""Chain problems for tests: a plain builder, and a random one that reaches every corner."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from planner.cost.in_flight import in_flight_microbatches
from planner.cost.stage_table import ChainProblem, TiedPair
from planner.specs import Recompute, Schedule, Sends

HUGE = 10**12


def _row(values: Sequence[int] | int | None, count: int, default: int = 0) -> np.ndarray:
    if values is None:
        values = default
    if isinstance(values, int):
        return np.full(count, values, np.int64)
    return np.array(values, np.int64)


def make_problem(
    times: Sequence[int],
    num_stages: int,
    *,
    backward: Sequence[int] | int | None = None,
    num_microbatches: int = 8,
    schedule: Schedule = Schedule.ONE_F_ONE_B,
    modes: Sequence[Recompute] = (Recompute.NONE,),
    selective_extra: Sequence[int] | int | None = None,
    full_extra: Sequence[int] | int | None = None,
    recomputable: Sequence[bool] | None = None,
    edges: Sequence[Sequence[int]] | Sequence[int] | int = 0,
    edges_backward: Sequence[Sequence[int]] | None = None,
    tiers: Sequence[int] | None = None,
    static: Sequence[int] | int = 0,
    kept: Sequence[int] | int = 0,
    kept_selective: Sequence[int] | int | None = None,
    kept_full: Sequence[int] | int | None = None,
    transient: Sequence[int] | int = 0,
    transient_full: Sequence[int] | int | None = None,
    buffer_bytes: int = 0,
    tied: Sequence[TiedPair] = (),
    budget: Sequence[int] | int = HUGE,
    legal: Sequence[bool] | None = None,
    low: Sequence[int] | None = None,
    high: Sequence[int] | None = None,
) -> ChainProblem:
    """A chain whose blocks take ``times`` forward (backward 0 unless given); all else is free.

    ``edges`` is one number for all interior cuts, N+1 numbers, or one row of N+1 a tier.
    """
    count = len(times)
    if isinstance(edges, int):
        edges = [edges] * (count + 1)
    forward_edges = np.atleast_2d(np.array(edges, np.int64))
    forward_edges[:, 0] = forward_edges[:, -1] = 0
    backward_edges = np.zeros_like(forward_edges)
    if edges_backward is not None:
        backward_edges = np.atleast_2d(np.array(edges_backward, np.int64))
        backward_edges[:, 0] = backward_edges[:, -1] = 0
    kept_row = _row(kept, count)
    transient_row = _row(transient, count)
    return ChainProblem(
        block_names=tuple(f"block{i}" for i in range(count)),
        num_stages=num_stages,
        num_microbatches=num_microbatches,
        schedule=schedule,
        sends=Sends.OVERLAPPED,
        quantum_ms="0.000001",
        forward=_row(times, count),
        input_gradient=_row(backward, count),
        weight_gradient=np.zeros(count, np.int64),
        selective_extra=_row(selective_extra, count),
        full_extra=_row(full_extra, count),
        recomputable=np.array(recomputable if recomputable is not None else [True] * count, bool),
        recompute_modes=tuple(modes),
        edge_forward=forward_edges,
        edge_backward=backward_edges,
        boundary_tier=_row(tiers, num_stages - 1),
        static_bytes=_row(static, count),
        kept_bytes=kept_row,
        kept_selective_bytes=kept_row if kept_selective is None else _row(kept_selective, count),
        kept_full_bytes=kept_row if kept_full is None else _row(kept_full, count),
        transient_bytes=transient_row,
        transient_full_bytes=(
            transient_row if transient_full is None else _row(transient_full, count)
        ),
        buffer_bytes=buffer_bytes,
        tied=tuple(tied),
        in_flight=np.array(
            in_flight_microbatches(schedule, num_stages, num_microbatches), np.int64
        ),
        budget_bytes=_row(budget, num_stages),
        legal_cut=np.array(legal if legal is not None else [True] * (count + 1), bool),
        stage_low=_row(low, count),
        stage_high=_row(high, count, num_stages - 1),
        reduction=np.zeros(count, np.int64),
        reduction_latency=0,
        overlap_reduction=False,
        update=np.zeros(count, np.int64),
        fixed_tail=0,
    )


MODE_SETS: tuple[tuple[Recompute, ...], ...] = (
    (Recompute.NONE,),
    (),
    (Recompute.SELECTIVE,),
    (Recompute.FULL,),
    (Recompute.NONE, Recompute.SELECTIVE),
    (Recompute.NONE, Recompute.FULL),
    (Recompute.SELECTIVE, Recompute.FULL),
    (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL),
    (Recompute.LAYERS,),
    (Recompute.NONE, Recompute.LAYERS),
    (Recompute.SELECTIVE, Recompute.LAYERS),
    tuple(Recompute),
)


def random_problem(seed: int, max_blocks: int = 10, max_stages: int = 5) -> ChainProblem:
    """A random chain; the seed alone decides it.

    Cut costs are absent, constant, mild or wild, on one tier or several; memory is free, tight
    or hopeless, equal or not over ranks; all recompute modes, pins, illegal cuts, tied pairs.
    """
    rng = random.Random(seed)

    def draw(count: int, top: int) -> list[int]:
        return [rng.randint(0, top) for _ in range(count)]

    # Small chains are as telling as large ones and far cheaper to enumerate.
    count = rng.randint(*rng.choice([(1, min(4, max_blocks)), (min(4, max_blocks), max_blocks)]))
    stages = min(rng.randint(1, max_stages + 2), max_stages, count)
    top = rng.choice([3, 20, 1000])
    times, backward = draw(count, top), draw(count, top)
    tiers = rng.choice([1, 1, 2, 3])
    kind = rng.choice(["none", "constant", "constant", "mild", "wild"])
    rows, rows_back = [], []
    for _ in range(tiers):
        if kind == "none":
            row, back = [0] * (count + 1), [0] * (count + 1)
        elif kind == "constant":
            row, back = [rng.randint(0, top)] * (count + 1), [rng.randint(0, top)] * (count + 1)
        else:
            size = top // 4 if kind == "mild" else 3 * top
            row, back = draw(count + 1, size), draw(count + 1, size)
        rows.append(row)
        rows_back.append(back)
    kept = draw(count, 30)
    transient = draw(count, 20) if rng.random() < 0.6 else [rng.randint(0, 20)] * count
    static = draw(count, 60)
    schedule = rng.choice([Schedule.ONE_F_ONE_B, Schedule.ONE_F_ONE_B, Schedule.GPIPE])
    microbatches = rng.randint(1, 6)
    flight = max(in_flight_microbatches(schedule, stages, microbatches))
    share = (sum(static) + flight * sum(kept)) / stages
    tightness = rng.choice([0.3, 0.7, 1.0, 1.3, 2.0, 1e6])
    budget = [max(1, int(share * tightness) + 10)] * stages
    if rng.random() < 0.35:
        budget = [max(1, int(value * rng.uniform(0.5, 1.6))) for value in budget]
    legal = [True] * (count + 1)
    if rng.random() < 0.2:
        legal = [True, *(rng.random() < 0.7 for _ in range(count - 1)), True]
    low, high = [0] * count, [stages - 1] * count
    if rng.random() < 0.2:
        for _ in range(rng.randint(1, 2)):
            block, stage = rng.randrange(count), rng.randrange(stages)
            low[block] = max(low[block], stage)
            high[block] = min(high[block], stage) if rng.random() < 0.7 else high[block]
    tied = []
    if count > 1 and rng.random() < 0.25:
        first = rng.randrange(count - 1)
        second = rng.randrange(first + 1, count)
        # Mostly real sharing; now and then more than a block has, which no order survives.
        most = min(static[first], static[second]) if rng.random() < 0.8 else 60
        tied.append(TiedPair(first, second, rng.randint(0, most)))
    return make_problem(
        times,
        stages,
        backward=backward,
        num_microbatches=microbatches,
        schedule=schedule,
        modes=rng.choice(MODE_SETS) if rng.random() < 0.7 else (Recompute.NONE,),
        selective_extra=draw(count, max(1, top // 3)),
        full_extra=draw(count, top),
        recomputable=[rng.random() < 0.8 for _ in range(count)],
        edges=rows,
        edges_backward=rows_back,
        tiers=[rng.randrange(tiers) for _ in range(stages - 1)],
        static=static,
        kept=kept,
        kept_selective=[rng.randint(0, value) for value in kept],
        kept_full=[rng.randint(0, value) for value in kept],
        transient=transient,
        transient_full=[value + rng.randint(0, 20) for value in transient],
        buffer_bytes=rng.choice([0, 0, 5]),
        tied=tied,
        budget=budget,
        legal=legal,
        low=low,
        high=high,
    )
