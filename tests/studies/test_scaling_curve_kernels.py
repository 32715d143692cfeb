"""The compiled loops against the modules whose definitions they repeat."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import planner
from planner.cost.curve_prices import CurvePrices
from planner.cost.pricing import Pricer
from planner.cost.question import plan_pricer
from planner.cost.stage_table import ChainProblem
from planner.schedules.bounds import least_value
from planner.schedules.prices import prices_of
from planner.schedules.stage_terms import StageTerms
from planner.schedules.step import evaluate_cuts
from planner.search.curve_search import _SizeSearch
from planner.search.curve_space import SpaceQuestion, bounded_space
from planner.search.run import search_layouts
from planner.search.space import enumerate_layouts
from planner.solvers import quick_kernels as kernels
from planner.solvers.quick_terms import solve
from planner.solvers.step_time import solve_step_time
from planner.specs import Training

MODELS = {name: planner.load_model(name) for name in ("gpt2", "gpt2-xl", "llama3-8b", "gemma2-9b")}
CLUSTERS = {name: planner.load_cluster(name) for name in ("dgx-a100-40gb:4", "l4-pcie-8:4")}


def question(model: str, cluster: str, **fields: object) -> tuple[SpaceQuestion, Pricer, Training]:
    training = Training(sequence_length=512, **fields)
    pricer = plan_pricer(MODELS[model], CLUSTERS[cluster], training)
    degrees = tuple(tp for tp in (1, 2, 4) if all(
        getattr(layer.shape, "heads", tp) % tp == 0 for layer in MODELS[model].layers
    ))  # fmt: skip
    batch = training.global_batch_size
    asked = SpaceQuestion(
        CurvePrices(pricer), training, [CLUSTERS[cluster]], [degrees], [(batch, batch)]
    )
    return asked, pricer, training


drawn = st.fixed_dictionaries(
    {
        "model": st.sampled_from(sorted(MODELS)),
        "cluster": st.sampled_from(sorted(CLUSTERS)),
        "global_batch_size": st.sampled_from([8, 96, 512]),
        "sends": st.sampled_from(["overlapped", "blocking"]),
        "recompute": st.sampled_from(
            [("none",), ("full",), ("none", "selective", "full"), ("selective", "full")]
        ),
        "overlap_gradient_reduction": st.booleans(),
        "optimizer": st.sampled_from(["adam", "sgd", "none"]),
        "sharded_optimizer": st.booleans(),
    }
)


def problem_of(search: _SizeSearch, pricer: Pricer, which: int) -> ChainProblem:
    return pricer.problem(search.space.layout(which))


@settings(max_examples=40, deadline=None)
@given(drawn, st.integers(0, 10**6))
def test_prices_and_timelines_are_those_of_the_table(fields: dict, seed: int) -> None:
    asked, pricer, _ = question(**fields)
    space = bounded_space(asked)
    generator = np.random.default_rng(seed)
    search = _SizeSearch(asked, space, 0, planner.search.curve_search.CurveCounts())
    for which in generator.integers(0, len(space), 6).tolist():
        problem = problem_of(search, pricer, which)
        c, w, s, e, tiers, tied, p = search._arrays(which)
        blocks, stages = problem.num_blocks, problem.num_stages
        inner = np.sort(generator.permutation(np.arange(1, blocks))[: stages - 1])
        cuts = np.array([0, *inner, blocks], np.int64)
        found = evaluate_cuts(problem, cuts.tolist())
        value = kernels.evaluate(c, w, s, e, tiers, tied, p, cuts)
        assert value == (kernels.UNREACHABLE if found is None else found.value)
        assert p[kernels.LEAST_OPTIMIZER] == prices_of(problem).least_optimizer
        if found is not None:
            _, memory, loads, extra = kernels.describe(c, w, s, tied, p, cuts).tolist()
            buffers = problem.buffer_bytes if stages > 1 else 0
            assert [m + buffers for m in memory] == [x.memory_bytes for x in found.choices]
            assert tuple(loads) == found.load
            assert extra == [choice.extra for choice in found.choices]


@settings(max_examples=25, deadline=None)
@given(drawn, st.integers(0, 10**6))
def test_layouts_are_solved_as_the_step_solver_does(fields: dict, seed: int) -> None:
    """The same feasibility, windows no wider than they may be, bounds that hold and values near."""
    asked, pricer, _ = question(**fields)
    space = bounded_space(asked)
    generator = np.random.default_rng(seed)
    search = _SizeSearch(asked, space, 0, planner.search.curve_search.CurveCounts())
    for which in generator.integers(0, len(space), 3).tolist():
        problem = problem_of(search, pricer, which)
        arrays = search._arrays(which)
        c, w, s, _, _, tied, p = arrays
        truth = solve_step_time(problem, node_limit=300)
        possible = bool(kernels.fits(c, w, s, tied, p)) and not space.short[which]
        assert possible == (not truth.infeasible)
        if not possible:
            continue
        least = int(space.bound[which])
        assert least <= truth.value
        assert least_value(problem) <= truth.value
        cuts = np.zeros(problem.num_stages + 1, np.int64)
        value, bound = solve(*arrays, least, kernels.UNREACHABLE, cuts, np.zeros(1, np.int64))
        assert bound <= truth.value
        assert truth.bound <= value
        assert evaluate_cuts(problem, cuts.tolist()).value == value
        assert value <= truth.value * 1.05
        low, high = np.zeros_like(cuts), np.zeros_like(cuts)
        assert kernels.windows(c, w, s, tied, p, truth.value, low, high)
        assert (low <= truth.cuts).all()
        assert (np.array(truth.cuts) <= high).all()
        reference = StageTerms(problem, truth.value)
        assert (reference.low <= low).all()
        assert (high <= reference.high).all()


def test_the_space_is_the_searchs_own() -> None:
    asked, pricer, training = question("gpt2", "dgx-a100-40gb:4", global_batch_size=96)
    ours = bounded_space(asked)
    theirs = enumerate_layouts(MODELS["gpt2"], pricer.cluster, training, asked.prices.count)
    known = {theirs.layout(i) for i in range(len(theirs))}
    found = {ours.layout(i): int(ours.bound[i]) for i in range(len(ours))}
    allowed = {layout for layout in known if layout.tp in asked.tensor_degrees[0]}
    assert set(found) == allowed
    best = search_layouts(pricer, theirs).ranking[0]
    assert found[best.layout] <= best.step
