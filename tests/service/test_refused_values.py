"""Values that no question can have: refused by their field, and ``validate_only`` says the same.

In this process, as a worker answers; what is unexpected would be INTERNAL.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from google.rpc import error_details_pb2, status_pb2
from rpcs import CLUSTER, CSV, MODEL, SKETCH, csv_model, curve_question, plan_question, training

import planner
from planner.messages.plans import plan_message
from planner.service.answering import Answering
from planner.service.frames import Failed, Task
from planner.v1 import common_pb2, inputs_pb2, plan_pb2
from planner.v1 import planner_service_pb2 as pb

CONFIG = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 128256,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
    "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.fixture(scope="module")
def answering() -> Answering:
    return Answering()


@cache
def _plan(kind: str) -> str:
    """A plan that was found, one that says that nothing fits, one of a two-way schedule."""
    model = "gpt3-175b" if kind == "infeasible" else "llama3-8b"
    cluster = "dgx-h100:1" if kind == "infeasible" else "dgx-h100:2"
    return planner.plan(model, cluster, global_batch_size=32, sequence_length=4096).to_json()


def plan_of_kind(kind: str = "found") -> plan_pb2.Plan:
    return plan_message(planner.plans.Plan.model_validate_json(_plan(kind)))


def ask(answering: Answering, request: Any) -> tuple[str, str, str]:
    """Reason, field and description of a refusal; empty where it was answered."""
    method = type(request).__name__.removesuffix("Request")
    task = Task(1, method, request.SerializeToString(), 30.0)
    found = answering.answer(task, lambda: False, None)
    if not isinstance(found, Failed):
        return "", "", ""
    status = status_pb2.Status.FromString(found.error)
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for detail in status.details:
        detail.Unpack(info)
        detail.Unpack(bad)
    if not bad.field_violations:
        return info.reason, "", status.message
    return info.reason, bad.field_violations[0].field, bad.field_violations[0].description


# --- plans ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["value_quanta", "bound_quanta"])
@pytest.mark.parametrize("text", ["", "x", "1e9", "1_0", "١", "9" * 5000])
@pytest.mark.parametrize("method", ["EvaluatePlan", "ExplainPlan", "SimulateSchedule"])
def test_a_certificate_holds_whole_numbers(
    answering: Answering, method: str, name: str, text: str
) -> None:
    plan = plan_of_kind()
    setattr(plan.certificate, name, text)
    request = getattr(pb, f"{method}Request")(plan=plan_pb2.PlanSource(plan=plan))
    reason, field, why = ask(answering, request)
    assert (reason, field) == ("INVALID_ARGUMENT", f"plan.plan.certificate.{name}")
    assert "is no whole number" in why
    assert len(why) < 200


def test_a_certificate_of_another_plan_of_a_question_is_read_too(answering: Answering) -> None:
    plan = plan_of_kind()
    plan.certificate.value_quanta = ""
    plan.certificate.witness["n"].integer = "many"
    source = plan_pb2.PlanSource(plan=plan)
    warm = pb.SolvePlanRequest(question=plan_question(warm_start_plan=source))
    now = pb.ComputeScalingCurveRequest(question=curve_question(current_plan=source))
    name = "plan.certificate.value_quanta"
    assert ask(answering, warm)[1] == f"question.warm_start_plan.{name}"
    assert ask(answering, now)[1] == f"question.current_plan.{name}"
    plan.certificate.value_quanta = "1"
    judged = pb.EvaluatePlanRequest(plan=plan_pb2.PlanSource(plan=plan))
    assert ask(answering, judged)[1] == "plan.plan.certificate.witness[n].integer"


def test_that_nothing_fits_needs_a_reason(answering: Answering) -> None:
    plan = plan_of_kind("infeasible")
    request = pb.ExplainPlanRequest(plan=plan_pb2.PlanSource(plan=plan))
    assert ask(answering, request) == ("", "", "")
    request.plan.plan.ClearField("infeasible")
    for request.validate_only in (True, False):
        reason, field, why = ask(answering, request)
        assert (reason, field) == ("BAD_PLAN", "plan")
        assert "infeasible is missing" in why


@pytest.mark.parametrize("name", ["dp", "pp", "tp", "cp", "ep", "vpp", "microbatch_size"])
@pytest.mark.parametrize("degree", [0, -1])
def test_degrees_of_a_plan_are_counts(answering: Answering, name: str, degree: int) -> None:
    plan = plan_of_kind()
    setattr(plan.layout, name, degree)
    for source in (
        plan_pb2.PlanSource(plan=plan),
        plan_pb2.PlanSource(plan_json=json.dumps({"layout": {name: degree}})),
    ):
        request = pb.ComputeScalingCurveRequest(question=curve_question(current_plan=source))
        reason, field, why = ask(answering, request)
        assert reason == "BAD_LAYOUT"
        assert field == f"question.current_plan.{source.WhichOneof('source')}"
        assert f"layout.{name} is {degree}" in why


# --- clusters and models -------------------------------------------------------------------------

_CALIBRATION = ("gpu", "calibration")
_LINK = ("links", 0)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("gpu", "peak_flops", "bf16"), 0),
        (("gpu", "peak_flops", "bf16"), 5e-324),
        (("gpu", "peak_flops", "bf16"), 1e308),
        (("gpu", "memory_bandwidth_bytes_per_s"), 5e-324),
        (("gpu", "memory_bandwidth_bytes_per_s"), 1e308),
        *(
            ((*_CALIBRATION, f"{name}_efficiency"), 5e-324)
            for name in ("gemm", "attention", "memory", "domain", "network")
        ),
        *(
            ((*_CALIBRATION, name), 1e308)
            for name in ("gemm_half_width", "gemm_half_rows", "layer_floor_ms",
                         "collective_latency_ms", "step_overhead_ms", "activation_factor")
        ),
        ((*_CALIBRATION, "activation_factor"), 1e9),
        ((*_CALIBRATION, "step_overhead_ms"), 1e9),
        ((*_LINK, "bandwidth_bytes_per_s"), 5e-324),
        ((*_LINK, "bandwidth_bytes_per_s"), 1e308),
        ((*_LINK, "latency_s"), 1e308),
        ((*_LINK, "oversubscription"), 1e308),
        (("price_per_gpu_hour",), 1e308),
    ],
)  # fmt: skip
def test_figures_of_a_cluster_stay_in_their_range(
    answering: Answering, place: tuple[Any, ...], value: float
) -> None:
    document = json.loads(planner.load_cluster("dgx-h100:2").model_dump_json())
    inner = document
    for part in place[:-1]:
        inner = inner[part]
    inner[place[-1]] = value
    cluster = inputs_pb2.ClusterSource(cluster_json=json.dumps(document))
    for only in (True, False):
        request = pb.SolvePlanRequest(question=plan_question(cluster=cluster), validate_only=only)
        reason, field, why = ask(answering, request)
        assert (reason, field) == ("BAD_CLUSTER", "question.cluster.cluster_json")
        assert ".".join(map(str, place)) in why
        assert "is out of range; expected a value" in why


@pytest.mark.parametrize(
    "changes",
    [
        {"gpu.peak_flops.bf16": 1.0, "gpu.calibration.gemm_efficiency": 1e-6},
        {"gpu.memory_bandwidth_bytes_per_s": 1.0, "gpu.calibration.memory_efficiency": 1e-6},
        {"gpu.calibration.gemm_half_width": 1e6, "gpu.calibration.gemm_half_rows": 1e6},
        {"gpu.calibration.layer_floor_ms": 1e6, "gpu.calibration.collective_latency_ms": 1e6},
        {"gpu.calibration.step_overhead_ms": 1e6},
        {"gpu.calibration.activation_factor": 1e3},
        {"links.0.bandwidth_bytes_per_s": 1.0, "links.0.oversubscription": 1e6},
        {"links.1.bandwidth_bytes_per_s": 1.0, "links.1.oversubscription": 1e6},
        {"links.1.latency_s": 1e3, "links.0.latency_s": 1e3},
    ],
)
def test_no_figure_of_its_range_overflows(answering: Answering, changes: dict[str, float]) -> None:
    """Answered, or refused as too large; at the ends of the ranges, several at once."""
    document = json.loads(planner.load_cluster("dgx-h100:2").model_dump_json())
    for place, value in changes.items():
        *outer, last = [int(part) if part.isdigit() else part for part in place.split(".")]
        inner = document
        for part in outer:
            inner = inner[part]
        inner[last] = value
    cluster = inputs_pb2.ClusterSource(cluster_json=json.dumps(document))
    request = pb.SolvePlanRequest(question=plan_question(cluster=cluster))
    reason, _, why = ask(answering, request)
    assert reason in ("", "INVALID_INPUT")
    assert not reason or "64-bit" in why


@pytest.mark.parametrize("text", ["!!int ''", "!!bool x", "!!timestamp 'x'", "!!float ''"])
def test_a_yaml_tag_that_its_value_contradicts(answering: Answering, text: str) -> None:
    cluster = inputs_pb2.ClusterSource(text=f"name: mine\nnodes: {text}")
    reason, field, why = ask(
        answering, pb.SolvePlanRequest(question=plan_question(cluster=cluster))
    )
    assert (reason, field) == ("BAD_CLUSTER", "question.cluster.text")
    assert why.startswith("line 2: ")


def test_a_model_too_large_for_any_arithmetic(answering: Answering) -> None:
    text = json.dumps({**CONFIG, "hidden_size": 10**9})
    model = inputs_pb2.ModelSource(
        text=inputs_pb2.ModelText(format=inputs_pb2.MODEL_FORMAT_CONFIG_JSON, text=text)
    )
    for request in (
        pb.SolvePlanRequest(question=plan_question(model=model)),
        pb.PartitionStagesRequest(model=model, cluster=CLUSTER, stage_count=1),
    ):
        reason, _, why = ask(answering, request)
        assert reason == "INVALID_INPUT"
        assert "hidden=1000000000" in why
        assert "parameters" in why


@pytest.mark.parametrize(
    ("name", "value"),
    [("latency_ms", 1e308), ("latency_ms", 1e7), ("bandwidth_bytes_per_s", 5e-324),
     ("bandwidth_bytes_per_s", 1e300)],
)  # fmt: skip
def test_a_link_of_a_partition_stays_in_its_range(
    answering: Answering, name: str, value: float
) -> None:
    request = pb.PartitionStagesRequest(model=csv_model(), stage_count=4, **{name: value})
    _, field, why = ask(answering, request)
    assert field == name
    assert "is out of range; expected a value" in why


# --- validate_only -------------------------------------------------------------------------------


def _source(text: str) -> plan_pb2.PlanSource:
    return plan_pb2.PlanSource(plan_json=text)


def _about(method: str, text: str, **changes: Any) -> Any:
    given = {"model": MODEL, "cluster": CLUSTER, "training": training(), **changes}
    given = {name: value for name, value in given.items() if value is not None}
    return getattr(pb, f"{method}Request")(plan=_source(text), **given)


def _layout(**degrees: int) -> str:
    return json.dumps({"layout": {"num_microbatches": 4, "microbatch_size": 1, **degrees}})


def _simulated(**fields: Any) -> pb.SimulateScheduleRequest:
    schedule = common_pb2.SCHEDULE_ONE_F_ONE_B
    return pb.SimulateScheduleRequest(
        schedule=schedule, stage_count=3, microbatch_count=2, **fields
    )


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (
            lambda: pb.SolvePlanRequest(question=plan_question(warm_start_plan=_source("{"))),
            "question.warm_start_plan.plan_json",
        ),
        (
            lambda: pb.SolvePlanRequest(
                question=plan_question(warm_start_plan=plan_pb2.PlanSource())
            ),
            "question.warm_start_plan",
        ),
        (
            lambda: pb.CreatePlanRequest(question=plan_question(warm_start_plan=_source("{"))),
            "question.warm_start_plan.plan_json",
        ),
        (lambda: _about("EvaluatePlan", _layout(dp=8, pp=3)), "plan"),
        (lambda: _about("EvaluatePlan", _layout(dp=800, pp=2)), "plan"),
        (lambda: _about("EvaluatePlan", SKETCH, training=None), "plan"),
        (lambda: _about("ExplainPlan", _layout(dp=8, pp=200)), "plan"),
        (lambda: _about("ExplainPlan", SKETCH, training=None), "plan"),
        (lambda: _about("SimulateSchedule", _layout(dp=8, pp=3)), "plan"),
        (lambda: _about("SimulateSchedule", SKETCH, training=None), "plan"),
        (lambda: _simulated(renderings=[99]), "renderings"),
        (lambda: _simulated(renderings=[0]), "renderings"),
        (lambda: _simulated(renderings=[pb.RENDERING_TEXT], text_width=-1), "text_width"),
        (lambda: _simulated(timeline_width=5000), "timeline_width"),
        (
            lambda: pb.ComputeScalingCurveRequest(
                question=curve_question(current_plan=_source(SKETCH))
            ),
            "question.current_plan",
        ),
        (
            lambda: pb.ComputeScalingCurveRequest(
                question=curve_question(
                    current_plan=_source('{"layout": {"pp": 1}, "stages": [["x"]]}')
                )
            ),
            "question.current_plan",
        ),
    ],
)
def test_validate_only_refuses_what_would_be_refused(
    answering: Answering, make: Callable[[], Any], field: str
) -> None:
    said = []
    for only in (True, False):
        request = make()
        request.validate_only = only
        said.append(ask(answering, request))
    assert said[0] == said[1]
    assert said[0][0]
    assert said[0][1] == field


def test_validate_only_takes_what_would_be_answered(answering: Answering) -> None:
    found = _source(_plan("found"))
    for request in (
        _about("EvaluatePlan", SKETCH),
        _about("ExplainPlan", SKETCH),
        _about("SimulateSchedule", SKETCH),
        pb.EvaluatePlanRequest(plan=found),
        pb.ExplainPlanRequest(plan=found),
        pb.SimulateScheduleRequest(plan=found),
        pb.SolvePlanRequest(question=plan_question(warm_start_plan=found)),
        pb.ComputeScalingCurveRequest(question=curve_question(current_plan=found)),
        _simulated(renderings=[pb.RENDERING_TEXT], text_width=100),
    ):
        for request.validate_only in (True, False):
            assert ask(answering, request) == ("", "", "")


@pytest.mark.parametrize("text", ["tomorrow", "9999-99-99T00:00:00Z", "2027-01-01"])
def test_valid_until_is_a_time(answering: Answering, text: str) -> None:
    question = curve_question(valid_until=text)
    for only in (True, False):
        request = pb.ComputeScalingCurveRequest(question=question, validate_only=only)
        _, field, why = ask(answering, request)
        assert field == "question.valid_until"
        assert "RFC 3339" in why


def test_rows_of_a_model_are_read_as_ever(answering: Answering) -> None:
    assert CSV.count("\n") == 25
    assert ask(answering, pb.PutModelRequest(model=csv_model())) == ("", "", "")
