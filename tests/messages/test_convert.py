"""Plans on the wire: every field is there, and what comes back is what was sent, byte for byte."""

from __future__ import annotations

import itertools

import pytest
from pydantic import BaseModel

import planner
from planner.messages.convert import to_message
from planner.messages.inputs import (
    cluster_of,
    cluster_source,
    content_hash,
    model_of,
    model_source,
    training_message,
    training_options,
)
from planner.messages.plans import plan_id_of, plan_message, plan_of, termination_message
from planner.options import spec_of
from planner.plans import (
    Candidate,
    Certificate,
    CollectiveGroup,
    Infeasible,
    Layout,
    Plan,
    Rejected,
    Stage,
    StepTerms,
    Suggestion,
    Termination,
    Violation,
)
from planner.specs import (
    Objective,
    Pins,
    Precision,
    Recompute,
    Schedule,
    Sends,
    Tier,
    Training,
)
from planner.v1 import common_pb2, plan_pb2

QUESTIONS = [
    {"model": "gpt3-175b", "cluster": "dgx-a100-80gb:16", "global_batch_size": 256,
     "sequence_length": 2048, "pareto": True, "rejected": True},
    {"model": "llama3-405b", "cluster": "dgx-h100:1", "global_batch_size": 8},
    {"model": "llama3-8b", "cluster": "dgx-h100:1", "global_batch_size": 64,
     "sequence_length": 4096, "schedules": "auto"},
    {"model": "llama3-8b", "cluster": "dgx-h100:2", "global_batch_size": 64,
     "sequence_length": 4096, "objective": "tokens-per-dollar"},
    {"model": "mixtral-8x7b", "cluster": "dgx-h100:2", "global_batch_size": 64,
     "sequence_length": 4096, "objective": "fewest-gpus", "recompute": "full"},
]  # fmt: skip


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: q["model"])
def test_a_plan_comes_back_as_it_was(question: dict[str, object]) -> None:
    plan = planner.plan(**question)  # type: ignore[arg-type]
    data = plan_message(plan).SerializeToString(deterministic=True)
    back = plan_of(plan_pb2.Plan.FromString(data))
    assert back.to_json() == plan.to_json()
    assert plan_id_of(back) == plan_id_of(plan)
    assert plan_message(back).SerializeToString(deterministic=True) == data


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Plan, plan_pb2.Plan),
        (Layout, plan_pb2.Layout),
        (Stage, plan_pb2.Stage),
        (StepTerms, plan_pb2.StepTerms),
        (CollectiveGroup, plan_pb2.CollectiveGroup),
        (Termination, plan_pb2.PlanTermination),
        (Certificate, plan_pb2.Certificate),
        (Suggestion, plan_pb2.Suggestion),
        (Infeasible, plan_pb2.Infeasible),
        (Rejected, plan_pb2.Rejected),
        (Candidate, plan_pb2.Candidate),
        (Violation, plan_pb2.Violation),
    ],
)
def test_messages_have_every_field(kind: type[BaseModel], message: type) -> None:
    assert set(kind.model_fields) <= {field.name for field in message.DESCRIPTOR.fields}


@pytest.mark.parametrize("kind", [Objective, Schedule, Recompute, Precision, Sends, Tier])
def test_enums_have_every_member(kind: type) -> None:
    values = common_pb2.DESCRIPTOR.enum_types_by_name[kind.__name__].values
    names = {value.name for value in values}
    prefix = next(name for name in names if name.endswith("_UNSPECIFIED")).removesuffix(
        "UNSPECIFIED"
    )
    assert {prefix + member.name for member in kind} == {
        name for name in names if not name.endswith("_UNSPECIFIED")
    }


def test_certificates_are_exact_beyond_64_bits() -> None:
    certificate = Certificate(
        bound_kind="x",
        cuts=(0, 1),
        recompute=(Recompute.NONE,),
        value_quanta=2**80 + 1,
        bound_quanta=-(2**70),
        quantum_ms="1E-9",
        witness={"a": 2**90, "b": "text", "c": 0},
    )
    plan = Plan(certificate=certificate)
    assert plan_of(plan_message(plan)) == plan


def test_inputs_come_back_as_they_were() -> None:
    model = planner.load_model("mixtral-8x7b")
    back, _ = model_of(model_source(model))
    assert back == model
    assert back.digest() == model.digest()
    assert content_hash(model_source(model)) == content_hash(model_source(back))
    cluster = planner.load_cluster("gb200-nvl72:8")
    assert cluster_of(cluster_source(cluster)) == cluster
    for optimizer, sends, pins in itertools.product(
        ("adam", "sgd", "none"), Sends, (Pins(), Pins(dp=2, vpp=3, microbatch_size=4))
    ):
        training = Training(
            global_batch_size=96,
            sequence_length=128,
            optimizer=optimizer,
            sends=sends,
            pins=pins,
            schedules=(Schedule.ZB_H1, Schedule.GPIPE),
            recompute=(Recompute.FULL,),
            sharded_optimizer=False,
            allow_fewer=True,
        )
        options = training_options(training_message(training))
        found = Pins(**{n: options.pop(n) for n in Pins.model_fields if n in options})
        assert spec_of(Training, pins=found, **options) == training


def test_terminations_have_two_axes() -> None:
    plan = planner.plan("llama3-8b", "dgx-h100:1", global_batch_size=64)
    ended = termination_message(plan)
    assert ended.reason == common_pb2.TERMINATION_REASON_OPTIMAL
    assert ended.limit == common_pb2.TERMINATION_LIMIT_NONE
    assert ended.value_ms == plan.step_time_ms == ended.bound_ms
    assert ended.gap == 0.0
    misfit = planner.plan("llama3-405b", "dgx-h100:1", global_batch_size=8)
    ended = termination_message(misfit)
    assert ended.reason == common_pb2.TERMINATION_REASON_INFEASIBLE
    assert not ended.HasField("value_ms")
    dear = planner.plan(
        "llama3-8b", "dgx-h100:2", global_batch_size=64, objective="tokens-per-dollar"
    )
    ended = termination_message(dear)
    assert ended.value_ms >= ended.bound_ms * (1 - 1e-12)
    assert to_message(dear.layout, plan_pb2.Layout()).dp == dear.layout.dp
