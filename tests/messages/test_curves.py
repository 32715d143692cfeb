"""Curves on the wire: no field is lost, what comes back is what was sent, errors name fields."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

import planner
from planner.curves import (
    Allocation,
    CurvePoint,
    EnvelopePoint,
    Placement,
    PlacementGroup,
    PointStatus,
    ScalingCurve,
    SizeRange,
    StageMemory,
    Transition,
    TransitionKind,
)
from planner.messages.curves import (
    allocations_of,
    curve_message,
    curve_of,
    point_message,
    point_of,
)
from planner.messages.fields import RequestError
from planner.v1 import curve_pb2
from planner.v1 import planner_service_pb2 as pb

BESIDE = {"model_revision", "calibration_revision", "planner_version"}
"""Fields of a curve that travel in the answer around it."""


@pytest.fixture(scope="module")
def curve() -> ScalingCurve:
    """Feasible points, one without memory, one with idle GPUs, and moves from a current plan."""
    question = {"global_batch_size": 256, "sequence_length": 2048, "tp": 8, "pp": 4}
    now = planner.plan("llama3-8b", "dgx-h100:8", runners_up=0, **question)
    return planner.scaling_curve(
        "llama3-8b", {"h100": "dgx-h100:16"},
        allocations=[
            Allocation(gpu_type="h100", nodes=nodes, excluded_nodes=("n1", "n2"))
            for nodes in (1, 4, 8, 14)
        ],
        current_plan=now, max_restart_s=60.0, valid_until="2027-01-01T00:00:00Z", **question,
    )  # fmt: skip


def test_a_curve_comes_back(curve: ScalingCurve) -> None:
    assert {point.status for point in curve.points} == {
        PointStatus.FEASIBLE,
        PointStatus.INFEASIBLE_DIVISIBILITY,
    }
    assert curve.spare
    wire = curve_message(curve).SerializeToString()
    beside = {name: getattr(curve, name) for name in BESIDE}
    back = curve_of(curve_pb2.ScalingCurve.FromString(wire), **beside)
    assert back == curve
    assert back.to_json() == curve.to_json()


def test_points_come_back(curve: ScalingCurve) -> None:
    for point in (*curve.points, *curve.spare):
        wire = point_message(point).SerializeToString()
        assert point_of(curve_pb2.CurvePoint.FromString(wire)) == point


def test_what_a_point_lacks_is_left_out(curve: ScalingCurve) -> None:
    missing = point_message(curve.points[0])
    for name in ("step_time_ms", "samples_per_s", "layout", "gap", "transition", "placement"):
        assert not missing.HasField(name)
    smallest = point_message(curve.points[1])
    assert smallest.HasField("step_time_ms")
    assert not smallest.HasField("marginal_samples_per_s_per_gpu")


@pytest.mark.parametrize(
    ("kind", "message", "beside"),
    [
        (Allocation, curve_pb2.Allocation, set()),
        (SizeRange, curve_pb2.SizeRange, set()),
        (StageMemory, curve_pb2.StageMemory, set()),
        (Transition, curve_pb2.Transition, set()),
        (PlacementGroup, curve_pb2.PlacementGroup, set()),
        (Placement, curve_pb2.Placement, set()),
        (CurvePoint, curve_pb2.CurvePoint, set()),
        (EnvelopePoint, curve_pb2.EnvelopePoint, set()),
        (ScalingCurve, curve_pb2.ScalingCurve, BESIDE),
    ],
)
def test_no_field_is_lost(kind: type[BaseModel], message: type, beside: set[str]) -> None:
    assert set(kind.model_fields) - beside == set(message.DESCRIPTOR.fields_by_name)


@pytest.mark.parametrize(
    ("kind", "enum"),
    [
        (PointStatus, curve_pb2.PointStatus),
        (TransitionKind, curve_pb2.TransitionKind),
    ],
)
def test_every_member_has_a_number(kind: type, enum: object) -> None:
    prefix = enum.keys()[0].removesuffix("UNSPECIFIED")
    assert {name.removeprefix(prefix) for name in enum.keys()[1:]} == set(kind.__members__)


# --- what is asked about -------------------------------------------------------------------------


def test_allocations_and_ranges_are_read() -> None:
    question = pb.CurveQuestion(
        allocations=[
            curve_pb2.Allocation(nodes=2),
            curve_pb2.Allocation(gpu_type="a", nodes=1, gpus_per_node=4, excluded_nodes=["x"]),
        ]
    )
    assert allocations_of(question) == [
        Allocation(nodes=2),
        Allocation(gpu_type="a", nodes=1, gpus_per_node=4, excluded_nodes=("x",)),
    ]
    question = pb.CurveQuestion(size_range=curve_pb2.SizeRange(min_gpus=8, max_gpus=64))
    assert allocations_of(question) == SizeRange(min_gpus=8, max_gpus=64)
    question.size_range.step = 8
    question.size_range.gpu_type = "a"
    assert allocations_of(question) == SizeRange(min_gpus=8, max_gpus=64, step=8, gpu_type="a")


def _range(**fields: object) -> dict[str, object]:
    return {"size_range": curve_pb2.SizeRange(**fields)}


@pytest.mark.parametrize(
    ("asked", "field", "says"),
    [
        ({}, "allocations", "empty"),
        (
            {"allocations": [curve_pb2.Allocation(nodes=1)], **_range(min_gpus=8, max_gpus=8)},
            "size_range",
            "one of the two",
        ),
        (
            {"allocations": [curve_pb2.Allocation(nodes=1), curve_pb2.Allocation()]},
            "allocations[1]",
            "nodes",
        ),
        (
            {"allocations": [curve_pb2.Allocation(nodes=1, gpus_per_node=-1)]},
            "allocations[0]",
            "gpus_per_node",
        ),
        (_range(max_gpus=8), "size_range", "min_gpus"),
        (_range(min_gpus=8, max_gpus=16, step=0), "size_range", "step"),
        (_range(min_gpus=8, max_gpus=10**10), "size_range", "max_gpus"),
    ],
)
def test_errors_name_their_field(asked: dict[str, object], field: str, says: str) -> None:
    with pytest.raises(RequestError) as caught:
        allocations_of(pb.CurveQuestion(**asked))
    assert caught.value.field == field
    assert says in caught.value.why
