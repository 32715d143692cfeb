"""The library's surface: what it takes, says and refuses."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

import planner
from planner.errors import InputError, LayoutError, NotInCatalogError, PlanFileError
from planner.plans import Layout, Plan, Status
from planner.specs import Limits, Objective, Training
from planner.version import planner_version
from tests.factories import chain_model, small_cluster, times_model, tiny_llama

BATCH = {"global_batch_size": 16, "sequence_length": 512}


def test_names():
    assert set(planner.__all__) <= set(dir(planner))
    for name in planner.__all__:
        assert getattr(planner, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'simulate_everything'"):
        planner.simulate_everything  # noqa: B018


# --- models and clusters ------------------------------------------------------------------------


def test_names_files_and_specs_are_alike(tmp_path):
    by_name = planner.plan("llama3-8b", "dgx-h100:1", **BATCH)
    by_spec = planner.plan(
        planner.load_model("llama3-8b"), planner.load_cluster("dgx-h100:1"), **BATCH
    )
    assert by_name.step_time_ms == by_spec.step_time_ms
    profile = tmp_path / "two.csv"
    profile.write_text(
        "name,forward_ms,backward_ms,parameter_bytes,activation_bytes,output_bytes\n"
        "a,1,2,0,0,0\nb,2,4,0,0,0\n"
    )
    assert planner.partition(str(profile), 2).bottleneck_ms == 6


def test_unknown_columns_are_named_in_a_warning(tmp_path):
    profile = tmp_path / "odd.csv"
    profile.write_text(
        "name,forward_ms,backward_ms,parameter_bytes,activation_bytes,output_bytes,mood\n"
        "a,1,2,0,0,0,good\n"
    )
    with pytest.warns(planner.InputWarning, match="mood"):
        planner.load_model(str(profile))


def test_unknown_names_are_refused_with_the_nearest():
    with pytest.raises(NotInCatalogError, match="llama3-8b"):
        planner.load_model("llama3-8")
    with pytest.raises(InputError):
        planner.plan("llama3-8b", "dgx-h1000:1", **BATCH)


# --- plan -----------------------------------------------------------------------------------------


def test_the_sequence_length_defaults_to_the_models():
    model = tiny_llama()
    plan = planner.plan(model, small_cluster(), global_batch_size=16)
    training = Training.model_validate_json(plan.inputs["training"])
    assert training.sequence_length == model.sequence_length == 1024
    without = chain_model([1.0, 2.0]).model_copy(update={"sequence_length": None})
    with pytest.raises(InputError, match="sequence length is not known"):
        planner.plan(without, small_cluster(), global_batch_size=16)


def test_inputs_say_what_was_asked():
    model, cluster = tiny_llama(), small_cluster()
    plan = planner.plan(model, cluster, pp=2, **BATCH)
    assert plan.inputs["question"] == "plan"
    assert plan.inputs["model_digest"] == model.digest()
    assert plan.inputs["planner_version"] == planner_version()
    assert Training.model_validate_json(plan.inputs["training"]).pins.pp == 2
    partition = planner.partition(times_model([1.0, 2.0]), 2)
    assert partition.inputs["question"] == "partition"


def test_json_goes_round():
    plan = planner.plan(tiny_llama(), small_cluster(price=2.0), pareto=True, rejected=True, **BATCH)
    text = plan.to_json()
    assert Plan.model_validate_json(text) == plan
    assert Plan.model_validate_json(text).to_json() == text
    document = json.loads(text)
    for key in (
        "status", "objective", "time_model", "bottleneck_ms", "step_time_ms", "bound_ms", "gap",
        "bound_covers", "layout", "stages", "bubble_fraction", "tokens_per_s", "mfu", "infeasible",
    ):  # fmt: skip
        assert key in document
    for key in (
        "rank", "layers", "chunks", "recompute", "forward_ms", "backward_ms",
        "input_gradient_ms", "weight_gradient_ms", "communication_ms", "in_flight",
        "memory_bytes", "memory", "verdict",
    ):  # fmt: skip
        assert key in document["stages"][0]
    with pytest.raises(ValidationError):
        plan.status = Status.UNKNOWN


def test_pins_are_obeyed():
    plan = planner.plan(
        tiny_llama(), small_cluster(2, 4), dp=2, pp=2, tp=2, microbatch_size=4, **BATCH
    )
    layout = plan.layout
    assert (layout.dp, layout.pp, layout.tp, layout.microbatch_size) == (2, 2, 2, 4)
    assert layout.num_microbatches == 2


def test_objectives():
    model, cluster = tiny_llama(), small_cluster(2, 4, price=2.0)
    plans = {name: planner.plan(model, cluster, objective=name, **BATCH) for name in Objective}
    fastest = plans[Objective.STEP_TIME]
    cheapest = plans[Objective.TOKENS_PER_DOLLAR]
    smallest = plans[Objective.FEWEST_GPUS]
    assert cheapest.tokens_per_dollar >= fastest.tokens_per_dollar
    assert smallest.num_gpus <= cheapest.num_gpus
    assert smallest.idle_gpus == 8 - smallest.num_gpus
    assert fastest.idle_gpus == 0
    assert plans[Objective.BOTTLENECK].bottleneck_ms <= fastest.bottleneck_ms
    dollars = 2.0 * cheapest.num_gpus * cheapest.step_time_ms / 3.6e6
    assert cheapest.tokens_per_dollar == pytest.approx(16 * 512 / dollars)
    assert cheapest.tokens_per_s == pytest.approx(16 * 512 / (cheapest.step_time_ms / 1e3))


def test_runners_up_pareto_and_rejected_on_request():
    model, cluster = tiny_llama(), small_cluster(2, 4)
    plain = planner.plan(model, cluster, **BATCH)
    assert 1 <= len(plain.runners_up) <= 3
    assert all(c.step_time_ms >= plain.step_time_ms for c in plain.runners_up)
    assert plain.pareto == plain.rejected == ()
    none = planner.plan(model, cluster, runners_up=0, **BATCH)
    assert none.runners_up == ()
    assert none.layout == plain.layout
    rich = planner.plan(model, cluster, pareto=True, rejected=True, allow_fewer=True, **BATCH)
    assert rich.rejected
    steps = [c.step_time_ms for c in rich.pareto]
    assert steps == sorted(steps)
    assert steps[0] == pytest.approx(rich.step_time_ms)


def test_fewer_gpus_are_said_aloud_and_not_used():
    model = tiny_llama()
    cluster = small_cluster(8, 1, bandwidth=1e8)
    plan = planner.plan(model, cluster, global_batch_size=8, sequence_length=128)
    assert plan.idle_gpus == 0
    note = next(note for note in plan.notes if "would be faster" in note)
    assert "--allow-fewer" in note
    fewer = planner.plan(model, cluster, global_batch_size=8, sequence_length=128, allow_fewer=True)
    assert fewer.step_time_ms < plan.step_time_ms
    assert fewer.idle_gpus > 0


def test_a_unit_of_work_limits_deterministically():
    plans = {
        planner.plan(tiny_llama(), small_cluster(), work_limit=1, **BATCH).to_json()
        for _ in range(2)
    }
    assert len(plans) == 1


def test_progress_is_told():
    heard: list[str] = []
    planner.plan(
        tiny_llama(), small_cluster(2, 4, memory_bytes=2**30), objective="fewest-gpus",
        progress=heard.append, **BATCH,
    )  # fmt: skip
    assert any("too few" in text for text in heard)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "speed"}, "is no objective"),
        ({"precision": "fp7"}, "option precision"),
        ({"dp": 0}, "option dp"),
        ({"time_limit_s": -1.0}, "option wall_s"),
        ({"work_limit": 0}, "option work"),
        ({"colour": "red"}, "option colour"),
        ({"recompute": ()}, "option recompute"),
        ({"schedules": ("zb-h9",)}, "did you mean zb-h"),
    ],
)
def test_bad_options_are_one_clear_error(options, message):
    with pytest.raises(InputError, match=message) as caught:
        planner.plan(tiny_llama(), small_cluster(), **BATCH, **options)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_status == 2


def test_a_batch_of_nothing():
    with pytest.raises(InputError, match="global_batch_size"):
        planner.plan(tiny_llama(), small_cluster(), global_batch_size=0, sequence_length=8)


def test_limits_are_checked():
    with pytest.raises(ValidationError):
        Limits(wall_s=0)


# --- partition ------------------------------------------------------------------------------------


def test_partition_refuses_what_it_cannot_mean():
    model = times_model([1.0, 2.0])
    with pytest.raises(InputError, match="is no objective of a partition"):
        planner.partition(model, 2, objective="fewest-gpus")
    with pytest.raises(LayoutError, match="3 stages are more than the 2 layers"):
        planner.partition(model, 3)
    with pytest.raises(InputError, match="num_stages"):
        planner.partition(model, 0)
    with pytest.raises(InputError, match="option memory"):
        planner.partition(model, 2, memory=5)


def test_free_cuts_are_said():
    model = times_model([1.0, 2.0])
    assert any("cuts are free" in note for note in planner.partition(model, 2).notes)
    latency = planner.partition(model, 2, latency_ms=0.5)
    assert any("their latency alone" in note for note in latency.notes)
    given = planner.partition(model, 2, bandwidth_bytes_per_s=1e9)
    assert not any("bandwidth" in note for note in given.notes)
    assert not any("bandwidth" in note for note in planner.partition(model, 1).notes)


def test_a_partition_of_shapes_needs_a_cluster():
    with pytest.raises(InputError, match="--cluster"):
        planner.partition("gpt2-xl", 4, 8)
    plan = planner.partition("gpt2-xl", 4, 8, cluster="dgx-a100-80gb:1")
    assert plan.status is Status.OPTIMAL
    assert planner.evaluate(plan).ok


# --- evaluate and explain -------------------------------------------------------------------------


def test_plans_are_judged_from_their_files(tmp_path):
    plan = planner.plan("gpt2-xl", "dgx-a100-80gb:1", **BATCH)
    path = tmp_path / "plan.json"
    path.write_text(plan.to_json())
    assert planner.evaluate(str(path)).ok
    assert planner.explain(str(path)).breakdown_ms
    with pytest.raises(InputError, match="no such file"):
        planner.evaluate(str(tmp_path / "none.json"))
    path.write_text("{")
    with pytest.raises(PlanFileError, match="is not JSON"):
        planner.evaluate(str(path))


def test_a_layout_alone_gets_its_best_cut():
    made = planner.plan(tiny_llama(), small_cluster(2, 4), pp=4, tp=2, **BATCH)
    sketch = Plan(layout=made.layout.model_copy(update={"recompute": "none"}), inputs=made.inputs)
    verification = planner.evaluate(sketch, model=tiny_llama())
    assert verification.ok
    assert verification.plan.step_time_ms == made.step_time_ms


def test_a_sketch_without_inputs_needs_them_as_arguments():
    sketch = Plan(layout=Layout(dp=2, pp=2, tp=2, num_microbatches=8))
    with pytest.raises(PlanFileError, match="names no model"):
        planner.evaluate(sketch)
    with pytest.raises(PlanFileError, match="does not say how it trains"):
        planner.evaluate(sketch, model=tiny_llama())
    training = Training(**BATCH)
    with pytest.raises(PlanFileError, match="names no cluster"):
        planner.evaluate(sketch, model=tiny_llama(), training=training)
    verification = planner.evaluate(
        sketch, model=tiny_llama(), training=training, cluster=small_cluster(2, 4)
    )
    assert verification.ok
    assert verification.plan.num_gpus == 8


def test_a_changed_model_is_not_judged_by_mistake(tmp_path):
    profile = tmp_path / "two.csv"
    header = "name,forward_ms,backward_ms,parameter_bytes,activation_bytes,output_bytes\n"
    profile.write_text(header + "a,1,2,0,0,0\nb,2,4,0,0,0\n")
    plan = planner.partition(str(profile), 2)
    assert planner.evaluate(plan).ok
    profile.write_text(header + "a,1,2,0,0,0\nb,9,4,0,0,0\n")
    with pytest.raises(PlanFileError, match="has changed since the plan was made"):
        planner.evaluate(plan)
    # Said on purpose, it is judged.
    assert not planner.evaluate(plan, model=str(profile)).ok


def test_an_unknown_plan_explains_itself():
    unknown = planner.partition(times_model([1.0] * 50), 5, time_limit_s=1e-9)
    if unknown.status is Status.UNKNOWN:
        assert "no plan was found in the time given" in planner.explain(unknown).headline
