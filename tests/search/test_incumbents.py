"""What a search tells while it runs, and plans it starts from."""

from __future__ import annotations

from itertools import count, pairwise

import pytest
from stop_latency import uneven_chain

import planner
from planner.check import check_plan
from planner.cost.question import plan_pricer
from planner.formats.catalog import load_cluster, load_model
from planner.plans import Status
from planner.search.run import SearchLimits, search_layouts
from planner.specs import Objective, Training
from tests.search.test_search import questions


def ask_plan(model="llama3-8b", cluster="dgx-h100:4", **options):
    options.setdefault("global_batch_size", 64)
    return lambda **more: planner.plan(model, cluster, **options, **more)


def ask_cut(layers=40, stages=6, count=12, **options):
    model = uneven_chain(layers)
    options.setdefault("bandwidth_bytes_per_s", 2e9)
    return lambda **more: planner.partition(model, stages, count, **options, **more)


ASKED = {
    "plan": ask_plan(),
    "70b": ask_plan("llama3-70b", "dgx-h100:8", global_batch_size=256),
    "bottleneck": ask_plan(objective="bottleneck"),
    "cheapest": ask_plan(objective="tokens-per-dollar"),
    "fewest": ask_plan("llama3-70b", objective="fewest-gpus"),
    "auto": ask_plan(schedule="auto", work_limit=300),
    "idle": ask_plan(allow_fewer=True),
    "cut": ask_cut(),
    "cut, step": ask_cut(objective="step-time"),
    "cut, zb-h1": ask_cut(objective="step-time", schedule="zb-h1", work_limit=300),
    "cut, interleaved": ask_cut(objective="step-time", schedule="interleaved", work_limit=300),
    "cut, auto": ask_cut(24, 4, 8, objective="step-time", schedule="auto", work_limit=300),
    "cut, auto, beat": ask_cut(24, 4, 8, schedule="auto", work_limit=300),
    "cut, few": ask_cut(objective="step-time", work_limit=1),
}


def told_by(ask, **more):
    told = []
    plan = ask(on_incumbent=told.append, **more)
    return plan, told


def judge_sequence(told):
    for before, after in pairwise(told):
        assert (before.value_ms, before.bound_ms) != (after.value_ms, after.bound_ms)
        assert before.value_ms is None or after.value_ms <= before.value_ms
        assert before.bound_ms is None or after.bound_ms >= before.bound_ms
        assert after.layouts_done >= before.layouts_done
    for state in told:
        assert (state.value_ms is None) == (state.layout is None)
        assert 0 <= state.layouts_done <= state.layouts_total
        if state.value_ms is not None and state.bound_ms is not None:
            assert state.bound_ms <= state.value_ms
            assert 0 <= state.gap <= 1


@pytest.mark.parametrize("name", ASKED)
def test_the_last_state_is_the_answer(name):
    plan, told = told_by(ASKED[name])
    assert plan.to_json() == ASKED[name]().to_json()
    judge_sequence(told)
    last = told[-1]
    scale = plan.num_gpus if plan.objective is Objective.TOKENS_PER_DOLLAR else 1
    by_beat = plan.objective is Objective.BOTTLENECK
    value_ms = plan.bottleneck_ms if by_beat else plan.step_time_ms
    assert last.value_ms == pytest.approx(value_ms * scale, rel=1e-12)
    assert last.bound_ms == pytest.approx(plan.bound_ms * scale, rel=1e-12)
    assert last.gap == pytest.approx(plan.gap, abs=1e-12)
    assert last.layout.model_copy(update={"recompute": plan.layout.recompute}) == plan.layout
    assert told_by(ASKED[name])[1] == told


@pytest.mark.parametrize("objective", Objective)
def test_states_of_random_searches(objective):
    several = 0
    for _, pricer, space, _ in questions(70_000, 25):
        told = []
        result = search_layouts(pricer, space, objective=objective, on_incumbent=told.append)
        judge_sequence(told)
        if not result.ranking:
            assert all(state.value_ms is None for state in told)
            continue
        ms = pricer.quantum.ms
        assert told[-1].value_ms == ms(result.ranking[0].value(objective))
        assert told[-1].bound_ms == ms(result.bound)
        if result.proven:
            several += len(told) > 2
            for state in told:
                assert state.bound_ms is None or state.bound_ms <= ms(result.bound)
    assert several


def test_the_states_of_a_stopped_search():
    ask = ASKED["70b"]
    for most in (40, 60, 80, 120, 200, 400):
        looks = count()
        plan, told = told_by(ask, stop=lambda own=looks, most=most: next(own) > most)
        judge_sequence(told)
        if plan.status is not Status.UNKNOWN:
            assert told[-1].value_ms == plan.step_time_ms
            assert told[-1].bound_ms == plan.bound_ms


# --- warm starts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["plan", "70b", "bottleneck", "cheapest", "fewest", "idle"])
def test_a_warm_start_changes_no_proven_answer(name):
    ask = ASKED[name]
    cold = ask()
    assert cold.termination.reason == "proven"
    for warm in (cold, ask(microbatch_size=2), ask(work_limit=1), ask_plan(pp=2)()):
        assert ask(warm_start=warm).to_json() == cold.to_json()


def test_never_worse_than_the_warm_start_when_stopped():
    ask = ASKED["70b"]
    warm = ask()
    kept = 0
    for most in (0, 1, 5, 20, 50, 100, 200):
        looks = count()
        told = []
        plan = ask(
            warm_start=warm,
            stop=lambda own=looks, most=most: next(own) > most,
            on_incumbent=told.append,
        )
        assert plan.step_time_ms <= warm.step_time_ms
        assert plan.termination.reason == "stopped"
        assert told[0].value_ms <= warm.step_time_ms
        kept += plan.certificate.cuts == warm.certificate.cuts
    assert kept
    model, cluster = load_model("llama3-70b"), load_cluster("dgx-h100:8")
    training = Training(global_batch_size=256, sequence_length=model.sequence_length)
    assert check_plan(plan_pricer(model, cluster, training), plan).ok


@pytest.mark.parametrize(
    "other",
    [
        ask_plan("llama3-70b"),
        ask_plan(cluster="dgx-h100:2"),
        ask_plan(schedule="interleaved", work_limit=1),
        ask_cut(),
    ],
)
def test_a_warm_start_of_another_question_is_passed_over(other):
    cold = ASKED["plan"]()
    assert ASKED["plan"](warm_start=other()).to_json() == cold.to_json()
    stopped = ASKED["plan"](warm_start=other(), stop=lambda: True)
    assert stopped.status is Status.UNKNOWN


def test_a_better_start_stands_where_the_search_stays_behind():
    for _, pricer, space, _ in questions(71_000, 40):
        full = search_layouts(pricer, space)
        if not full.ranking:
            continue
        best = full.ranking[0]
        few = SearchLimits(nodes_per_layout=0)
        warm = search_layouts(pricer, space, limits=few, warm_start=(best.layout, best.cuts))
        assert warm.ranking[0].step == best.step
        assert warm.bound <= best.step
