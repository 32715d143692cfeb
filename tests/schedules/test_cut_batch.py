"""Many cuts at once equal the plain evaluation; what it reports equals an event simulation."""

import numpy as np
import pytest
from order_instances import ONE_STAGE, SEVERAL_STAGES, all_cuts, chain_under, grouped_under

from planner.schedules.cut_batch import batch_of, takes_batches
from planner.schedules.general_bounds import (
    general_terms,
    grouped_least_bottleneck,
    grouped_least_value,
)
from planner.schedules.prices import UNREACHABLE
from planner.schedules.step import evaluate_cuts
from planner.specs import Schedule

BATCHED = [s for s in ONE_STAGE if takes_batches(s)]


def compare(problem):
    """Every cut of a small chain, together and one by one; how many of them fit."""
    cuts = all_cuts(problem)[:60]
    values = batch_of(problem).evaluate(np.array(cuts, np.int64))
    fitting = 0
    for row, positions in enumerate(cuts):
        found = evaluate_cuts(problem, positions)
        if found is None:
            assert values.value[row] >= UNREACHABLE
            continue
        fitting += 1
        assert (
            int(values.value[row]),
            int(values.makespan[row]),
            int(values.bottleneck[row]),
            int(values.lightest[row]),
            int(values.peak_bytes[row]),
        ) == (
            found.value,
            found.makespan,
            found.bottleneck,
            found.lightest_stage,
            found.peak_bytes,
        )
        told = batch_of(problem).choices(positions)
        assert told == (() if problem.is_grouped else found.choices)
    return fitting


@pytest.mark.parametrize("schedule", BATCHED)
def test_one_stage_a_rank(schedule):
    problems = [chain_under(schedule, seed) for seed in range(150)]
    assert sum(compare(problem) for problem in problems if problem is not None) > 100


@pytest.mark.parametrize("schedule", SEVERAL_STAGES)
def test_several_stages_a_rank(schedule):
    problems = [grouped_under(schedule, seed) for seed in range(200)]
    assert sum(compare(problem) for problem in problems if problem is not None) > 60


@pytest.mark.parametrize("schedule", ONE_STAGE)
def test_stage_terms_never_exceed_a_value(schedule):
    seen = 0
    for seed in range(60 if takes_batches(schedule) else 12):
        problem = chain_under(schedule, 1000 + seed)
        if problem is None:
            continue
        terms = general_terms(problem)
        for cuts in all_cuts(problem)[:40]:
            found = evaluate_cuts(problem, cuts)
            if found is None:
                continue
            seen += 1
            largest = max(
                int(terms.term[s, cuts[s], cuts[s + 1]]) for s in range(problem.num_stages)
            )
            assert largest <= found.value
            assert terms.bound <= found.value
    assert seen >= 20


@pytest.mark.parametrize("schedule", SEVERAL_STAGES)
def test_totals_never_exceed_a_value(schedule):
    seen = 0
    for seed in range(150):
        problem = grouped_under(schedule, 2000 + seed)
        if problem is None:
            continue
        least, least_beat = grouped_least_value(problem), grouped_least_bottleneck(problem)
        for cuts in all_cuts(problem)[:20]:
            found = evaluate_cuts(problem, cuts)
            if found is not None:
                seen += 1
                assert least <= found.value
                assert least_beat <= found.bottleneck
    assert seen > 60


def test_asynchronous_steps_are_periods_of_the_steady_state():
    seen = 0
    for seed in range(80):
        problem = chain_under(Schedule.PIPEDREAM, seed)
        for cuts in all_cuts(problem)[:10]:
            found = evaluate_cuts(problem, cuts)
            if found is not None:
                seen += 1
                assert found.makespan >= problem.num_microbatches * max(found.load)
    assert seen > 50
