"""What the service keeps of a curve's points: plans that can be read and priced again."""

from __future__ import annotations

import json

import pytest

import planner
from planner.plans import Plan
from planner.service.answering_curves import _sketches


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"schedules": "interleaved", "pp": 4, "vpp": 2},
        {"schedules": "zb-v", "pp": 4},
        {"schedules": "zb-h1", "pp": 2},
        {"pp": 4, "tp": 8},  # 56 GPUs: 32 of them
    ],
)
def test_every_plan_kept_is_priced_again(options: dict[str, object]) -> None:
    model, cluster = planner.load_model("llama3-8b"), planner.load_cluster("dgx-h100:8")
    curve = planner.scaling_curve(
        model, cluster, allocations=[16, 56], global_batch_size=64, sequence_length=2048, **options
    )
    points = {p.plan_id: p for p in (*curve.points, *curve.spare) if p.layout is not None}
    assert points
    kept = _sketches(curve, model, cluster, "")
    assert {plan_id for plan_id, _, _ in kept} == set(points)
    for plan_id, body, labels in kept:
        judged = planner.evaluate(Plan.model_validate(json.loads(body)), model=model)
        assert judged.ok, judged.violations
        assert judged.plan.step_time_ms == pytest.approx(points[plan_id].step_time_ms, rel=1e-9)
        assert (labels["model"], labels["cluster"]) == (model.name, cluster.name)
        assert labels["num_gpus"] == points[plan_id].gpus_used
