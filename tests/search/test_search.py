"""The layout search against solving every layout, and against every cut of every layout."""

from __future__ import annotations

import random
import time
from itertools import combinations, count

import pytest

from planner.cost.question import plan_pricer
from planner.deadlines import Deadline, OutOfTimeError, within
from planner.errors import InputError, PinError
from planner.schedules.step import evaluate_cuts
from planner.search.answer import plan_of_search
from planner.search.pareto import pareto_front
from planner.search.run import SearchLimits, search_layouts
from planner.search.space import enumerate_layouts
from planner.specs import Layer, LayerCost, Model, Objective, Pins, Recompute, Sends, Training
from tests.factories import chain_model, small_cluster, tiny_llama

MIB = 2**20


def random_chain(rng: random.Random, *, tied: bool = False) -> Model:
    """A profiled chain of known-type layers with wild sizes."""
    count = rng.randint(3, 8)
    pins = {rng.randrange(count): rng.choice([0, -1])} if rng.random() < 0.15 else {}
    colocated = {count - 1: count - 2} if rng.random() < 0.15 else {}
    layers = []
    for i in range(count):
        cost = LayerCost(
            forward_ms=rng.randint(1, 20) / 4,
            backward_ms=rng.randint(1, 40) / 4,
            parameter_bytes=rng.randint(0, 40) * MIB,
            activation_bytes=rng.randint(0, 30) * MIB,
            output_bytes=rng.choice([0, 1, 20, 200]) * 100_000,
            checkpoint_bytes=rng.choice([None, MIB // 2]),
        )
        layers.append(
            Layer(
                name=f"l{i}",
                type=rng.choice(["block", "mlp", "attention"]),
                inputs=(f"l{i - 1}",) if i else (),
                pin_stage=pins.get(i),
                colocate_with=f"l{colocated[i]}" if i in colocated else None,
                tied_to=f"l{i - 1}" if tied and i == count // 2 else None,
                costs=(cost,),
            )
        )
    return Model(name="random", layers=tuple(layers), sequence_length=128)


def random_question(seed: int):
    """(pricer, space, objective) of a small question; None where no layout is legal."""
    rng = random.Random(seed)
    model = tiny_llama() if rng.random() < 0.35 else random_chain(rng)
    shape = rng.choice([(1, 4), (2, 2), (1, 3), (2, 4), (3, 2)])
    memory = rng.choice([2**36, 2**36, 2**31, 2**30, 700 * MIB, 400 * MIB])
    cluster = small_cluster(*shape, memory_bytes=memory, bandwidth=rng.choice([25e9, 1e9]))
    degrees = [None, None, None, None, 1, 2]
    training = Training(
        global_batch_size=rng.choice([4, 6, 8, 12, 16]),
        sequence_length=rng.choice([128, 512]),
        sends=rng.choice([Sends.OVERLAPPED, Sends.OVERLAPPED, Sends.BLOCKING]),
        sharded_optimizer=rng.random() < 0.7,
        overlap_gradient_reduction=rng.random() < 0.7,
        optimizer=rng.choice(["adam", "adam", "sgd", "none"]),
        allow_fewer=rng.random() < 0.4,
        recompute=rng.choice(
            [
                (Recompute.NONE,),
                (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL),
                (Recompute.FULL,),
                (Recompute.NONE, Recompute.LAYERS),
            ]
        ),
        pins=Pins(
            pp=rng.choice(degrees), tp=rng.choice(degrees), microbatch_size=rng.choice(degrees)
        ),
    )
    objective = rng.choice([Objective.STEP_TIME, Objective.STEP_TIME, *Objective])
    try:
        pricer = plan_pricer(model, cluster, training)
        space = enumerate_layouts(model, cluster, training, len(pricer.chain.blocks))
    except InputError:
        return None
    return pricer, space, objective


def questions(first: int, wanted: int):
    """That many legal questions, with their seeds."""
    found = 0
    seed = first
    while found < wanted:
        question = random_question(seed)
        if question is not None:
            found += 1
            yield seed, *question
        seed += 1


def leading(result, objective: Objective, count: int) -> list[tuple[int, ...]]:
    """What the first results are worth (ties may be different layouts)."""
    rows = []
    for found in result.ranking[:count]:
        gpus = (found.layout.num_gpus,) if objective is Objective.FEWEST_GPUS else ()
        rows.append((*gpus, found.value(objective)))
    return rows


def test_best_equals_solving_every_layout():
    feasible = pruned = 0
    seen = set()
    for seed, pricer, space, objective in questions(1000, 110):
        quick = search_layouts(pricer, space, objective=objective)
        slow = search_layouts(pricer, space, objective=objective, exhaustive=True)
        assert bool(quick.ranking) == bool(slow.ranking), seed
        if not quick.ranking:
            continue
        feasible += 1
        seen.add(objective)
        assert leading(quick, objective, 1) == leading(slow, objective, 1), seed
        best = quick.ranking[0].value(objective)
        assert quick.bound <= best
        assert slow.bound <= best
        assert quick.proven, seed
        pruned += quick.cut_solves < slow.cut_solves
    assert feasible > 70
    assert pruned > 35
    assert seen == set(Objective)


def every_value(pricer, layout):
    """(step value, bottleneck, peak bytes) of every cut of a layout, by the plain evaluation."""
    try:
        problem = pricer.problem(layout)
    except PinError:
        return
    for interior in combinations(range(1, problem.num_blocks), layout.pp - 1):
        found = evaluate_cuts(problem, (0, *interior, problem.num_blocks))
        if found is not None:
            yield found.value, found.bottleneck, found.peak_bytes


def test_best_equals_every_cut_of_every_layout():
    compared = 0
    for seed, pricer, space, objective in questions(5000, 60):
        if len(space) > 120:
            continue
        values = []
        for index in range(len(space)):
            layout = space.layout(index)
            for step, bottleneck, _ in every_value(pricer, layout):
                gpus = layout.num_gpus
                values.append(
                    {
                        Objective.STEP_TIME: (step,),
                        Objective.BOTTLENECK: (bottleneck,),
                        Objective.TOKENS_PER_DOLLAR: (step * gpus,),
                        Objective.FEWEST_GPUS: (gpus, step),
                    }[objective]
                )
        result = search_layouts(pricer, space, objective=objective)
        if not values:
            assert not result.ranking, seed
            continue
        compared += 1
        assert leading(result, objective, 1) == [min(values)], seed
        assert result.bound == min(values)[-1], seed
    assert compared > 30


def test_bounds_of_layouts_never_exceed_their_best_cut():
    layouts = 0
    for seed, pricer, space, _ in questions(9000, 25):
        if len(space) > 80:
            continue
        bounds = search_layouts(pricer, space, exhaustive=True)
        for index in range(len(space)):
            best = min(
                (step for step, *_ in every_value(pricer, space.layout(index))), default=None
            )
            if best is None:
                assert index not in bounds.solved
                continue
            layouts += 1
            assert bounds.bounds.memory_short[index] == 0, (seed, index)
            assert bounds.bounds.step[index] <= best, (seed, index)
            assert bounds.solved[index].step_bound <= best <= bounds.solved[index].step
    assert layouts > 100


@pytest.mark.parametrize("objective", list(Objective))
def test_the_first_three_equal_the_exhaustive_ones(objective):
    for seed, pricer, space, _ in questions(20_000, 30):
        quick = search_layouts(pricer, space, objective=objective, keep=3)
        slow = search_layouts(pricer, space, objective=objective, exhaustive=True)
        assert leading(quick, objective, 1) == leading(slow, objective, 1), seed
        if objective is Objective.FEWEST_GPUS:
            fewest = [
                f for f in slow.ranking if f.layout.num_gpus == slow.ranking[0].layout.num_gpus
            ]
            assert len(quick.ranking) >= min(3, len(fewest))
            continue
        assert leading(quick, objective, 3) == leading(slow, objective, 3), seed


def test_the_first_three_equal_every_cut_of_every_layout():
    for seed, pricer, space, _ in questions(5059, 12):
        best = sorted(
            min(values)
            for index in range(len(space))
            if (values := [step for step, *_ in every_value(pricer, space.layout(index))])
        )
        result = search_layouts(pricer, space, keep=3)
        assert [found.step for found in result.ranking[:3]] == best[:3], seed


def test_tied_layers_that_share_a_stage_are_not_called_a_misfit():
    """Tied weights are stored once where one stage holds both owners, also when pp > 1."""
    found = 0
    for seed in range(60):
        rng = random.Random(seed)
        model = random_chain(rng, tied=True)
        training = Training(
            global_batch_size=4, sequence_length=128, pins=Pins(pp=2, tp=1), max_microbatch_size=1
        )
        cluster = small_cluster(1, 2)
        pricer = plan_pricer(model, cluster, training)
        space = enumerate_layouts(model, cluster, training, len(pricer.chain.blocks))
        peaks = [
            peak
            for index in range(len(space))
            for *_, peak in every_value(pricer, space.layout(index))
        ]
        if not peaks:
            continue
        # Exactly enough memory for the leanest cut of any layout.
        tight = small_cluster(1, 2, memory_bytes=min(peaks))
        pricer = plan_pricer(model, tight, training)
        result = search_layouts(pricer, space)
        fits = [
            True for index in range(len(space)) for _ in every_value(pricer, space.layout(index))
        ]
        assert bool(result.ranking) == bool(fits), seed
        found += bool(fits)
    assert found > 30


def test_pareto_front_by_definition():
    fronts = 0
    for seed, pricer, space, _ in questions(30_000, 40):
        solved = list(search_layouts(pricer, space, exhaustive=True).solved.values())
        if not solved:
            continue

        def point(found):
            return (found.step, found.peak_bytes, found.layout.num_gpus)

        front = pareto_front(solved)
        expected = {
            point(one)
            for one in solved
            if not any(
                all(a <= b for a, b in zip(point(other), point(one), strict=True))
                and point(other) != point(one)
                for other in solved
            )
        }
        assert [point(found) for found in front] == sorted(expected), seed
        assert pareto_front(reversed(solved)) == front
        fronts += len(front) > 1
    assert fronts > 5


def test_fewest_gpus_finds_the_smallest_count_that_fits():
    model = tiny_llama()
    training = Training(global_batch_size=16, sequence_length=512, allow_fewer=True)
    counts = []
    for memory_mib in (8000, 2500, 1200, 700, 420):
        cluster = small_cluster(2, 4, memory_bytes=memory_mib * MIB)
        pricer = plan_pricer(model, cluster, training)
        space = enumerate_layouts(model, cluster, training, len(pricer.chain.blocks))
        result = search_layouts(pricer, space, objective=Objective.FEWEST_GPUS)
        everything = search_layouts(pricer, space, exhaustive=True).solved.values()
        assert result.ranking[0].layout.num_gpus == min(f.layout.num_gpus for f in everything)
        counts.append(result.ranking[0].layout.num_gpus)
    assert counts == sorted(counts)
    assert counts[0] == 1 < counts[-1]


def test_limits_leave_a_bound_that_holds():
    interrupted = 0
    for seed, pricer, space, _ in questions(40_000, 25):
        full = search_layouts(pricer, space)
        if not full.ranking:
            continue
        best = full.ranking[0].step
        few = search_layouts(pricer, space, limits=SearchLimits(nodes_per_layout=1))
        assert few.bound <= best <= few.ranking[0].step, seed
        for most in (30, 100, 300):
            looks = count()
            flag = Deadline(stopped=lambda own=looks, most=most: next(own) > most)
            try:
                with within(flag):
                    stopped = search_layouts(pricer, space)
            except OutOfTimeError:  # before the first bounds
                continue
            interrupted += stopped.interrupted == "stopped"
            assert stopped.bound <= best
        with within(Deadline(time.monotonic() - 1)), pytest.raises(OutOfTimeError):
            search_layouts(pricer, space)
    assert interrupted > 5


def test_plans_of_searches_say_what_was_found():
    for seed, pricer, space, objective in questions(50_000, 25):
        result = search_layouts(pricer, space, objective=objective, keep=4)
        if not result.ranking:
            continue
        plan = plan_of_search(pricer, result, objective, rejected=True)
        assert plan.layout.num_gpus == result.ranking[0].layout.num_gpus
        assert 0 <= plan.gap < 1, seed
        assert plan.bound_covers == "space"
        # Every other layout is on the list, with a reason.
        assert len(plan.rejected) == len(space) - 1
        assert {row.reason for row in plan.rejected} <= {
            "pins", "memory", "slower", "worse", "bound"
        }  # fmt: skip
        shapes = [
            (c.layout.dp, c.layout.pp, c.layout.tp, c.layout.microbatch_size)
            for c in plan.runners_up
        ]
        assert len(set(shapes)) == len(shapes) <= 3
        if objective is Objective.STEP_TIME:
            steps = [plan.step_time_ms, *(c.step_time_ms for c in plan.runners_up)]
            assert steps == sorted(steps)
            assert all(c.why for c in plan.runners_up)


def test_no_layout_fits_without_a_proof_by_every_rank():
    """A model whose largest layer fits no GPU is refused, layout by layout, with its reason."""
    model = chain_model([1.0, 1.0], parameter_bytes=[10 * MIB, 4000 * MIB], type="layer")
    training = Training(global_batch_size=4, sequence_length=128)
    cluster = small_cluster(1, 4, memory_bytes=2**30)
    pricer = plan_pricer(model, cluster, training)
    space = enumerate_layouts(model, cluster, training, 2)
    result = search_layouts(pricer, space)
    assert not result.ranking
    assert set(result.no_fit) == set(range(len(space)))
