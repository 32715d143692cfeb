"""Automatic zero bubble: limits, cost against published schedules, tables and the optimum."""

from __future__ import annotations

import csv
import math
from collections import Counter

import dumped_orders
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.operations import order_from_lists
from planner.schedules.folded_orders import v_half, v_min, zb_v
from planner.schedules.memory_curve import peak_by_rank
from planner.schedules.one_way_orders import one_f_one_b, zb_h1
from planner.schedules.orders import build_order
from planner.schedules.timeline import StageTimes, run_order, unit_times
from planner.schedules.zero_bubble import automatic_order
from planner.schedules.zero_bubble_bounds import span_bounds
from planner.schedules.zero_bubble_paths import heads_of, tails_of
from planner.schedules.zero_bubble_problem import make_problem, order_of_words, words_of_order
from planner.schedules.zero_bubble_search import improve
from planner.specs import Schedule, Sends

# --- helpers --------------------------------------------------------------------------------------


def even_times(stages, forward, backward, weight, edge):
    """Milliseconds with up to three decimals, the same on every stage, in microseconds."""
    rows = [
        np.full(count, round(value * 1000), np.int64)
        for value, count in (
            (forward, stages),
            (backward, stages),
            (weight, stages),
            (edge, stages - 1),
            (edge, stages - 1),
        )
    ]
    return StageTimes(*rows)


def uneven_times(forward, backward, weight, ahead, back):
    return StageTimes(
        *(np.array(row, np.int64) for row in (forward, backward, weight, ahead, back))
    )


def held(order, freed_at_i):
    """Micro-batches each rank holds at its peak."""
    chunks = order.num_stages // order.num_ranks
    return peak_by_rank(order, [1 / chunks] * order.num_stages, freed_at_i)


def problem_of(ranks, microbatches, times, limit, *, folded=False, freed=0.0, blocking=False):
    return make_problem(
        ranks,
        microbatches,
        folded=folded,
        times=times,
        activation_limit=limit,
        freed_at_i=freed,
        sends=Sends.BLOCKING if blocking else Sends.OVERLAPPED,
    )


@st.composite
def pipelines(draw, folded=False):
    """A random uneven pipeline with its limits: arguments of automatic_order."""
    ranks = draw(st.integers(1, 5 if not folded else 4))
    stages = ranks * (2 if folded else 1)
    count = st.integers(0, 9)
    row = st.lists(count, min_size=stages, max_size=stages)
    edge = st.lists(st.integers(0, 4), min_size=stages - 1, max_size=stages - 1)
    forward, backward, weight = draw(row), draw(row), draw(row)
    if draw(st.booleans()):
        backward[0] = 0  # the first stage's input needs no gradient
    limit = st.one_of(st.sampled_from([1, 1.5, ranks, 2 * ranks]), st.floats(1, 2 * ranks))
    return {
        "num_ranks": ranks,
        "num_microbatches": draw(st.integers(1, 9)),
        "folded": folded,
        "times": uneven_times(forward, backward, weight, draw(edge), draw(edge)),
        "activation_limit": draw(st.lists(limit, min_size=ranks, max_size=ranks)),
        "freed_at_i": draw(st.sampled_from([0.0, 0.3, 0.5, 1.0])),
        "sends": draw(st.sampled_from(Sends)),
    }


# --- published schedules --------------------------------------------------------------------------


def assert_no_worse(entry, limit, freed_at_i):
    times = even_times(
        entry["P"] * entry["V"], *(entry[key] for key in ("TF", "TB", "TW", "Tcomm"))
    )
    order = automatic_order(
        entry["P"],
        entry["M"],
        folded=entry["V"] == 2,
        times=times,
        activation_limit=limit,
        freed_at_i=freed_at_i,
    )
    assert (held(order, freed_at_i) <= (entry["P"] if limit is None else limit[0])).all()
    span = run_order(order, times).span
    published = run_order(order_from_lists("published", entry["ranks"]), times).span
    assert span <= published
    reported = entry.get("reported_longest_stage_time", math.inf)
    assert span <= reported * 1000 + 0.5
    return span < published


def test_never_worse_than_published_schedules(shared_dir):
    """Within the same limit, the longest own span of sail-sg's heuristic or less; all entries."""
    better = Counter()
    for entry in dumped_orders.load(shared_dir, "sailsg_zb_auto"):
        limit = [float(entry["mem_limit_in_F_activations"])] * entry["P"]
        better[assert_no_worse(entry, limit, -entry["mem"][1])] += 1
    assert better[True] > 0


def test_never_worse_than_published_folded_schedules(shared_dir):
    for entry in dumped_orders.load(shared_dir, "sailsg_zbv_auto"):
        assert_no_worse(entry, None, 0.0)


# Zero Bubble Pipeline Parallelism (Qi et al. 2024): P, M, times of Table 6 in ms (F, I, W, edge),
# bubble rates of Table 5 (1F1B, ZB-H1, ZB-1p, ZB-2p).
PAPER = [
    (8, 24, (18.522, 18.086, 9.337, 0.601), (0.2431, 0.1585, 0.1585, 0.0433)),
    (8, 32, (18.513, 18.086, 9.331, 0.626), (0.1985, 0.1242, 0.1242, 0.0039)),
    (16, 48, (11.347, 11.248, 8.132, 0.377), (0.2552, 0.1397, 0.1397, 0.0066)),
    (32, 96, (10.419, 10.207, 7.715, 0.408), (0.2646, 0.1421, 0.1421, 0.0038)),
]


def bubble_rate(order, times, microbatches):
    work = microbatches * sum(
        int(row[0]) for row in (times.forward, times.input_gradient, times.weight_gradient)
    )
    return 1 - work / run_order(order, times).span


@pytest.mark.parametrize("row", PAPER, ids=lambda row: f"P{row[0]}-M{row[1]}")
def test_bubble_rates_of_the_paper(row):
    """Limits P and 2P with half of an activation freed at I are ZB-1p and ZB-2p."""
    ranks, microbatches, stage, rates = row
    times = even_times(ranks, *stage)
    fixed = one_f_one_b(ranks, microbatches), zb_h1(ranks, microbatches)
    for order, rate in zip(fixed, rates[:2], strict=True):
        assert round(bubble_rate(order, times, microbatches), 4) == rate
    for limit, rate in zip((ranks, 2 * ranks), rates[2:], strict=True):
        order = automatic_order(
            ranks,
            microbatches,
            times=times,
            activation_limit=[limit] * ranks,
            freed_at_i=0.5,
        )
        assert (held(order, 0.5) <= limit).all()
        assert round(bubble_rate(order, times, microbatches), 4) <= rate


def test_zb_1p_is_as_good_as_printed_in_every_row(shared_dir):
    tables = shared_dir / "data" / "schedules" / "tables"
    with (tables / "zb_table6_profiled_times_ms.csv").open() as file:
        stages = {(r["model"], r["p"], r["m"]): r for r in csv.DictReader(file)}
    with (tables / "zb_table5_bubble_rates.csv").open() as file:
        for row in csv.DictReader(file):
            stage = stages[row["model"], row["p"], row["m"]]
            ranks, microbatches = int(row["p"]), int(row["m"])
            times = even_times(ranks, *(float(stage[k]) for k in ("TF", "TB", "TW", "Tcomm")))
            order = automatic_order(ranks, microbatches, times=times, effort="quick")
            assert round(bubble_rate(order, times, microbatches), 4) <= float(row["ZB-1p"])


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6])
def test_unit_times_reach_the_formulas(ranks):
    """SCHEDULES: limit P costs (P-1)(F+I-W), limit 2P nothing (M >= 2P), the ends (P-1) F."""
    microbatches = 3 * ranks
    one = run_order(automatic_order(ranks, microbatches), unit_times(ranks))
    assert one.span == 3 * microbatches + ranks - 1
    two = automatic_order(ranks, microbatches, activation_limit=[2 * ranks] * ranks)
    timeline = run_order(two, unit_times(ranks))
    assert timeline.span == 3 * microbatches
    assert timeline.makespan == 3 * microbatches + ranks - 1
    folded = automatic_order(ranks, microbatches, folded=True)
    timeline = run_order(folded, unit_times(2 * ranks))
    assert timeline.span == 6 * microbatches
    assert timeline.makespan == 6 * microbatches + ranks - 1


@pytest.mark.parametrize("builder", [v_half, v_min])
@pytest.mark.parametrize("ranks", [3, 4])
def test_no_worse_than_v_half_and_v_min_in_their_memory(builder, ranks):
    fixed = builder(ranks, 2 * ranks)
    times = unit_times(2 * ranks)
    order = automatic_order(
        ranks, 2 * ranks, folded=True, activation_limit=held(fixed, 0.0), aim="makespan"
    )
    assert (held(order, 0.0) <= held(fixed, 0.0)).all()
    assert run_order(order, times).makespan <= run_order(fixed, times).makespan


# --- any pipeline ---------------------------------------------------------------------------------


@given(pipelines(), st.sampled_from(["span", "makespan"]))
@settings(max_examples=150)
def test_valid_within_limits_and_no_worse_than_fixed_orders(pipeline, aim):
    order = automatic_order(**pipeline, aim=aim, effort="quick")
    times, freed = pipeline["times"], pipeline["freed_at_i"]
    timeline = run_order(order, times, pipeline["sends"])  # complete and free of deadlock
    limit = np.array(pipeline["activation_limit"])
    assert (held(order, freed) <= limit + 1e-6).all()
    cost = timeline.span if aim == "span" else timeline.makespan
    for build in (one_f_one_b, zb_h1):
        fixed = build(pipeline["num_ranks"], pipeline["num_microbatches"])
        if (held(fixed, freed) <= limit).all():
            other = run_order(fixed, times, pipeline["sends"])
            assert cost <= (other.span if aim == "span" else other.makespan)


@given(pipelines(folded=True), st.sampled_from(["span", "makespan"]))
@settings(max_examples=80)
def test_folded_orders_are_valid_and_within_limits(pipeline, aim):
    order = automatic_order(**pipeline, aim=aim, effort="quick")
    timeline = run_order(order, pipeline["times"], pipeline["sends"])
    limit = np.array(pipeline["activation_limit"])
    assert (held(order, pipeline["freed_at_i"]) <= limit + 1e-6).all()
    fixed = zb_v(pipeline["num_ranks"], pipeline["num_microbatches"])
    if (held(fixed, pipeline["freed_at_i"]) <= limit).all():
        other = run_order(fixed, pipeline["times"], pipeline["sends"])
        if aim == "span":
            assert timeline.span <= other.span
        else:
            assert timeline.makespan <= other.makespan


@given(st.booleans().flatmap(lambda folded: pipelines(folded=folded)))
@settings(max_examples=60)
def test_no_order_beats_the_bounds(pipeline):
    problem = make_problem(**pipeline)
    bounds = span_bounds(problem)
    order = automatic_order(**pipeline, effort="quick")
    timeline = run_order(order, pipeline["times"], pipeline["sends"])
    spans = timeline.finish - timeline.rank_begin
    assert timeline.rank_begin.tolist() == problem.first_start
    assert (spans >= bounds).all()


def test_one_activation_runs_serially():
    """A micro-batch at a time: all F, all I and the W of rank 0, four times over."""
    order = automatic_order(3, 4, activation_limit=[1, 1, 1])
    assert held(order, 0.0).tolist() == [1, 1, 1]
    assert run_order(order, unit_times(3)).makespan == 4 * (3 + 3 + 1)
    one_chunk_less = automatic_order(3, 4, folded=True, activation_limit=[1, 1, 1])
    assert held(one_chunk_less, 0.0).tolist() == [1, 1, 1]
    assert run_order(one_chunk_less, unit_times(6)).makespan <= 4 * (6 + 6 + 1)


def test_a_first_stage_without_input_gradient():
    """SCHEDULES, discrepancy 9: I_0 = 0 and the whole backward is W."""
    times = uneven_times([4, 4, 4, 4], [0, 4, 4, 4], [8, 4, 4, 4], [0] * 3, [0] * 3)
    order = automatic_order(4, 12, times=times, activation_limit=[8] * 4)
    assert run_order(order, times).span == 12 * 12


def test_more_memory_takes_the_bubble_away():
    """One rank's limit alone decides: the first rank must fill the way to the last and back."""
    times = unit_times(4)
    spans = [
        run_order(automatic_order(4, 16, activation_limit=[first, 5, 3, 1]), times).span
        for first in (2, 3.5, 5, 7)
    ]
    assert spans == sorted(spans, reverse=True)
    assert spans[0] > spans[-1]


def test_fractions_of_an_activation_count():
    """With half freed at I, 1.5 activations run F of one micro-batch beside W of another."""
    times = unit_times(2)
    half = automatic_order(2, 6, activation_limit=[1.5, 1.5], freed_at_i=0.5)
    whole = automatic_order(2, 6, activation_limit=[1.5, 1.5])
    assert held(half, 0.5).max() == 1.5
    assert held(whole, 0.0).max() == 1
    assert run_order(half, times).makespan < run_order(whole, times).makespan


def test_aims_are_kept_apart():
    times = uneven_times([3, 1, 2], [1, 4, 2], [2, 2, 1], [1, 0], [0, 2])
    arguments = {"times": times, "activation_limit": [3, 4, 2]}
    span = run_order(automatic_order(3, 7, aim="span", **arguments), times)
    makespan = run_order(automatic_order(3, 7, aim="makespan", **arguments), times)
    assert span.span <= makespan.span
    assert makespan.makespan <= span.makespan


def test_full_effort_is_no_worse_than_quick_on_a_long_pipeline():
    random = np.random.default_rng(5)
    rows = [random.integers(20, 40, 8), random.integers(15, 40, 8), random.integers(5, 30, 8)]
    times = uneven_times(*rows, random.integers(0, 3, 7), random.integers(0, 3, 7))
    limit = random.integers(4, 12, 8).tolist()
    spans = {
        effort: run_order(
            automatic_order(8, 32, times=times, activation_limit=limit, effort=effort), times
        ).span
        for effort in ("quick", "full")
    }
    assert spans["full"] <= spans["quick"]


def test_same_question_same_order():
    times = uneven_times([3, 5, 2, 4], [4, 2, 5, 3], [2, 3, 1, 2], [1, 1, 1], [1, 1, 1])
    lists = [automatic_order(4, 9, times=times).rank_lists() for _ in range(2)]
    assert lists[0] == lists[1]


def test_the_table_of_orders_reaches_it():
    times = unit_times(4, backward=3)
    order = build_order(Schedule.ZB_AUTO, 4, 8, times=times, activation_limit=[6] * 4)
    assert order.schedule == "zb-auto"
    assert (
        order.rank_lists()
        == automatic_order(4, 8, times=times, activation_limit=[6] * 4).rank_lists()
    )
    folded = build_order(Schedule.ZB_V, 2, 8, times=times)
    assert folded.schedule == "zb-v"
    assert (folded.num_ranks, folded.num_stages) == (2, 4)


# --- against the optimum --------------------------------------------------------------------------


def small_pipeline(seed, folded):
    random = np.random.default_rng(seed)
    ranks = int(random.integers(2, 4 if folded else 5))
    stages = 2 * ranks if folded else ranks
    rows = [random.integers(1, 20, stages) for _ in range(3)]
    edges = [random.integers(0, 5, stages - 1) for _ in range(2)]
    limits = [1.5, 2.0, ranks, 1.5 * ranks, 2 * ranks] if not folded else [ranks, 1.5 * ranks]
    return {
        "num_ranks": ranks,
        "num_microbatches": int(random.integers(2, 4 if folded else 7)),
        "times": uneven_times(*rows, *edges),
        "activation_limit": [float(random.choice(limits))] * ranks,
        "freed_at_i": float(random.choice([0.0, 0.5])),
        "sends": [Sends.OVERLAPPED, Sends.BLOCKING][int(random.integers(2))],
        "folded": folded,
    }


@pytest.mark.parametrize("aim", ["span", "makespan"])
@pytest.mark.parametrize("folded", [False, True])
def test_small_pipelines_reach_the_optimum(folded, aim):
    """CP-SAT proves the optimum; the order reaches it on chains, and the bound stays below."""
    pytest.importorskip("ortools")
    from cp_sat_orders import best_order

    for seed in range(5 if folded else 6):
        pipeline = small_pipeline(seed, folded)
        arguments = dict(pipeline)
        shape = arguments.pop("num_ranks"), arguments.pop("num_microbatches")
        times, limits = arguments.pop("times"), arguments.pop("activation_limit")
        optimum = best_order(*shape, times, limits, aim=aim, **arguments)
        assert optimum is not None
        assert optimum.proven
        timeline = run_order(automatic_order(**pipeline, aim=aim), times, pipeline["sends"])
        problem = make_problem(**pipeline)
        bounds = np.array(span_bounds(problem))
        if aim == "span":
            cost, bound = timeline.span, bounds.max()
        else:
            cost, bound = timeline.makespan, (bounds + problem.first_start).max()
        assert bound <= optimum.value
        assert optimum.value <= cost <= optimum.value * (1.02 if folded else 1)


# --- parts ----------------------------------------------------------------------------------------


@given(st.booleans().flatmap(lambda folded: pipelines(folded=folded)))
@settings(max_examples=80)
def test_heads_are_the_simulators_and_tails_match_them(pipeline):
    order = automatic_order(**pipeline, effort="quick")
    problem = make_problem(**pipeline)
    words = words_of_order(problem, order)
    assert words is not None
    assert order_of_words("again", problem, words).rank_lists() == order.rank_lists()
    heads = heads_of(problem, words)
    timeline = run_order(order, pipeline["times"], pipeline["sends"])
    assert heads is not None
    assert [start for row in heads.start for start in row] == timeline.start.tolist()
    assert heads.finish == timeline.finish.tolist()
    due = [3 * rank for rank in range(problem.num_ranks)]
    late = max(finish - d for finish, d in zip(heads.finish, due, strict=True))
    tails = tails_of(problem, words, heads, due)
    through = [
        start + problem.duration[rank * problem.codes + code] + tail
        for rank, word in enumerate(words)
        for code, start, tail in zip(word, heads.start[rank], tails.tail[rank], strict=True)
    ]
    assert max(through) == late


def test_moves_keep_the_limits_and_never_make_it_worse():
    """From a poor start: 1F1B's order with W at once, where W can wait."""
    problem = problem_of(4, 8, unit_times(4), [4.0] * 4)
    words = words_of_order(problem, one_f_one_b(4, 8))
    assert words is not None
    before = [list(word) for word in words]
    found, moves = improve(problem, words, problem.first_start, most_moves=100)
    assert words == before
    assert moves > 0
    start = heads_of(problem, words)
    assert start is not None
    assert found.late < max(f - s for f, s in zip(start.finish, problem.first_start, strict=True))
    order = order_of_words("found", problem, found.words)
    assert (held(order, 0.0) <= 4).all()
    assert run_order(order, unit_times(4)).span == found.late


def test_fixed_orders_over_the_limit_are_not_used():
    assert words_of_order(problem_of(4, 8, None, [4] * 4), one_f_one_b(4, 8)) is not None
    assert words_of_order(problem_of(4, 8, None, [4, 3, 2, 1]), one_f_one_b(4, 8)) is not None
    assert words_of_order(problem_of(4, 8, None, [4, 3, 1.5, 1]), one_f_one_b(4, 8)) is None
    assert words_of_order(problem_of(4, 8, None, [4, 3, 2, 1]), zb_h1(4, 8)) is None
    assert words_of_order(problem_of(4, 8, None, [4, 3, 2, 1], freed=1.0), zb_h1(4, 8)) is not None


def test_words_that_deadlock_have_no_heads():
    problem = problem_of(2, 2, None, None)
    assert heads_of(problem, [[0, 1, 0, 1, 2, 2], [0, 0, 1, 1, 2, 2]]) is None
    with pytest.raises(ValueError, match="deadlock"):
        improve(problem, [[0, 1, 0, 1, 2, 2], [0, 0, 1, 1, 2, 2]], [0, 0])


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"activation_limit": [2, 2, 0.5, 2]}, r"\"0.5\" .*rank 2.*>= 1"),
        ({"activation_limit": [2, math.nan, 2, 2]}, r"\"nan\" .*rank 1"),
        ({"activation_limit": [2, 2]}, r"\"2\" activation limits.*4, one a rank"),
        ({"freed_at_i": 1.5}, r"\"1.5\" is no share"),
        ({"times": unit_times(3)}, r"\"3\" forward times.*4"),
        ({"times": unit_times(4), "folded": True}, r"\"4\" forward times.*8"),
        ({"times": unit_times(4, backward=0, weight=1)}, r"\"-1\" .*are negative"),
        ({"num_microbatches": 0}, r"\"0\" is no number"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(InputError, match=message) as caught:
        automatic_order(**{"num_ranks": 4, "num_microbatches": 8, **arguments})
    assert "\n" not in str(caught.value)


def test_boundless_limits_are_legal():
    order = automatic_order(3, 5, activation_limit=[math.inf] * 3)
    assert run_order(order, unit_times(3)).span == 15
