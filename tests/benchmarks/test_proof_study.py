"""How often a partition with communication is proved, the gap that is left, and what the popular
formula alone would lose. Run with --benchmark-only -s."""

from __future__ import annotations

from statistics import mean

from catalog_chains import catalog_chains

from planner.cost.tables import FixedLink
from planner.schedules.step import evaluate_cuts
from planner.solvers.chain import solve_bottleneck
from planner.solvers.step_time import solve_step_time
from planner.solvers.surrogate import solve_surrogate


def study(link):
    gaps, losses, count = [], [], 0
    for _, _, problem in catalog_chains(link, (4, 8, 16, 32)):
        bottleneck = solve_bottleneck(problem)
        popular = evaluate_cuts(problem, solve_surrogate(problem, bottleneck))
        solution = solve_step_time(problem, seeds=[bottleneck.cuts], node_limit=5_000)
        count += 1
        if not solution.proven:
            gaps.append((solution.value - solution.bound) / solution.value)
        losses.append((popular.value - solution.value) / solution.value)
    return count, gaps, losses


def test_partitions_with_communication(benchmark):
    link = FixedLink(bandwidth_bytes_per_s=25e9, latency_ms=0.005)
    count, gaps, losses = benchmark.pedantic(study, args=(link,), rounds=1)
    print(
        f"\n{count} partitions at 25 GB/s and 5 us: {count - len(gaps)} proved, mean gap of the "
        f"rest {100 * mean(gaps or [0]):.2f} %; the popular formula alone would lose "
        f"{100 * mean(losses):.2f} % on average, {100 * max(losses):.1f} % at worst"
    )
    assert min(losses) >= 0
