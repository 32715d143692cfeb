"""Plans and partitions under every schedule: solved, judged, simulated, and why one wins."""

import json

import pytest
from factories import chain_model, small_cluster

import planner
from planner.errors import InputError, LayoutError
from planner.plans import Status
from planner.schedule_rules import AUTOMATIC, RULES
from planner.specs import Model, Schedule

MIB = 2**20
TIMES = [1.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 2.5]


def model(activation_bytes: int = 8 * MIB) -> Model:
    return chain_model(
        TIMES,
        parameter_bytes=20 * MIB,
        activation_bytes=activation_bytes,
        output_bytes=2 * MIB,
        name="ten",
    )


def partition(schedule, **options):
    options = {"stages": 4, "microbatches": 8, "bandwidth_bytes_per_s": 25e9, **options}
    if schedule is Schedule.NAIVE:
        options["microbatches"] = 1
    return planner.partition(model(), schedule=schedule, **options)


@pytest.mark.parametrize("objective", ["bottleneck", "step-time"])
@pytest.mark.parametrize("schedule", list(Schedule))
def test_partitions_of_every_schedule_stand_before_the_judge(schedule, objective):
    plan = partition(schedule, objective=objective)
    assert plan.status in (Status.OPTIMAL, Status.FEASIBLE)
    assert plan.layout.schedule is schedule
    assert plan.bound_ms <= getattr(
        plan, "bottleneck_ms" if objective == "bottleneck" else "step_time_ms"
    )
    held = sorted(name for stage in plan.stages for name in stage.layers)
    copies = 2 if RULES[schedule].two_way else 1
    assert held == sorted([layer.name for layer in model().layers] * copies)
    verification = planner.evaluate(plan, model=model())
    assert verification.violations == ()
    if not RULES[schedule].asynchronous:
        simulated = planner.simulate(plan, model=model())
        assert simulated.to_dict()["makespan_ms"] == pytest.approx(plan.step_terms.makespan_ms)
        assert simulated.to_dict()["in_flight"] == [stage.in_flight for stage in plan.stages]


@pytest.mark.parametrize("schedule", [s for s in Schedule if not RULES[s].several_stages])
def test_one_stage_a_rank_is_proven(schedule):
    plan = partition(schedule, objective="step-time")
    if schedule is Schedule.ZB_AUTO:
        assert plan.gap < 0.1
    else:
        assert plan.status is Status.OPTIMAL


@pytest.mark.parametrize("schedule", list(Schedule))
def test_layouts_of_every_schedule_stand_before_the_judge(schedule):
    if schedule is Schedule.NAIVE:
        options = {"microbatch_size": 8, "dp": 1, "pp": 4}
    else:
        options = {"pp": 4, "microbatch_size": 1}
    plan = planner.plan(
        model(),
        small_cluster(),
        global_batch_size=16 if schedule is not Schedule.NAIVE else 8,
        sequence_length=128,
        schedules=schedule.value,
        allow_fewer=True,
        **options,
    )
    assert plan.layout.schedule is schedule
    assert plan.layout.pp == 4
    verification = planner.evaluate(plan, model=model(), cluster=small_cluster())
    assert verification.violations == ()
    assert json.loads(plan.to_json())["layout"]["vpp"] == plan.layout.vpp


def test_auto_is_the_best_of_the_synchronous_schedules():
    alone = {}
    for schedule in AUTOMATIC:
        try:
            alone[schedule] = partition(schedule, objective="step-time").step_time_ms
        except LayoutError:
            continue
    best = partition("auto", objective="step-time")
    assert best.step_time_ms == min(alone.values())
    assert best.layout.schedule in AUTOMATIC
    assert {row.layout.schedule for row in best.runners_up} <= set(AUTOMATIC)
    assert best.step_time_ms < alone[Schedule.ONE_F_ONE_B]
    assert planner.evaluate(best, model=model()).ok


def test_auto_searches_layouts_under_every_schedule():
    options = {"global_batch_size": 16, "sequence_length": 128, "pp": 4}
    auto = planner.plan(model(), small_cluster(), schedules="auto", **options)
    plain = planner.plan(model(), small_cluster(), **options)
    assert auto.step_time_ms < plain.step_time_ms
    assert plain.layout.schedule in (Schedule.ONE_F_ONE_B, Schedule.GPIPE)
    assert not RULES[auto.layout.schedule].two_way
    assert not RULES[auto.layout.schedule].asynchronous


def test_chunks_can_be_pinned():
    options = {"global_batch_size": 16, "sequence_length": 128, "pp": 2, "dp": 4}
    plan = planner.plan(model(), small_cluster(), schedules="interleaved", vpp=5, **options)
    assert plan.layout.vpp == 5
    assert all(len(stage.chunks) == 5 for stage in plan.stages)
    assert plan.stages[0].chunks[1] == ("l2",)
    with pytest.raises(InputError, match="5 chunks"):
        planner.plan(model(), small_cluster(), vpp=5, **options)


def uniform(layers: int, output_bytes: int) -> Model:
    return chain_model([1.0] * layers, output_bytes=output_bytes, activation_bytes=MIB)


def test_gpipe_beats_1f1b_where_transfers_are_not_hidden_and_says_why():
    # SCHEDULES: P=4, M=8, f=1, b=2, c=1 a way: 1F1B 49 ms, GPipe 39 ms, the popular formula 33.
    costly = {"bandwidth_bytes_per_s": 1e9, "stages": 4, "microbatches": 8}
    plan = planner.partition(
        uniform(4, 10**6), objective="step-time", schedule="1f1b,gpipe", **costly
    )
    assert plan.layout.schedule is Schedule.GPIPE
    assert plan.step_time_ms == pytest.approx(39.0)
    (other,) = plan.runners_up
    assert other.layout.schedule is Schedule.ONE_F_ONE_B
    assert other.step_time_ms == pytest.approx(49.0)
    assert "waiting for transfers" in other.why


def test_the_search_says_why_gpipe_won():
    plan = planner.plan(
        chain_model([1.0] * 4, output_bytes=30 * 10**6, activation_bytes=MIB),
        small_cluster(bandwidth=25e9),
        global_batch_size=8,
        sequence_length=128,
        pp=4,
        tp=1,
        dp=1,
        microbatch_size=1,
        allow_fewer=True,
    )
    assert plan.layout.schedule is Schedule.GPIPE
    assert any("1f1b on this layout" in note and "transfers" in note for note in plan.notes)


def test_weight_versions_are_memory_and_can_make_a_plan_infeasible():
    weights = 5 * 20 * MIB  # two or three layers of 20 MiB and their states
    tight = {"stages": 4, "microbatches": 8, "optimizer": "none"}
    plan = planner.partition(model(), schedule="pipedream", **tight)
    versions = [stage.memory["weight_versions"] for stage in plan.stages]
    per_copy = [stage.memory["parameters"] for stage in plan.stages]
    assert versions == [(4 - 1 - s) * copy for s, copy in enumerate(per_copy)]
    double = planner.partition(model(), schedule="pipedream-2bw", **tight)
    assert [s.memory["weight_versions"] for s in double.stages] == [
        s.memory["parameters"] for s in double.stages
    ]
    budget = max(stage.memory_bytes for stage in plan.stages) - weights // 10
    short = planner.partition(model(), schedule="pipedream", memory_bytes=budget // 2, **tight)
    fits = planner.partition(model(), schedule="1f1b", memory_bytes=budget // 2, **tight)
    assert fits.status is Status.OPTIMAL
    assert short.status is Status.INFEASIBLE
    assert short.infeasible.short_bytes > 0
    assert any("1f1b" in s.arguments.get("--schedule", "") for s in short.infeasible.suggestions)


def test_zero_bubble_uses_the_memory_that_is_left():
    roomy = planner.partition(
        model(64 * MIB), stages=4, microbatches=12, schedule="zb-auto", objective="step-time"
    )
    least = max(stage.memory_bytes for stage in roomy.stages)
    sizes = []
    for share in (1.0, 0.7, 0.55):
        plan = planner.partition(
            model(64 * MIB),
            stages=4,
            microbatches=12,
            schedule="zb-auto",
            objective="step-time",
            memory_bytes=int(least * share),
            recompute="none",
        )
        if plan.status is Status.INFEASIBLE:
            continue
        sizes.append((plan.step_time_ms, sum(stage.in_flight for stage in plan.stages)))
        assert all(stage.memory_bytes <= int(least * share) for stage in plan.stages)
        assert planner.evaluate(plan, model=model(64 * MIB)).ok
    assert len(sizes) >= 2
    assert sizes[0][0] <= sizes[-1][0]
    assert sizes[0][1] > sizes[-1][1]


def test_full_recompute_is_refused_where_the_backward_is_split():
    with pytest.raises(InputError, match="full recompute saves nothing"):
        partition(Schedule.ZB_H1, recompute="full")


def test_pins_are_refused_where_ranks_hold_several_stages():
    pinned = chain_model(TIMES, pins={0: 0}, output_bytes=MIB)
    with pytest.raises(InputError, match="pin_stage"):
        planner.partition(pinned, 4, 8, schedule="interleaved")


def test_several_stages_that_do_not_fit_are_an_answer():
    plan = planner.partition(model(), 4, 8, schedule="interleaved", memory_bytes=64 * MIB)
    assert plan.status is Status.INFEASIBLE
    assert plan.infeasible.constraint == "memory"
    assert plan.infeasible.short_bytes > 0
    assert "least crowded cut that was found" in plan.infeasible.message


def forged(plan, **stage_fields):
    stages = list(plan.stages)
    stages[1] = stages[1].model_copy(update=stage_fields)
    return plan.model_copy(update={"stages": tuple(stages)})


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"in_flight": 1}, "PRICE"),
        ({"memory_bytes": 1}, "PRICE"),
        ({"chunks": (("l1",),)}, "CHUNKS"),
        ({"chunks": (("l1",), ("l1",))}, "LAYER_TWICE"),
        ({"weight_gradient_ms": 0.25}, "PRICE"),
    ],
)
def test_forged_chunks_are_found(fields, code):
    plan = partition(Schedule.INTERLEAVED, objective="step-time")
    assert planner.evaluate(plan, model=model()).ok
    found = planner.evaluate(forged(plan, **fields), model=model())
    assert code in {violation.code for violation in found.violations}


def test_chunks_in_the_wrong_order_are_found():
    plan = partition(Schedule.INTERLEAVED, objective="step-time")
    first, second = plan.stages[1].chunks
    found = planner.evaluate(forged(plan, chunks=(second, first)), model=model())
    assert {violation.code for violation in found.violations} == {"NOT_CONTIGUOUS"}


def test_a_forged_bound_is_found():
    plan = partition(Schedule.ZB_H1, objective="step-time")
    certificate = plan.certificate.model_copy(
        update={"bound_quanta": plan.certificate.value_quanta * 2}
    )
    worse = plan.model_copy(
        update={"certificate": certificate, "bound_ms": plan.step_time_ms * 2, "gap": -1.0}
    )
    assert not planner.evaluate(worse, model=model()).ok
    eager = partition(Schedule.INTERLEAVED, objective="step-time")
    claimed = eager.model_copy(
        update={
            "status": Status.OPTIMAL,
            "bound_ms": eager.step_time_ms,
            "gap": 0.0,
            "certificate": eager.certificate.model_copy(
                update={"bound_quanta": eager.certificate.value_quanta}
            ),
        }
    )
    assert not planner.evaluate(claimed, model=model()).ok


@pytest.mark.parametrize("schedule", [Schedule.ZB_V, Schedule.INTERLEAVED, Schedule.DUALPIPE])
@pytest.mark.parametrize("status", [Status.OPTIMAL, Status.FEASIBLE])
def test_a_forged_proof_of_ranks_with_several_stages_is_found(schedule, status):
    plan = partition(schedule, objective="step-time")
    value = plan.certificate.value_quanta
    bound = value if status is Status.OPTIMAL else value - 1
    quantum = plan.step_time_ms / value
    claimed = plan.model_copy(
        update={
            "status": status,
            "bound_ms": plan.step_time_ms if status is Status.OPTIMAL else bound * quantum,
            "gap": (value - bound) / value,
            "certificate": plan.certificate.model_copy(update={"bound_quanta": bound}),
        }
    )
    found = planner.evaluate(claimed, model=model())
    assert any("no proof" in violation.message for violation in found.violations)


def test_a_last_stage_without_f_and_i_is_scheduled():
    plan = planner.partition(
        chain_model([5.0, 0.0], [0.0, 2.0]), 2, 3, schedule="zb-auto", objective="step-time"
    )
    assert plan.step_time_ms == pytest.approx(17.0)


def test_memory_moves_the_chunks():
    activations = [60 * 10**6] + [10**7] * 11
    crowded = chain_model(
        [1.0] * 12, parameter_bytes=2 * 10**6, activation_bytes=activations, output_bytes=10**6
    )
    for schedule in ("zb-v", "v-half", "interleaved", "dualpipe-v"):
        plan = planner.partition(crowded, 3, 8, schedule=schedule, memory_bytes=600 * MIB)
        assert plan.status in (Status.OPTIMAL, Status.FEASIBLE)
        assert planner.evaluate(plan, model=crowded).ok


def test_a_misfit_of_several_schedules_names_the_closest():
    tight = {"stages": 4, "microbatches": 8, "memory_bytes": 130 * MIB}
    alone = planner.partition(model(), schedule="1f1b", **tight)
    both = planner.partition(model(), schedule="gpipe,1f1b", **tight)
    assert alone.status is both.status is Status.INFEASIBLE
    assert both.infeasible.short_bytes == alone.infeasible.short_bytes
    assert both.layout.schedule is Schedule.ONE_F_ONE_B


def test_a_bound_over_several_schedules_holds_for_all_of_them():
    best = partition("auto", objective="step-time")
    bounds = []
    for schedule in AUTOMATIC:
        try:
            bounds.append(partition(schedule, objective="step-time").bound_ms)
        except LayoutError:
            continue
    assert best.bound_ms == pytest.approx(min(min(bounds), best.step_time_ms))
    assert (best.status is Status.OPTIMAL) == (best.gap == 0)
    assert planner.evaluate(best, model=model()).ok


def test_pinned_chunks_leave_out_schedules_with_other_numbers():
    plan = partition("auto", objective="step-time", vpp=2)
    rows = [plan.layout, *(row.layout for row in plan.runners_up)]
    assert {layout.vpp for layout in rows} == {2}


def test_sketches_name_schedules_and_chunks(tmp_path):
    layers = [layer.name for layer in model().layers]
    sketch = tmp_path / "sketch.json"
    for layout, stages in (
        ({"schedule": "zb-h1"}, [layers[:5], layers[5:]]),
        ({"schedule": "interleaved"}, [[layers[:2], layers[4:6]], [layers[2:4], layers[6:]]]),
        ({"schedule": "zb-v"}, [[layers[:2], layers[6:]], [layers[2:4], layers[4:6]]]),
    ):
        text = {"layout": {"dp": 1, "num_microbatches": 8, **layout}, "stages": stages}
        sketch.write_text(json.dumps(text))
        training = planner.Training(
            global_batch_size=8, sequence_length=128, schedules=(layout["schedule"],)
        )
        found = planner.evaluate(
            str(sketch), model=model(), cluster=small_cluster(), training=training
        )
        assert found.ok, found.violations
        assert found.plan.layout.vpp == (1 if layout["schedule"] == "zb-h1" else 2)


def test_explain_names_what_waits_for_transfers():
    plan = planner.partition(
        uniform(4, 10**6), 4, 8, objective="step-time", bandwidth_bytes_per_s=1e9
    )
    findings = planner.explain(plan, model=uniform(4, 10**6)).findings
    assert any("waiting for transfers" in finding and "gpipe" in finding for finding in findings)


def test_a_stream_is_not_measured_against_a_pipeline_that_drains():
    plan = partition(Schedule.PIPEDREAM, objective="step-time")
    findings = planner.explain(plan, model=model()).findings
    assert any("never drains" in finding for finding in findings)
    assert not any("(P-1)/(M+P-1)" in finding for finding in findings)


@pytest.mark.parametrize("pins", [{"pp": 1}, {"microbatch_size": 8}, {}])
def test_no_list_of_schedules_loses_to_one_of_its_own(pins):
    options = {"global_batch_size": 16, "sequence_length": 128, "runners_up": 0, **pins}
    crowded = small_cluster(memory_bytes=400 * MIB)
    heavy = model(96 * MIB)

    def step(schedules):
        plan = planner.plan(heavy, crowded, schedules=schedules, recompute="none", **options)
        return float("inf") if plan.step_time_ms is None else plan.step_time_ms

    alone = {s: step(s) for s in ("gpipe", "1f1b", "zb-h1", "zb-auto")}
    for names in ("gpipe,1f1b", "1f1b,gpipe", "zb-h1,gpipe,1f1b", "gpipe,zb-auto,1f1b,zb-h1"):
        assert step(names) <= min(alone[name] for name in names.split(","))
    assert step("auto") <= min(alone.values())


def test_the_search_finds_room_where_the_balanced_chunks_have_none():
    activations = [60 * 10**6] + [10**7] * 11
    crowded = chain_model(
        [1.0] * 12, parameter_bytes=2 * 10**6, activation_bytes=activations, output_bytes=10**6
    )
    options = {"global_batch_size": 8, "sequence_length": 128, "pp": 3, "dp": 1, "tp": 1}
    one = small_cluster(1, 3, memory_bytes=600 * MIB)
    plan = planner.plan(
        crowded, one, schedules="zb-v", microbatch_size=1, optimizer="none", **options
    )
    assert plan.status in (Status.OPTIMAL, Status.FEASIBLE)
    assert plan.infeasible is None
    assert planner.evaluate(plan, model=crowded, cluster=one).ok
