"""The bottleneck solver against brute force, its certificate, ties, and known hard lists."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations, pairwise

import numpy as np
import pytest
from instances import make_problem, random_problem

from planner.cost.certificates import reachable
from planner.cost.stage_table import ChainProblem, TiedPair
from planner.deadlines import Deadline, OutOfTimeError, within
from planner.solvers import chain_packed
from planner.solvers.brute_force import best_bottleneck, feasible_cuts
from planner.solvers.chain import (
    BottleneckSolution,
    balanced_bottleneck,
    least_shortfall,
    solve_bottleneck,
)
from planner.solvers.chain_dense import least_memory, stage_prices
from planner.solvers.chain_probes import prober_of
from planner.solvers.chain_tables import INFINITE, tables_of
from planner.specs import Recompute

KERNELS = ["python", *(["numba"] if chain_packed.numba_installed() else [])]
GIB = 2**30


def solved(problem: ChainProblem, kernel: str = "python") -> BottleneckSolution:
    """A solution whose value is what its own cuts cost, by the plain definitions."""
    solution = solve_bottleneck(problem, kernel=kernel)
    assert solution is not None
    costs = [problem.stage_cost(s, *ends) for s, ends in enumerate(pairwise(solution.cuts))]
    assert None not in costs
    assert max(costs) == solution.value == solution.bound
    assert solution.proven
    assert solution.cuts[0] == 0
    assert solution.cuts[-1] == problem.num_blocks
    return solution


def sizes(cuts: tuple[int, ...]) -> list[int]:
    return [b - a for a, b in pairwise(cuts)]


# --- against brute force ----------------------------------------------------------------------


@pytest.mark.parametrize("block", range(12))
def test_equals_brute_force_on_random_instances(block):
    feasible = 0
    for seed in range(500 * block, 500 * (block + 1)):
        problem = random_problem(seed)
        expected = best_bottleneck(problem)
        feasible += expected is not None
        for kernel in KERNELS:
            if expected is None:
                assert solve_bottleneck(problem, kernel=kernel) is None, seed
            else:
                assert solved(problem, kernel).value == expected[0], (seed, kernel)
    assert feasible > 100


@pytest.mark.skipif("numba" not in KERNELS, reason="needs numba")
def test_what_is_loaded_by_chance_changes_nothing():
    looked = 0
    for seed in range(1500):
        problem = random_problem(seed)
        tables = tables_of(problem)
        if not (tables.cuts_monotone and tables.inclusion_monotone):
            continue
        looked += 1
        solve_bottleneck(problem, kernel="numba")  # loads the compiled programs
        plain = solve_bottleneck(problem, kernel="python")
        loaded = solve_bottleneck(problem, kernel="loaded")
        if plain is None or loaded is None:
            assert plain is loaded, seed
        else:
            assert plain._replace(states=0) == loaded._replace(states=0), seed
    assert looked > 200


def test_instances_reach_every_route():
    routes = set()
    for seed in range(400):
        tables = tables_of(random_problem(seed))
        routes.add((tables.cuts_monotone, tables.inclusion_monotone))
    assert routes == {(a, b) for a in (True, False) for b in (True, False)}


def test_prices_of_matrices_and_prober_are_the_definitions():
    for seed in range(150):
        problem = random_problem(seed)
        tables = tables_of(problem)
        if tables.pinned is None:
            continue
        prober, count = prober_of(tables), problem.num_blocks
        for stage in range(problem.num_stages):
            matrix = stage_prices(problem, stage, (0, count), (0, count))
            for start, end in combinations(range(count + 1), 2):
                if not (problem.legal_cut[start] and problem.legal_cut[end]):
                    assert matrix.cost[start, end] == INFINITE
                    continue
                choice = problem.recompute_choice(stage, start, end)
                if choice is None:
                    assert matrix.cost[start, end] == INFINITE
                    assert prober.price(stage, start, end) == INFINITE
                    continue
                sums = problem.prefix
                compute = sums["forward"][end] - sums["forward"][start] + choice.extra
                compute += sums["backward"][end] - sums["backward"][start]
                cost = compute + sum(problem.edges(stage, start, end))
                assert prober.price(stage, start, end) == cost
                assert matrix.cost[start, end] == cost
                assert matrix.compute[start, end] == compute
                assert matrix.memory[start, end] == choice.memory_bytes


def test_upper_bound_hides_worse_answers():
    for seed in range(300):
        problem = random_problem(seed)
        for kernel in KERNELS:
            solution = solve_bottleneck(problem, kernel=kernel)
            if solution is None:
                continue
            at = solve_bottleneck(problem, kernel=kernel, upper_bound=solution.value)
            assert at is not None
            assert at.value == solution.value
            below = solve_bottleneck(problem, kernel=kernel, upper_bound=solution.value - 1)
            assert below is None


@pytest.mark.parametrize("kernel", KERNELS)
def test_long_chains_agree_with_the_certificate(kernel):
    generator = np.random.default_rng(7)
    for edges in (40, generator.integers(0, 3000, 201).tolist()):
        times = generator.integers(100, 1000, 200).tolist()
        problem = make_problem(
            times,
            24,
            edges=edges,
            static=generator.integers(1, 30, 200).tolist(),
            kept=5,
            kept_full=1,
            full_extra=[t // 2 for t in times],
            modes=(Recompute.NONE, Recompute.FULL),
            budget=600,
        )
        value = solved(problem, kernel).value
        assert reachable(problem, value)
        assert not reachable(problem, value - 1)


def test_deadline_in_the_past_raises_for_the_slow_route():
    problem = make_problem([1] * 12, 3, edges=[0, 50, 0, 50, 0, 50, 0, 50, 0, 50, 0, 50, 0])
    with within(Deadline(0.0)), pytest.raises(OutOfTimeError):
        solve_bottleneck(problem)


def test_scaling_all_times_keeps_the_cuts():
    for seed in range(60):
        problem = random_problem(seed)
        solution = solve_bottleneck(problem)
        if solution is None:
            continue
        names = ["forward", "input_gradient", "selective_extra", "full_extra"]
        names += ["edge_forward", "edge_backward"]
        values = {**{f: getattr(problem, f) for f in problem.__dataclass_fields__}}
        values.update({name: values[name] * 10**6 for name in names})
        scaled = solved(ChainProblem(**values))
        assert scaled.value == solution.value * 10**6
        assert balanced_bottleneck(ChainProblem(**values), scaled.value) == balanced_bottleneck(
            problem, solution.value
        )


# --- certificate, ties, shortfall ---------------------------------------------------------------


def test_certificate_is_the_threshold_of_brute_force():
    for seed in range(1200):
        problem = random_problem(seed, 8, 4)
        expected = best_bottleneck(problem)
        if expected is None:
            assert not reachable(problem, tables_of(problem).ceiling)
        else:
            assert reachable(problem, expected[0])
            assert not reachable(problem, expected[0] - 1)


def tie_key(problem: ChainProblem, cuts: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]]:
    times, memory = [], []
    for stage, (start, end) in enumerate(pairwise(cuts)):
        choice = problem.recompute_choice(stage, start, end)
        communication = sum(problem.edges(stage, start, end))
        times.append(problem.stage_cost(stage, start, end) - communication)
        memory.append(choice.memory_bytes)
    return -min(times), max(memory), cuts


def test_ties_go_to_the_most_even_then_smallest_then_first():
    checked = 0
    for seed in range(1200):
        problem = random_problem(seed, 8, 4)
        expected = best_bottleneck(problem)
        if expected is None:
            continue
        value = expected[0]
        optimal = [cuts for cuts, costs in feasible_cuts(problem) if max(costs) <= value]
        checked += len(optimal) > 1
        best = min(optimal, key=lambda cuts: tie_key(problem, cuts))
        assert balanced_bottleneck(problem, value) == best
    assert checked > 30


def test_ties_below_the_optimum_are_refused():
    problem = make_problem([1, 5, 2, 2, 1], 3)
    with pytest.raises(ValueError, match="4 or less"):
        balanced_bottleneck(problem, 4)


def needed(problem: ChainProblem, stage: int, start: int, end: int) -> int:
    ways = problem.recompute_modes or (Recompute.NONE,)
    return min(
        problem.stage_memory(stage, start, end, mode, count)
        for mode in ways
        for count in problem._recompute_counts(mode, start, end)
    )


def test_shortfall_is_the_least_lack_over_all_cuts():
    lacking = 0
    for seed in range(500):
        problem = random_problem(seed, 7, 4)
        stages, count = problem.num_stages, problem.num_blocks
        lacks = []
        for interior in combinations(range(1, count), stages - 1):
            spans = list(enumerate(pairwise((0, *interior, count))))
            if all(problem.allowed(stage, *ends) for stage, ends in spans):
                budgets = problem.budget_bytes.tolist()
                lacks.append(max(needed(problem, s, *ends) - budgets[s] for s, ends in spans))
        shortfall = least_shortfall(problem)
        if not lacks:
            assert shortfall is None
            continue
        assert shortfall is not None
        assert shortfall.short_bytes == min(lacks)
        stage, start, end = shortfall.stage, shortfall.start, shortfall.end
        assert (start, end) == shortfall.cuts[stage : stage + 2]
        assert needed(problem, stage, start, end) - problem.budget_bytes[stage] == min(lacks)
        assert least_memory(problem, stage, (start, start), (end, end)) == needed(
            problem, stage, start, end
        )
        lacking += min(lacks) > 0
    assert lacking > 50


# --- lists and cases where others go wrong ----------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("times", "stages", "value"),
    [
        ([1, 5, 2, 2, 1], 3, 5),  # a max-min split gives 6
        ([2, 2, 2, 2, 2, 3, 8], 4, 8),  # an exchange heuristic leaves a stage empty
        ([1, 1, 1, 1, 3, 5], 5, 5),  # and never ends here
        ([0, 0, 0, 0], 3, 0),
        ([7], 1, 7),
    ],
)
def test_lists_where_peers_fail(kernel, times, stages, value):
    solution = solved(make_problem(times, stages), kernel)
    assert solution.value == value
    assert min(sizes(solution.cuts)) >= 1
    assert min(sizes(balanced_bottleneck(make_problem(times, stages), value))) >= 1


@pytest.mark.parametrize("kernel", KERNELS)
def test_one_byte_of_memory_is_refused_with_the_lack(kernel):
    problem = make_problem([3, 4, 5], 2, static=1000, budget=1)
    assert solve_bottleneck(problem, kernel=kernel) is None
    shortfall = least_shortfall(problem)
    assert shortfall is not None
    assert shortfall.short_bytes == 1999


def test_more_stages_than_blocks_is_none():
    assert solve_bottleneck(make_problem([1, 1], 3)) is None
    assert least_shortfall(make_problem([1, 1], 3)) is None
    assert not reachable(make_problem([1, 1], 3), 10)


def test_pins_that_leave_no_stage_for_a_block():
    problem = make_problem([1] * 4, 2, low=[1, 0, 0, 0])
    assert solve_bottleneck(problem) is None
    assert least_shortfall(problem) is None


@pytest.mark.parametrize(
    ("layers", "stages", "most", "fewest"),
    [
        (30, 4, 8, 7),  # NVIDIA/Megatron-LM#1304: 2 layers dropped
        (42, 16, 3, 2),  # deepspeedai/DeepSpeed#5078: two ranks without layers
        (10, 3, 4, 3),  # ml-explore/mlx-lm#1688
    ],
)
def test_layer_counts_that_do_not_divide(layers, stages, most, fewest):
    problem = make_problem([1] * layers, stages)
    value = solved(problem).value
    counts = sizes(balanced_bottleneck(problem, value))
    assert (sum(counts), max(counts), min(counts)) == (layers, most, fewest)


def test_heavy_head_takes_fewer_blocks():
    # deepspeedai/DeepSpeed#2974: embedding 1 ms, 24 blocks of 10 ms, head and loss 30 ms.
    problem = make_problem([1] + [10] * 24 + [30], 4)
    assert solved(problem).value == 70
    assert sizes(balanced_bottleneck(problem, 70)) == [7, 7, 7, 5]


def test_multi_token_prediction_layer_and_loss_count():
    # NVIDIA/Megatron-LM#2136: 61 decoder layers, 1 MTP layer, loss of half a layer, 16 stages.
    assert solved(make_problem([2] * 62 + [1], 16)).value == 8


def test_default_counts_can_already_be_optimal():
    # pytorch/torchtitan#2093: 80 blocks, embedding 0.2, head 1.6, 8 stages: 11 is optimal.
    assert solved(make_problem([2] + [10] * 80 + [16], 8)).value == 110


def test_first_stage_holds_the_most_activations():
    # sail-sg/zero-bubble-pipeline-parallelism#8: caps 7, 8, 9, 10 layers; in quarters of a GiB.
    problem = make_problem([1] * 32, 4, num_microbatches=16, static=20, kept=3, budget=240)
    solution = solved(problem)
    assert solution.value == 9
    assert sizes(solution.cuts)[0] <= 7
    # NVIDIA/Megatron-LM#381: of (3, 4) and (4, 3) only the first fits.
    uneven = make_problem([1] * 7, 2, static=4, kept=2, budget=26)
    assert sizes(solved(uneven).cuts) == [3, 4]


def test_only_the_stage_that_must_recompute_does():
    # AMD-AGI/Primus#286: 30 GiB of states, 4 GiB a micro-batch (0.5 recomputed), 44 GiB.
    problem = make_problem(
        [10] * 4, 4, static=60, kept=8, kept_full=1, transient_full=8, full_extra=3,
        modes=(Recompute.NONE, Recompute.FULL), budget=88,
    )  # fmt: skip
    solution = solved(problem)
    assert solution.value == 13
    modes = [problem.recompute_choice(s, s, s + 1).mode for s in range(4)]
    assert modes == [Recompute.FULL, Recompute.NONE, Recompute.NONE, Recompute.NONE]


def test_unequal_budgets_lack_what_they_lack():
    # vllm-project/vllm#27778: 35 layers of 2 GiB on 40 and 16 GiB: 14 GiB are missing in all;
    # layers are whole, so the worse rank lacks at least half of it.
    problem = make_problem([1] * 35, 2, static=2 * GIB, budget=[40 * GIB, 16 * GIB])
    assert solve_bottleneck(problem) is None
    shortfall = least_shortfall(problem)
    assert shortfall is not None
    assert shortfall.short_bytes == 8 * GIB
    total = sum(sizes(shortfall.cuts)) * 2 * GIB - 56 * GIB
    assert total == 14 * GIB


def test_colocated_vision_tower():
    # QwenLM/Qwen3-VL#1497: tower of 12 with the first 3 of 36 layers on one stage.
    legal = [True, False, False, False, *[True] * 34]
    problem = make_problem([12] + [1] * 36, 4, legal=legal)
    assert solved(problem).value == 15
    assert sizes(balanced_bottleneck(problem, 15)) == [4, 11, 11, 11]


def test_tied_weights_counted_once_on_one_stage():
    tied = [TiedPair(0, 2, 10)]
    fits = make_problem([1] * 3, 1, static=10, budget=20, tied=tied)
    assert solved(fits).value == 3
    assert solve_bottleneck(make_problem([1] * 3, 1, static=10, budget=20)) is None


def test_auto_and_python_do_not_import_numba():
    code = (
        "import sys; sys.path.insert(0, {path!r})\n"
        "from instances import make_problem\n"
        "from planner.solvers.chain import solve_bottleneck\n"
        "from planner.solvers.surrogate import solve_surrogate\n"
        "for kernel in ('python', 'auto'):\n"
        "    problem = make_problem([3] * 130, 16, edges=1)\n"
        "    solution = solve_bottleneck(problem, kernel=kernel)\n"
        "    solve_surrogate(problem, solution, kernel=kernel)\n"
        "assert 'numba' not in sys.modules\n"
    ).format(path=__file__.rsplit("/", 1)[0])
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
