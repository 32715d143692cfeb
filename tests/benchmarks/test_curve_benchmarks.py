"""Scaling curves; ``pytest tests/benchmarks/test_curve_benchmarks.py --benchmark-only -s``.

Nothing is asserted about time: the suite counts work instead
(``tests/studies/test_scaling_curve.py``). Printed: CPU time of a cold curve (another batch each
time), of a mix of jobs, and how often points equal ``planner.plan``.
"""

from __future__ import annotations

import itertools
import random
import statistics
import time

import pytest

import planner
from planner.studies.curve_allocations import allocation_cluster

LARGE = (64, 128, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 16384)
MEDIUM = (16, 32, 48, 64, 96, 128, 256, 384, 512, 768, 1024, 2048)
SMALL = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
MODELS = {
    "llama3-8b": SMALL, "llama3-70b": MEDIUM, "llama3-405b": LARGE, "gpt3-175b": LARGE,
    "llama2-7b": SMALL, "llama2-13b": SMALL, "gpt-22b": SMALL, "mixtral-8x7b": MEDIUM,
    "bloom-176b": LARGE, "gpt-neox-20b": SMALL,
}  # fmt: skip
CLUSTERS = ("dgx-h100:2048", "dgx-a100-80gb:2048")


def jobs(count: int, seed: int = 11) -> list[dict[str, object]]:
    """Jobs as a scheduler has them: ten models, different batches, lengths and GPUs."""
    draw = random.Random(seed)
    found = []
    for number, (model, sizes) in zip(range(count), itertools.cycle(MODELS.items()), strict=False):
        large = sizes is LARGE
        batches = (1024, 1536, 2048, 3072, 4096) if large else (128, 256, 384, 512, 1024, 2048)
        found.append(
            {
                "model": planner.load_model(model),
                "cluster": planner.load_cluster(CLUSTERS[number % 3 == 0]),
                "allocations": list(sizes),
                "global_batch_size": draw.choice(batches),
                "sequence_length": draw.choice((2048, 4096, 8192)),
            }
        )
    return found


def curve_of(job: dict[str, object]) -> planner.curves.ScalingCurve:
    question = dict(job)
    return planner.scaling_curve(question.pop("model"), question.pop("cluster"), **question)


def test_one_cold_curve_of_a_large_model(benchmark: object) -> None:
    model, cluster = planner.load_model("llama3-405b"), planner.load_cluster("dgx-h100:2048")
    batches = itertools.count(1024, 128)

    def cold() -> planner.curves.ScalingCurve:
        return planner.scaling_curve(
            model, cluster, allocations=LARGE, global_batch_size=next(batches),
            sequence_length=8192,
        )  # fmt: skip

    cold()  # loads the compiled loops
    benchmark.pedantic(cold, rounds=20)


def test_a_mix_of_jobs(benchmark: object) -> None:
    mixed = jobs(100)
    curve_of(mixed[0])
    spent: list[float] = []

    def round_of_jobs() -> None:
        for job in mixed:
            start = time.process_time()
            curve_of(job)
            spent.append(time.process_time() - start)

    benchmark.pedantic(round_of_jobs, rounds=1)
    each_ms = 1e3 * statistics.mean(spent)
    print(
        f"\n{len(mixed)} jobs of 12 sizes: {each_ms:.1f} ms CPU a curve, "
        f"500 jobs on two processes {500 * each_ms / 2e3:.1f} s"
    )


@pytest.mark.parametrize("seed", [7])
def test_points_against_plans(benchmark: object, seed: int) -> None:
    compared = equal = 0
    worst = 0.0
    draw = random.Random(seed)
    mixed = draw.sample(jobs(40, seed), 6)

    def compare() -> None:
        nonlocal compared, equal, worst
        for job in mixed:
            curve = curve_of(job)
            for point in draw.sample([p for p in curve.points if p.layout is not None], 4):
                plan = planner.plan(
                    job["model"],
                    allocation_cluster(job["cluster"], point.allocation),
                    global_batch_size=job["global_batch_size"],
                    sequence_length=job["sequence_length"],
                    work_limit=2_500,
                    runners_up=0,
                )
                loss = point.step_time_ms / plan.step_time_ms - 1
                compared += 1
                equal += loss < 1e-9
                worst = max(worst, loss)
                assert point.bound_ms <= plan.step_time_ms * (1 + 1e-9)

    benchmark.pedantic(compare, rounds=1)
    print(
        f"\n{equal} of {compared} points equal planner.plan, the worst is {100 * worst:.2f} % off"
    )
