"""The judge accepts what the planner makes and catches every lie about it."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

import planner
from planner.assembly import assemble_plan
from planner.check import check_plan
from planner.cost.question import partition_question, plan_pricer
from planner.plans import Plan, Status
from planner.schedules.simulate import RECURRENT
from planner.schedules.step import evaluate_cuts
from planner.specs import Objective, PartitionSetup, Recompute, Schedule, Sends, Training
from tests.factories import chain_model, small_cluster, times_model, tiny_llama

TIMES = (3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0)


def busy_chain():
    return chain_model(
        TIMES,
        parameter_bytes=10_000,
        activation_bytes=40_000,
        output_bytes=[100, 900, 50, 400, 800, 30, 700, 10],
    )


def codes(plan: Plan, **source) -> set[str]:
    return {violation.code for violation in planner.evaluate(plan, **source).violations}


PARTITIONS = {
    "bottleneck": {},
    "step time": {"objective": "step-time"},
    "gpipe": {"objective": "step-time", "schedule": "gpipe"},
    "blocking": {"objective": "step-time", "sends": "blocking"},
    "dear cuts": {"objective": "step-time", "bandwidth_bytes_per_s": 5e4, "latency_ms": 0.25},
    "tight": {"memory_bytes": 700_000, "bandwidth_bytes_per_s": 1e6},
    "one stage": {"stages": 1},
    "a stage each": {"stages": len(TIMES)},
    "one micro-batch": {"objective": "step-time", "microbatches": 1},
}


@pytest.mark.parametrize("name", PARTITIONS)
def test_every_partition_passes(name):
    options = {"stages": 3, "microbatches": 6, **PARTITIONS[name]}
    model = busy_chain()
    plan = planner.partition(model, **options)
    assert plan.status is Status.OPTIMAL
    verification = planner.evaluate(plan, model=model)
    assert verification.violations == ()
    assert verification.ok
    assert verification.bound_recomputed
    # and as it comes back from a file
    assert planner.evaluate(Plan.model_validate_json(plan.to_json()), model=model).ok


PLANS = {
    "step time": {},
    "bottleneck": {"objective": "bottleneck"},
    "cheapest": {"objective": "tokens-per-dollar"},
    "fewest": {"objective": "fewest-gpus"},
    "pipeline": {"pp": 4},
    "tensor and pipeline": {"pp": 2, "tp": 2, "sends": Sends.BLOCKING},
    "gpipe": {"pp": 2, "schedules": (Schedule.GPIPE,)},
    "full recompute": {"pp": 2, "recompute": (Recompute.FULL,)},
    "layers": {"pp": 2, "recompute": (Recompute.NONE, Recompute.LAYERS)},
    "unsharded": {"sharded_optimizer": False},
    "few nodes searched": {"pp": 4, "work_limit": 1},
}


@pytest.mark.parametrize("memory_gib", [80, 5])
@pytest.mark.parametrize("name", PLANS)
def test_every_plan_passes(name, memory_gib):
    cluster = small_cluster(memory_bytes=memory_gib * 2**30, price=2.0)
    plan = planner.plan(
        tiny_llama(), cluster, global_batch_size=32, sequence_length=1024, **PLANS[name]
    )
    assert plan.status in (Status.OPTIMAL, Status.FEASIBLE)
    verification = planner.evaluate(plan, model=tiny_llama())
    assert verification.violations == ()
    assert verification.layout_bound_checked
    assert not verification.bound_recomputed  # the other layouts are the search's word
    assert planner.evaluate(Plan.model_validate_json(plan.to_json()), model=tiny_llama()).ok


def test_catalog_plan_passes():
    plan = planner.plan("llama3-8b", "dgx-h100:2", global_batch_size=64, sequence_length=4096)
    assert planner.evaluate(plan).ok


def test_infeasible_plans_have_nothing_to_verify():
    plan = planner.partition(busy_chain(), 3, memory_bytes=1)
    assert plan.status is Status.INFEASIBLE
    assert planner.evaluate(plan, model=busy_chain()).ok


# --- mutations -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plan() -> Plan:
    return planner.partition(
        busy_chain(), 3, 6, objective="step-time", bandwidth_bytes_per_s=1e6, memory_bytes=10**7
    )


def with_layers(plan: Plan, *layers: tuple[str, ...]) -> Plan:
    stages = tuple(
        stage.model_copy(update={"layers": held})
        for stage, held in zip(plan.stages, layers, strict=True)
    )
    return plan.model_copy(update={"stages": stages})


def with_stage(plan: Plan, index: int, /, **fields: object) -> Plan:
    stages = list(plan.stages)
    stages[index] = stages[index].model_copy(update=fields)
    return plan.model_copy(update={"stages": tuple(stages)})


def with_layout(plan: Plan, **fields: object) -> Plan:
    return plan.model_copy(update={"layout": plan.layout.model_copy(update=fields)})


def with_certificate(plan: Plan, **fields: object) -> Plan:
    certificate = plan.certificate.model_copy(update=fields)
    return plan.model_copy(update={"certificate": certificate})


def judged(plan: Plan) -> set[str]:
    return codes(plan, model=busy_chain())


def test_layers_moved(plan):
    first, second, third = (stage.layers for stage in plan.stages)
    moved = with_layers(plan, first[:-1], (first[-1], *second), third)
    assert {"PRICE", "CERTIFICATE"} <= judged(moved)


def test_layers_out_of_order(plan):
    first, second, third = (stage.layers for stage in plan.stages)
    assert judged(with_layers(plan, third, second, first)) == {"NOT_CONTIGUOUS"}
    swapped = with_layers(plan, (second[0], *first[1:]), (first[0], *second[1:]), third)
    assert judged(swapped) == {"NOT_CONTIGUOUS"}


def test_layer_on_two_stages(plan):
    first, second, third = (stage.layers for stage in plan.stages)
    assert judged(with_layers(plan, first, (first[-1], *second), third)) == {"LAYER_TWICE"}
    assert judged(with_layers(plan, (*first, first[0]), second, third)) == {"LAYER_TWICE"}


def test_layer_dropped_and_unknown(plan):
    first, second, third = (stage.layers for stage in plan.stages)
    assert judged(with_layers(plan, first, second, third[:-1])) == {"LAYER_MISSING"}
    assert judged(with_layers(plan, first, second, (*third, "ghost"))) == {"UNKNOWN_LAYER"}


def test_empty_stage_and_stage_count(plan):
    first, second, third = (stage.layers for stage in plan.stages)
    assert judged(with_layers(plan, first, (*second, *third), ())) == {"EMPTY_STAGE"}
    fewer = plan.model_copy(update={"stages": plan.stages[:2]})
    assert {"STAGE_COUNT", "LAYER_MISSING"} == judged(fewer)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("forward_ms", 0.5),
        ("backward_ms", 0.5),
        ("input_gradient_ms", 0.5),
        ("weight_gradient_ms", 0.5),
        ("communication_ms", 0.0),
        ("recompute_ms", 1.0),
        ("optimizer_ms", 1.0),
        ("exposed_reduction_ms", 1.0),
        ("in_flight", 1),
        ("memory_bytes", 5),
        ("memory_upper_bytes", 5),
        ("budget_bytes", 5),
        ("memory", {"activations": 5}),
        ("recompute", Recompute.FULL),
        ("recomputed_layers", 1),
        ("verdict", "out_of_memory"),
        ("origin", "formula"),
        ("rank", 7),
    ],
)
def test_a_stage_figure_changed(plan, field, value):
    assert judged(with_stage(plan, 1, **{field: value})) == {"PRICE"}


@pytest.mark.parametrize(
    ("field", "factor"),
    [
        ("bottleneck_ms", 0.99),
        ("step_time_ms", 0.99),
        ("bubble_fraction", 0.5),
        ("peak_memory_bytes", 2),
        ("num_gpus", 2),
    ],
)
def test_a_figure_of_the_plan_changed(plan, field, factor):
    value = getattr(plan, field)
    changed = plan.model_copy(update={field: type(value)(value * factor)})
    assert judged(changed) == {"PRICE"}


def test_step_terms_and_groups_changed(plan):
    terms = plan.step_terms.model_copy(update={"makespan_ms": 1.0})
    assert judged(plan.model_copy(update={"step_terms": terms})) == {"PRICE"}
    assert judged(plan.model_copy(update={"communication": ()})) == {"PRICE"}
    assert judged(plan.model_copy(update={"sends": Sends.BLOCKING})) == {"PRICE"}


def test_small_rounding_is_not_a_violation(plan):
    assert (
        judged(plan.model_copy(update={"step_time_ms": plan.step_time_ms * (1 + 1e-12)})) == set()
    )


def test_bound_above_the_value(plan):
    value = plan.certificate.value_quanta
    changed = with_certificate(plan, bound_quanta=value + 10**6)
    assert "BOUND" in judged(changed)
    changed = changed.model_copy(update={"bound_ms": plan.bound_ms * 1.5})
    assert "BOUND" in judged(changed)
    # the plan alone, its certificate untouched
    assert judged(plan.model_copy(update={"bound_ms": plan.bound_ms * 1.5})) == {"CERTIFICATE"}
    assert judged(plan.model_copy(update={"gap": 0.1})) == {"CERTIFICATE"}


def test_optimal_with_a_bound_below_the_value(plan):
    changed = with_certificate(plan, bound_quanta=plan.certificate.bound_quanta - 1)
    assert "BOUND" in judged(changed)
    humble = changed.model_copy(
        update={
            "status": Status.FEASIBLE,
            "gap": 1 / plan.certificate.value_quanta,
            "bound_ms": plan.bound_ms,
        }
    )
    assert judged(humble) == set()


def test_optimal_without_a_certificate(plan):
    bare = plan.model_copy(update={"certificate": None})
    assert judged(bare) == {"NO_CERTIFICATE"}
    assert judged(bare.model_copy(update={"status": Status.FEASIBLE, "bound_ms": None})) == set()


def test_certificate_of_another_plan(plan):
    cuts = plan.certificate.cuts
    assert judged(with_certificate(plan, cuts=(*cuts[:-1], cuts[-1] + 1))) == {"CERTIFICATE"}
    assert judged(with_certificate(plan, recompute=(Recompute.FULL,) * 3)) == {"CERTIFICATE"}
    assert judged(with_certificate(plan, quantum_ms="1")) == {"CERTIFICATE"}
    assert "CERTIFICATE" in judged(
        with_certificate(plan, value_quanta=plan.certificate.value_quanta - 1)
    )


def test_wrong_batch(plan):
    assert judged(with_layout(plan, num_microbatches=7)) == {"BATCH"}
    assert judged(with_layout(plan, microbatch_size=2)) == {"BATCH"}
    assert judged(with_layout(plan, dp=2)) == {"BATCH"}


def test_layouts_that_cannot_be(plan):
    assert judged(with_layout(plan, tp=2)) == {"LAYOUT"}
    assert judged(with_layout(plan, dp=-1, microbatch_size=-1)) == {"LAYOUT"}
    assert judged(with_layout(plan, vpp=2)) == {"LAYOUT"}
    assert judged(with_layout(plan, schedule=Schedule.GPIPE)) == {"SCHEDULE"}


def test_budget_exceeded(plan):
    inputs = dict(plan.inputs)
    setup = PartitionSetup.model_validate_json(inputs["setup"])
    smallest = min(stage.memory_bytes for stage in plan.stages)
    inputs["setup"] = setup.model_copy(update={"memory_bytes": smallest - 1}).model_dump_json()
    verification = planner.evaluate(plan.model_copy(update={"inputs": inputs}), model=busy_chain())
    over = verification.violations
    assert {violation.code for violation in over} == {"OUT_OF_MEMORY"}
    by_rank = {stage.rank: stage for stage in verification.plan.stages}
    for violation in over:
        stage = by_rank[violation.rank]
        assert f"{stage.memory_bytes - (smallest - 1)} bytes" in violation.message
        assert stage.verdict.value == "out_of_memory"


def test_stage_pins_broken(plan):
    pinned = chain_model(
        TIMES,
        parameter_bytes=10_000,
        activation_bytes=40_000,
        output_bytes=[100, 900, 50, 400, 800, 30, 700, 10],
        pins={4: 1},
    )
    assert "l4" in plan.stages[0].layers
    assert codes(plan, model=pinned) == {"PIN"}
    impossible = chain_model(TIMES, pins={0: 1})
    assert codes(plan, model=impossible) == {"PIN"}
    first_of_second = int(plan.stages[1].layers[0][1:])
    apart = chain_model(TIMES, colocate={first_of_second: first_of_second - 1})
    assert codes(plan, model=apart) == {"PIN"}


def test_degrees_pinned_and_gpus():
    model = tiny_llama()
    cluster = small_cluster()
    plan = planner.plan(model, cluster, global_batch_size=32, sequence_length=1024, pp=2, tp=2)
    training = Training.model_validate_json(plan.inputs["training"])
    pins = training.pins.model_copy(update={"pp": 4})
    assert codes(plan, model=model, training=training.model_copy(update={"pins": pins})) == {"PIN"}
    smaller = small_cluster(nodes=1, gpus_per_node=4)
    assert "GPUS" in codes(plan, model=model, cluster=smaller)
    narrow = small_cluster(nodes=8, gpus_per_node=1)
    assert "LAYOUT" in codes(plan, model=model, cluster=narrow)
    wrong = plan.layout.model_copy(update={"tp": 3})
    assert "LAYOUT" in codes(plan.model_copy(update={"layout": wrong}), model=model)


# --- bounds above the true optimum --------------------------------------------------------------


def claimed_optimal(pricer, layout, cuts, objective, *, covers="cuts", kind="interval_dp"):
    """A plan of some cut with every figure right and a certificate that it cannot be beaten."""
    from planner.plans import Certificate

    priced = assemble_plan(pricer, layout, cuts, objective=objective)
    evaluation = evaluate_cuts(pricer.problem(layout), cuts)
    value = evaluation.bottleneck if objective == "bottleneck" else evaluation.value
    return priced.model_copy(
        update={
            "status": Status.OPTIMAL,
            "bound_ms": pricer.quantum.ms(value),
            "gap": 0.0,
            "bound_covers": covers,
            "certificate": Certificate(
                bound_kind=kind,
                cuts=tuple(cuts),
                recompute=tuple(stage.recompute for stage in priced.stages),
                value_quanta=value,
                bound_quanta=value,
                quantum_ms=str(pricer.quantum),
            ),
        }
    )


@pytest.mark.parametrize("objective", ["bottleneck", "step-time"])
@pytest.mark.parametrize("kind", ["interval_dp", "branch_and_bound"])
@pytest.mark.parametrize("schedule", RECURRENT)
def test_only_the_best_cuts_may_be_called_optimal(objective, kind, schedule):
    setup = PartitionSetup(
        num_stages=3, num_microbatches=4, schedule=schedule, bandwidth_bytes_per_s=1e6
    )
    pricer, layout = partition_question(busy_chain(), setup)
    problem = pricer.problem(layout)
    values = {}
    for interior in combinations(range(1, problem.num_blocks), 2):
        cuts = (0, *interior, problem.num_blocks)
        evaluation = evaluate_cuts(problem, cuts)
        values[cuts] = evaluation.bottleneck if objective == "bottleneck" else evaluation.value
    best = min(values.values())
    for cuts, value in values.items():
        verification = check_plan(
            pricer, claimed_optimal(pricer, layout, cuts, objective, kind=kind)
        )
        found = {violation.code for violation in verification.violations}
        if value > best:
            assert found == {"BOUND"}, cuts
        elif objective == "bottleneck" or kind == "branch_and_bound":
            assert found == set()
            assert verification.bound_recomputed


def test_bound_between_the_proven_one_and_the_optimum():
    """A weaker bound is raised: true while at most the optimum, caught above it."""
    model = busy_chain()
    plan = planner.partition(model, 3, 6, objective="bottleneck")
    optimum = plan.certificate.bound_quanta

    def raised(bound):
        ms = plan.bound_ms * bound / optimum
        value = round(plan.certificate.value_quanta)
        changed = plan.model_copy(
            update={"status": Status.FEASIBLE, "bound_ms": ms, "gap": (value - bound) / value}
        )
        return with_certificate(changed, bound_quanta=bound)

    assert codes(raised(optimum - 5), model=model) == set()
    assert "BOUND" in codes(raised(optimum + 1), model=model)


def test_a_worse_cut_of_the_best_layout_is_caught_in_a_space():
    model, cluster = tiny_llama(), small_cluster()
    plan = planner.plan(model, cluster, global_batch_size=32, sequence_length=1024, pp=4)
    training = Training.model_validate_json(plan.inputs["training"])
    pricer = plan_pricer(model, cluster, training)
    worse = (0, 1, 2, 3, 8)
    assert worse != plan.certificate.cuts
    claimed = claimed_optimal(
        pricer, plan.layout, worse, plan.objective, covers="space", kind="space"
    )
    verification = check_plan(pricer, claimed)
    assert {violation.code for violation in verification.violations} == {"BOUND"}


def test_a_sketch_is_judged_by_what_it_states():
    model = times_model([1, 2, 3, 4])
    made = planner.partition(model, 2, 4)
    sketch = Plan.model_validate(
        {
            "layout": {"pp": 2, "num_microbatches": 4},
            "stages": [
                {"rank": 0, "layers": ["l0", "l1"]},
                {"rank": 1, "layers": ["l2", "l3"]},
            ],
            "inputs": made.inputs,
        }
    )
    verification = planner.evaluate(sketch, model=model)
    assert verification.ok
    assert verification.plan.bottleneck_ms == 7.0


def test_random_partitions_pass_whatever_proved_them():
    kinds = set()
    for seed in range(60):
        rng = random.Random(seed)
        count = rng.randint(6, 14)
        model = chain_model(
            [rng.randint(1, 20) for _ in range(count)],
            [rng.randint(1, 40) for _ in range(count)],
            output_bytes=[rng.randint(0, 3000) for _ in range(count)],
        )
        plan = planner.partition(
            model,
            rng.randint(2, 5),
            rng.choice([2, 3, 4, 6, 12]),
            objective="step-time",
            bandwidth_bytes_per_s=1e6,
            sends=rng.choice(list(Sends)),
            schedule=rng.choice(RECURRENT),
        )
        verification = planner.evaluate(plan, model=model)
        assert verification.violations == ()
        assert verification.bound_recomputed
        kinds.add(plan.certificate.bound_kind)
    assert kinds == {"interval_dp", "branch_and_bound"}


# --- claims that no figure shows -----------------------------------------------------------------


@pytest.fixture(scope="module")
def space_plan() -> Plan:
    return planner.plan(
        tiny_llama(), small_cluster(price=2.0), global_batch_size=32, sequence_length=1024, pp=2
    )


@pytest.fixture(scope="module")
def diamond():
    """A graph whose parallel branches fold into one block unless it is cut in file order."""
    model = chain_model([3.0, 4.0, 4.0, 4.0, 5.0, 2.0])
    inputs = ((), ("l0",), ("l0",), ("l1",), ("l2", "l3"), ("l4",))
    layers = (
        layer.model_copy(update={"inputs": read})
        for layer, read in zip(model.layers, inputs, strict=True)
    )
    return model.model_copy(update={"layers": tuple(layers)})


def test_the_scope_of_a_bound_cannot_be_renamed(plan, space_plan):
    for scope in ("space", "block_cuts", "file_order_cuts", "foo", ""):
        assert judged(plan.model_copy(update={"bound_covers": scope})) == {"BOUND_COVERS"}
    for scope in ("cuts", "block_cuts", "file_order_cuts", "foo"):
        forged = space_plan.model_copy(update={"bound_covers": scope})
        assert codes(forged, model=tiny_llama()) == {"BOUND_COVERS"}
    # without a bound there is nothing that a scope could overstate
    bare = plan.model_copy(
        update={"status": Status.FEASIBLE, "bound_ms": None, "gap": None, "certificate": None}
    )
    assert judged(bare.model_copy(update={"bound_covers": "space"})) == set()
    assert "BOUND_COVERS" in judged(
        bare.model_copy(update={"status": Status.OPTIMAL, "bound_covers": "space"})
    )


@pytest.mark.parametrize("inside", [False, True])
def test_the_scope_of_a_graphs_bound_cannot_be_renamed(diamond, inside):
    setup = PartitionSetup(num_stages=2, num_microbatches=4, cut_inside_blocks=inside)
    pricer, layout = partition_question(diamond, setup)
    count = pricer.problem(layout).num_blocks
    own = "file_order_cuts" if inside else "block_cuts"
    for scope in ("cuts", "block_cuts", "file_order_cuts", "space"):
        verifications = [
            check_plan(
                pricer,
                claimed_optimal(pricer, layout, (0, cut, count), "bottleneck", covers=scope),
            )
            for cut in range(1, count)
        ]
        assert any(verification.ok for verification in verifications) == (scope == own)


def test_a_bound_over_the_cuts_of_one_layout_is_recomputed(space_plan):
    """Renaming scope and kind together claims less, and what is claimed is then recomputed."""
    humbler = with_certificate(space_plan, bound_kind="interval_dp")
    assert codes(humbler, model=tiny_llama()) == {"BOUND_COVERS"}
    humbler = humbler.model_copy(update={"bound_covers": "cuts"})
    verification = planner.evaluate(humbler, model=tiny_llama())
    assert verification.ok
    assert verification.bound_recomputed


def test_a_partition_has_no_space_to_bound(plan):
    assert judged(with_certificate(plan, bound_kind="space")) == {"CERTIFICATE"}


def test_a_certificate_without_a_bound_is_judged(plan):
    humble = plan.model_copy(update={"status": Status.FEASIBLE, "bound_ms": None, "gap": None})
    assert judged(humble) == set()
    assert judged(with_certificate(humble, recompute=(Recompute.FULL,) * 3)) == {"CERTIFICATE"}
    assert judged(humble.model_copy(update={"status": Status.OPTIMAL})) == {"NO_CERTIFICATE"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("forward_ms", 0.5), ("communication_ms", 99.0), ("in_flight", 9), ("budget_bytes", 5),
        ("memory", {"activations": 5}), ("memory_upper_bytes", 5), ("verdict", "tight"),
        ("recompute", "full"), ("recomputed_layers", 1), ("chunks", [["l0"], ["l1"]]),
        ("memory_bytes", 5),
    ],
)  # fmt: skip
def test_each_figure_of_a_sketched_stage_is_judged_alone(plan, field, value):
    def sketch(**stated):
        return Plan.model_validate(
            {
                "layout": {"pp": 3, "num_microbatches": 6},
                "stages": [
                    {"rank": stage.rank, "layers": stage.layers, **(stated if at == 1 else {})}
                    for at, stage in enumerate(plan.stages)
                ],
                "inputs": plan.inputs,
            }
        )

    assert judged(sketch()) == set()
    right = plan.stages[1].model_dump()[field]
    assert judged(sketch(**{field: right})) == set()
    assert judged(sketch(**{field: value})) == {"PRICE"}


@pytest.mark.parametrize("field", ["mfu", "tokens_per_s", "tokens_per_dollar"])
def test_a_figure_that_a_partition_does_not_have(plan, space_plan, field):
    assert getattr(plan, field) is None
    assert judged(plan.model_copy(update={field: 0.5})) == {"PRICE"}
    assert getattr(space_plan, field) is not None
    assert codes(space_plan.model_copy(update={field: 0.5}), model=tiny_llama()) == {"PRICE"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("time_model", "measured"), ("rank_order", "dp-tp"), ("model", "another"),
        ("cluster", "dgx-h100:2"), ("global_batch_size", 7), ("sequence_length", 7),
        ("precision", "fp8"), ("optimizer", "another"),
    ],
)  # fmt: skip
def test_what_a_plan_says_about_its_question(plan, space_plan, field, value):
    for made, model in ((plan, busy_chain()), (space_plan, tiny_llama())):
        document = made.model_dump(mode="json")
        assert codes(Plan.model_validate(document), model=model) == set()
        forged = Plan.model_validate({**document, field: value})
        assert codes(forged, model=model) == {"PRICE"}


def test_the_recompute_of_the_layout_and_the_chunks(plan):
    assert judged(with_layout(plan, recompute="full")) == {"PRICE"}
    assert judged(with_stage(plan, 1, chunks=(plan.stages[0].layers,))) == {"PRICE"}
    assert judged(with_stage(plan, 1, chunks=())) == {"PRICE"}


@pytest.mark.parametrize("objective", list(Objective))
def test_the_objective_of_a_partition(objective):
    model = busy_chain()
    plan = planner.partition(model, 3, 6)
    bare = plan.model_copy(
        update={
            "status": Status.FEASIBLE, "bound_ms": None, "gap": None, "certificate": None,
            "objective": objective,
        }
    )  # fmt: skip
    known = objective in (Objective.BOTTLENECK, Objective.STEP_TIME)
    assert codes(bare, model=model) == (set() if known else {"OBJECTIVE"})
