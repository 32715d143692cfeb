"""Chain solvers against three baselines; run with ``pytest tests/benchmarks --benchmark-only -s``.

Limits are checked against the fastest round: the machine is shared, and the slowest rounds
measure it rather than the solver. "Solve" excludes the one-off tables of a problem, which
``prepare`` measures; what memory allows at each start counts as solving.
"""

from __future__ import annotations

import numpy as np
import pytest
from baselines import bisection_on_the_limit, bisection_with_bids, compiled_program, largest_part
from instances import make_problem

from planner.cost.certificates import reachable
from planner.cost.stage_table import ChainProblem
from planner.solvers import chain_packed
from planner.solvers.chain import balanced_bottleneck, solve_bottleneck
from planner.solvers.chain_probes import GreedyProber
from planner.solvers.chain_tables import ChainTables, tables_of
from planner.solvers.surrogate import solve_surrogate
from planner.specs import Recompute

MIB = 2**20
FREE = (Recompute.NONE,)
THREE = (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)
needs_numba = pytest.mark.skipif(not chain_packed.numba_installed(), reason="numba is absent")
SHAPES = ["transformer", "random"]


def chain(
    blocks: int,
    stages: int,
    shape: str = "transformer",
    *,
    modes: tuple[Recompute, ...] = FREE,
    memory: float | None = None,
    edges: str = "constant",
    microbatches: int = 64,
) -> ChainProblem:
    """A chain in nanoseconds and bytes.

    ``memory`` is the budget as a multiple of what the first stage of an even split needs
    without recompute; None has no limit.
    """
    generator = np.random.default_rng(blocks + stages)
    if shape == "transformer":
        forward = [120_000, *[1_000_000] * (blocks - 2), 1_900_000]
    else:
        forward = generator.integers(500_000, 2_000_000, blocks).tolist()
    edge_row = {
        "none": [0] * (blocks + 1),
        "constant": [50_000] * (blocks + 1),
        "mild": generator.integers(50_000, 400_000, blocks + 1).tolist(),
        "wild": generator.integers(0, 6_000_000, blocks + 1).tolist(),
    }[edges]
    budget = 10**15
    kept = 34 * MIB
    if memory is not None:
        flight = min(stages, microbatches)
        budget = int(memory * blocks / stages * (300 * MIB + flight * kept)) + 230 * MIB
    return make_problem(
        forward,
        stages,
        backward=[2 * time for time in forward],
        num_microbatches=microbatches,
        modes=modes,
        selective_extra=[time // 5 for time in forward],
        full_extra=forward,
        edges=edge_row,
        static=300 * MIB,
        kept=kept,
        kept_selective=kept * 2 // 3,
        kept_full=2 * MIB,
        transient=[*[30 * MIB] * (blocks - 1), 200 * MIB],
        transient_full=[*[60 * MIB] * (blocks - 1), 200 * MIB],
        budget=budget,
    )


def report(benchmark, name: str, **counts: object) -> None:
    stats = benchmark.stats.stats
    benchmark.extra_info.update(counts)
    shown = ", ".join(f"{key} {value}" for key, value in counts.items())
    print(
        f"\n{name}: median {stats.median * 1e6:,.1f} us, fastest {stats.min * 1e6:,.1f} us, {shown}"
    )


def timed_solve(benchmark, problem: ChainProblem, kernel: str, rounds: int = 100):
    """Benchmark one solve; in Python with a fresh prober a round, so that nothing is reused."""
    tables = tables_of(problem)
    solve_bottleneck(problem, kernel=kernel)

    def fresh():
        if kernel == "python":
            tables.__dict__["_prober"] = GreedyProber(tables)
        return (problem,), {"kernel": kernel}

    solution = benchmark.pedantic(
        solve_bottleneck, setup=fresh, rounds=rounds, iterations=1, warmup_rounds=3
    )
    assert solution is not None
    assert solution.value == solution.bound
    return solution


@pytest.mark.parametrize("shape", SHAPES)
def test_130_by_16_python(benchmark, shape):
    solution = timed_solve(benchmark, chain(130, 16, shape), "python")
    report(benchmark, f"chain 130x16 {shape}, Python", **solution._asdict())
    assert benchmark.stats.stats.min <= 100e-6


@pytest.mark.parametrize("modes", [FREE, THREE], ids=["no-recompute", "three-modes"])
@pytest.mark.parametrize("shape", SHAPES)
def test_130_by_16_python_memory_binds(benchmark, shape, modes):
    problem = chain(130, 16, shape, modes=modes, memory=1.0 if modes is FREE else 0.8)
    free = solve_bottleneck(chain(130, 16, shape))
    solution = timed_solve(benchmark, problem, "python")
    assert solution.value >= free.value
    report(benchmark, f"chain 130x16 {shape}, memory binds, Python", **solution._asdict())
    assert benchmark.stats.stats.min <= 600e-6


@needs_numba
@pytest.mark.parametrize("memory", [None, 0.8], ids=["free", "memory-binds"])
@pytest.mark.parametrize("shape", SHAPES)
def test_130_by_16_compiled(benchmark, shape, memory):
    problem = chain(130, 16, shape, memory=memory, modes=FREE if memory is None else THREE)
    solution = timed_solve(benchmark, problem, "numba")
    assert solution.value == solve_bottleneck(problem).value
    report(benchmark, f"chain 130x16 {shape} memory {memory}, numba", **solution._asdict())
    if memory is None:
        assert benchmark.stats.stats.min <= 10e-6


@pytest.mark.parametrize("shape", SHAPES)
def test_130_by_16_prepare(benchmark, shape):
    problem = chain(130, 16, shape, memory=0.8, modes=THREE)
    problem.prefix  # noqa: B018 - belongs to the prices

    def prepare():
        tables = ChainTables(problem)
        GreedyProber(tables)
        return tables.cuts_monotone, tables.inclusion_monotone, tables.lower_bound, tables.ceiling

    benchmark.pedantic(prepare, rounds=50)
    report(benchmark, f"tables of 130x16 {shape}")


@pytest.mark.parametrize("shape", SHAPES)
def test_130_by_16_ties(benchmark, shape):
    problem = chain(130, 16, shape)
    value = solve_bottleneck(problem).value
    cuts = benchmark.pedantic(balanced_bottleneck, (problem, value), rounds=20)
    assert cuts[-1] == 130
    report(benchmark, f"tie-breaks 130x16 {shape}")
    assert benchmark.stats.stats.min <= 2e-3


@pytest.mark.parametrize("shape", SHAPES)
def test_130_by_16_certificate(benchmark, shape):
    problem = chain(130, 16, shape)
    value = solve_bottleneck(problem).value
    assert not benchmark.pedantic(reachable, (problem, value - 1), rounds=10)
    report(benchmark, f"certificate 130x16 {shape}")


@pytest.mark.parametrize("edges", ["constant", "mild"])
@pytest.mark.parametrize("kernel", ["python", pytest.param("numba", marks=needs_numba)])
def test_130_by_16_surrogate(benchmark, edges, kernel):
    problem = chain(130, 16, edges=edges, memory=0.8, modes=THREE, microbatches=256)
    bottleneck = solve_bottleneck(problem)
    solve_surrogate(problem, bottleneck, kernel=kernel)
    cuts = benchmark.pedantic(solve_surrogate, (problem, bottleneck), {"kernel": kernel}, rounds=30)
    assert cuts == solve_surrogate(problem, bottleneck)
    report(benchmark, f"surrogate 130x16 {edges} cuts, {kernel}")
    if kernel == "numba":
        assert benchmark.stats.stats.min <= 0.5e-3


@needs_numba
@pytest.mark.parametrize("edges", ["constant", "mild", "wild"])
@pytest.mark.parametrize("shape", SHAPES)
def test_10000_by_128_compiled(benchmark, shape, edges):
    solution = timed_solve(benchmark, chain(10_000, 128, shape, edges=edges), "numba", rounds=10)
    counts = {"probes": solution.probes, "states": solution.states, "value": solution.value}
    report(benchmark, f"chain 10000x128 {shape}, {edges} cuts, numba", **counts)
    assert benchmark.stats.stats.min <= 20e-3


@pytest.mark.parametrize("edges", ["constant", "mild", "wild"])
def test_10000_by_128_python(benchmark, edges):
    rounds = 10 if edges != "wild" else 1
    solution = timed_solve(benchmark, chain(10_000, 128, edges=edges), "python", rounds=rounds)
    counts = {"probes": solution.probes, "states": solution.states, "value": solution.value}
    report(benchmark, f"chain 10000x128 transformer, {edges} cuts, Python", **counts)


# --- baselines on the same weights --------------------------------------------------------------


def weights_of(problem: ChainProblem) -> list[int]:
    return (problem.forward + problem.backward).tolist()


@pytest.mark.parametrize("shape", SHAPES)
def test_baseline_bisection(benchmark, shape):
    problem = chain(130, 16, shape, edges="none")
    cuts, value = benchmark(bisection_on_the_limit, weights_of(problem), 16)
    assert value == largest_part(weights_of(problem), cuts) == solve_bottleneck(problem).value
    report(benchmark, f"baseline bisection on the limit 130x16 {shape}")


@pytest.mark.parametrize("shape", SHAPES)
def test_baseline_bids(benchmark, shape):
    problem = chain(130, 16, shape, edges="none")
    cuts, value, probes = benchmark(bisection_with_bids, weights_of(problem), 16)
    assert value == largest_part(weights_of(problem), cuts) == solve_bottleneck(problem).value
    report(benchmark, f"baseline bisection with bids 130x16 {shape}", probes=probes)


@needs_numba
@pytest.mark.parametrize("memory", [None, 1.0], ids=["free", "memory-binds"])
@pytest.mark.parametrize("shape", SHAPES)
def test_baseline_compiled_program(benchmark, shape, memory):
    problem = chain(130, 16, shape, edges="none", memory=memory)
    program = compiled_program()
    tables = tables_of(problem)
    prefix = np.array(tables.compute, np.int64)
    flight = np.array(tables.in_flight, np.int64)[:, None]
    held = np.array(tables.static) + flight * np.array(problem.prefix["kept_bytes"])
    # The largest workspace everywhere: the same problem unless the head stage is at its limit.
    room = np.array(tables.room, np.int64) - 30 * MIB
    room[-1] -= 170 * MIB
    program(prefix, held, room)
    value, cuts = benchmark(program, prefix, held, room)
    assert value == largest_part(weights_of(problem), cuts.tolist())
    assert value == solve_bottleneck(problem).value
    report(benchmark, f"baseline O(N^2 P) program, numba, 130x16 {shape} memory {memory}")


@pytest.mark.parametrize("kernel", ["python", pytest.param("numba", marks=needs_numba)])
@pytest.mark.parametrize("shape", SHAPES)
def test_same_weights_solved_here(benchmark, shape, kernel):
    solution = timed_solve(benchmark, chain(130, 16, shape, edges="none"), kernel)
    report(benchmark, f"same weights 130x16 {shape}, {kernel}", **solution._asdict())
