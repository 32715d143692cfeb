"""Points against ``planner.plan`` size by size, and what a scheduler relies on."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from itertools import pairwise

import pytest

import planner
from planner.curves import Allocation, PointStatus, SizeRange
from planner.errors import InputError
from planner.specs import Cluster, Layer, LayerCost, Model
from planner.studies.curve_allocations import allocation_cluster
from planner.studies.curve_plans import point_plan


def profile(*times: float, tp: int = 1, kind: str = "block", memory: int = 1 << 30) -> Model:
    """A chain with a forward of so many milliseconds a layer, twice that backward."""
    layers = tuple(
        Layer(
            name=f"l{i}",
            type=kind,
            inputs=(f"l{i - 1}",) if i else (),
            costs=(
                LayerCost(
                    tp=tp,
                    forward_ms=t,
                    backward_ms=2 * t,
                    parameter_bytes=memory,
                    activation_bytes=memory // 4,
                    output_bytes=1 << 20,
                ),
            ),
        )
        for i, t in enumerate(times)
    )
    return Model(name="profile", layers=layers, sequence_length=1024)


def agree(model: Model | str, cluster: str, sizes: list[int], **question: object) -> int:
    """Compare every point with the plan of its own cluster; returns how many are equal."""
    curve = planner.scaling_curve(model, cluster, allocations=sizes, **question)
    whole = planner.load_cluster(cluster)
    equal = 0
    for point in curve.points:
        own = allocation_cluster(whole, point.allocation)
        try:
            plan = planner.plan(model, own, work_limit=2_000, runners_up=0, **question)
        except InputError:
            assert point.status in (
                PointStatus.INFEASIBLE_DIVISIBILITY,
                PointStatus.INFEASIBLE_BATCH,
            )
            continue
        if plan.step_time_ms is None:
            assert point.status is PointStatus.INFEASIBLE_MEMORY
            continue
        assert point.status is PointStatus.FEASIBLE
        assert point.gpus_used == point.num_gpus == point.layout.num_gpus
        assert point.bound_ms <= plan.step_time_ms * (1 + 1e-9)
        assert plan.bound_ms <= point.step_time_ms * (1 + 1e-9)
        assert point.step_time_ms <= plan.step_time_ms * 1.02
        assert point.gap == pytest.approx(1 - point.bound_ms / point.step_time_ms, abs=1e-9)
        if point.proven:
            assert point.step_time_ms <= plan.step_time_ms * (1 + 1e-9)
        equal += point.step_time_ms <= plan.step_time_ms * (1 + 1e-9)
        written = point_plan(curve, point, model=model)
        verification = planner.evaluate(written, model=model)
        assert verification.ok, verification.violations
        assert written.step_time_ms == pytest.approx(point.step_time_ms, rel=1e-9)
        assert tuple(len(stage.layers) for stage in written.stages) == point.stage_layer_counts
        assert tuple(stage.recompute for stage in written.stages) == point.recompute
        assert [m.memory_bytes for m in point.stage_memory] == [
            stage.memory_bytes for stage in written.stages
        ]
        assert written.tokens_per_s == pytest.approx(point.tokens_per_s, rel=1e-9)
    return equal


@pytest.mark.parametrize(
    ("model", "sizes", "question"),
    [
        ("llama3-8b", [1, 2, 3, 4, 6, 8, 16, 24], {"global_batch_size": 96}),
        ("gpt2-xl", [1, 2, 5, 8, 16], {"global_batch_size": 80, "sends": "blocking"}),
        ("llama2-7b", [8, 16, 32], {"global_batch_size": 64, "recompute": "full"}),
        ("llama2-7b", [8, 32], {"global_batch_size": 64, "recompute": "none", "pp": 4}),
        ("gpt2", [2, 4, 8], {"global_batch_size": 48, "optimizer": "sgd", "schedules": "gpipe"}),
        ("gpt2", [2, 8], {"global_batch_size": 32, "overlap_gradient_reduction": False}),
        ("gpt-22b", [8, 16, 48], {"global_batch_size": 48, "sharded_optimizer": False}),
    ],
)  # fmt: skip
def test_points_agree_with_plans(model: str, sizes: list[int], question: dict[str, object]) -> None:
    equal = agree(model, "dgx-h100:4" if max(sizes) <= 32 else "dgx-h100:8", sizes,
                  sequence_length=1024, **question)  # fmt: skip
    assert equal >= len(sizes) - 2


def test_profiles_and_other_schedules_agree_too() -> None:
    uneven = profile(3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8)
    assert agree(uneven, "dgx-a100-80gb:2", [1, 2, 4, 8, 16], global_batch_size=16) >= 4
    agree(
        uneven, "dgx-a100-80gb:1", [2, 4], global_batch_size=8, schedules="zb-h1,1f1b"
    )  # fmt: skip


def test_a_point_does_not_depend_on_the_others() -> None:
    question = {"global_batch_size": 384, "sequence_length": 4096}
    sizes = [8, 16, 24, 32, 48, 64, 96]
    whole = planner.scaling_curve("llama3-8b", "dgx-h100:12", allocations=sizes, **question)
    reversed_ = planner.scaling_curve(
        "llama3-8b", "dgx-h100:12", allocations=sizes[::-1], **question
    )
    assert reversed_.points == whole.points[::-1]
    for point in whole.points:
        alone = planner.scaling_curve(
            "llama3-8b", "dgx-h100:12", allocations=[point.num_gpus], **question
        )
        only = alone.points[0].model_copy(
            update={
                "marginal_samples_per_s_per_gpu": point.marginal_samples_per_s_per_gpu,
            }
        )
        assert only == point
    again = planner.scaling_curve("llama3-8b", "dgx-h100:12", allocations=sizes, **question)
    assert again.to_json() == whole.to_json()


@pytest.mark.parametrize(("batch", "replicas", "idle"), [(256, 2, 56), (255, 3, 24), (258, 3, 24)])
def test_lost_nodes_keep_the_batch(batch: int, replicas: int, idle: int) -> None:
    """Megatron-LM#361: 128 GPUs become 120; tp, pp and the batch are to stay."""
    curve = planner.scaling_curve(
        "llama3-8b", "dgx-h100:16", allocations=[120], global_batch_size=batch,
        sequence_length=2048, tp=8, pp=4, microbatch_size=1,
    )  # fmt: skip
    assert curve.points[0].status is PointStatus.INFEASIBLE_DIVISIBILITY
    (best,) = curve.envelope
    assert (best.num_gpus, best.num_gpus - best.gpus_used) == (120, idle)
    (spare,) = curve.spare
    assert spare.plan_id == best.plan_id
    assert (spare.layout.dp, spare.gpus_used) == (replicas, 120 - idle)
    assert spare.placement.nodes == (120 - idle) // 8
    assert f"--nodes={(120 - idle) // 8}" in spare.placement.slurm
    assert planner.evaluate(point_plan(curve, spare)).ok


def test_why_a_size_has_no_plan() -> None:
    def status(sizes: list[int], batch: int, model: Model | str = "gpt2", **more: object) -> list:
        curve = planner.scaling_curve(
            model, "dgx-a100-40gb:8", allocations=sizes, global_batch_size=batch,
            sequence_length=1024, **more,
        )  # fmt: skip
        return [point.status.value for point in curve.points]

    assert status([8], 64, "llama3-70b") == ["infeasible_memory"]
    assert status([8, 32], 7, pp=1, tp=1) == ["infeasible_batch", "infeasible_batch"]
    assert status([1], 64, tp=4) == ["infeasible_divisibility"]
    assert status([8, 24], 64, tp=4, pp=4) == ["infeasible_divisibility"] * 2
    odd = profile(1, 1, 1, 1, kind="mystery")
    other = odd.model_copy(
        update={
            "layers": tuple(
                layer.model_copy(
                    update={"costs": (layer.costs[0].model_copy(update={"device": "l4"}),)}
                )
                for layer in odd.layers
            )
        }
    )
    assert status([2], 8, other) == ["unprofiled"]


def test_infeasible_memory_is_the_truth() -> None:
    """One GPU after the other: the smallest that holds the model is what ``plan`` says too."""
    curve = planner.scaling_curve(
        "llama3-8b", "dgx-h100:1", allocations=[1, 2, 4], global_batch_size=4,
        sequence_length=1024,
    )  # fmt: skip
    assert [p.status.value for p in curve.points][:2] == ["infeasible_memory", "feasible"]
    assert (curve.minimum_gpus, curve.minimum_proven) == (2, True)


def test_the_smallest_size_may_leave_gpus_idle() -> None:
    """tp=8 and pp=4 need 32 GPUs: 56 hold them with 24 idle, 24 and 8 cannot."""
    question = {"global_batch_size": 256, "sequence_length": 2048, "tp": 8, "pp": 4}
    sizes = [8, 24, 56, 120, 128]
    curve = planner.scaling_curve("llama3-8b", "dgx-h100:16", allocations=sizes, **question)
    assert (curve.minimum_gpus, curve.minimum_proven) == (56, True)
    assert [(e.num_gpus, e.gpus_used) for e in curve.envelope] == [(56, 32), (120, 64), (128, 128)]
    whole = planner.load_cluster("dgx-h100:16")
    for size in sizes[:3]:
        part = whole.model_copy(update={"nodes": size // 8})
        if size < curve.minimum_gpus:
            with pytest.raises(InputError):
                planner.plan("llama3-8b", part, allow_fewer=True, **question)
        else:
            plan = planner.plan("llama3-8b", part, allow_fewer=True, runners_up=0, **question)
            (spare,) = (p for p in curve.spare if p.num_gpus == size)
            assert spare.step_time_ms == pytest.approx(plan.step_time_ms, rel=1e-9)


def test_a_size_without_memory_may_hold_the_model_with_gpus_idle() -> None:
    """131 nodes: 1,048 = 8 x 131, and 131 stages are more than the model has blocks, so that all
    GPUs mean 131 replicas of at most 8 GPUs, which 405e9 parameters do not fit."""
    curve = planner.scaling_curve(
        "llama3-405b", "dgx-h100:131", allocations=[64, 1048], global_batch_size=131 * 8,
        sequence_length=8192,
    )  # fmt: skip
    assert [p.status for p in curve.points] == [PointStatus.INFEASIBLE_MEMORY] * 2
    (best,) = curve.envelope
    assert best.num_gpus == 1048
    assert 1000 < best.gpus_used < 1048
    assert planner.evaluate(point_plan(curve, curve.spare[0])).ok
    assert (curve.minimum_gpus, curve.minimum_proven) == (1048, True)


def test_time_and_stop() -> None:
    question = {"global_batch_size": 256, "sequence_length": 2048}
    seen: list[int] = []
    curve = planner.scaling_curve(
        "llama3-8b", "dgx-h100:16", allocations=[8, 64, 128], stop=lambda: True,
        on_point=lambda point: seen.append(point.num_gpus), **question,
    )  # fmt: skip
    assert {p.status for p in curve.points} == {PointStatus.DEADLINE}
    assert curve.termination.reason == "stopped"
    assert seen == [8, 64, 128]
    late = planner.scaling_curve(
        "llama3-8b", "dgx-h100:16", allocations=[8], time_limit_s=1e-9, **question
    )
    assert late.points[0].status is PointStatus.DEADLINE
    assert late.termination.reason == "time_limit"
    assert not late.minimum_proven


def test_points_come_as_they_are_found() -> None:
    seen = []
    curve = planner.scaling_curve(
        "gpt2", "dgx-a100-40gb:4", allocations=[16, 1, 3, 32, 8], global_batch_size=96,
        sequence_length=1024, on_point=seen.append,
    )  # fmt: skip
    assert [point.num_gpus for point in seen] == [1, 3, 8, 16, 32]
    assert sorted(seen, key=lambda p: p.num_gpus) == sorted(curve.points, key=lambda p: p.num_gpus)
    first, second = seen[0], seen[1]
    assert first.marginal_samples_per_s_per_gpu is None
    assert second.marginal_samples_per_s_per_gpu == pytest.approx(
        (second.samples_per_s - first.samples_per_s) / 2
    )


def test_envelope_and_sizes() -> None:
    curve = planner.scaling_curve(
        "llama3-8b", "dgx-h100:16", allocations=SizeRange(min_gpus=8, max_gpus=128, step=8),
        global_batch_size=128, sequence_length=2048,
    )  # fmt: skip
    speeds = [point.samples_per_s for point in curve.envelope]
    assert speeds == sorted(speeds)
    plans = {p.plan_id: p for p in (*curve.points, *curve.spare)}
    for point in curve.envelope:
        best = plans[point.plan_id]
        assert best.samples_per_s == point.samples_per_s
        assert best.gpus_used == point.gpus_used <= point.num_gpus
        assert all(
            (p.samples_per_s or 0) <= point.samples_per_s
            for p in curve.points
            if p.num_gpus <= point.num_gpus
        )
    by_size = {p.num_gpus: p for p in curve.points}
    chosen = [by_size[size].samples_per_s for size in curve.recommended_sizes]
    assert all(a < b for a, b in pairwise(chosen))
    assert curve.recommended_sizes[0] == 8


def test_several_gpu_types() -> None:
    curve = planner.scaling_curve(
        "llama3-8b", {"h100": "dgx-h100:4", "a100": "dgx-a100-80gb:4"},
        allocations=[
            Allocation(gpu_type="h100", nodes=1),
            Allocation(gpu_type="a100", nodes=2, gpus_per_node=4),
            Allocation(gpu_type="a100", nodes=1, gpus_per_node=8, excluded_nodes=("n7",)),
        ],
        global_batch_size=64, sequence_length=2048, valid_until="2027-01-01T00:00:00Z",
    )  # fmt: skip
    fast, split, slow = curve.points
    assert {p.num_gpus for p in curve.points} == {8}
    assert fast.samples_per_s > slow.samples_per_s >= split.samples_per_s
    assert fast.allocation.gpus_per_node == 8
    assert "--exclude=n7" in slow.placement.slurm
    assert [e.gpu_type for e in curve.envelope] == ["h100", "a100"]
    assert curve.valid_until == "2027-01-01T00:00:00Z"
    for point in curve.points:
        assert planner.evaluate(point_plan(curve, point)).ok
    one = planner.scaling_curve(
        "llama3-8b", "dgx-h100:4", allocations=[8], global_batch_size=64, sequence_length=2048
    )
    assert one.points[0].step_time_ms == fast.step_time_ms
    assert one.points[0].plan_id == fast.plan_id
    assert one.calibration_revision != curve.calibration_revision
    assert one.model_revision == planner.load_model("llama3-8b").digest()


def test_of_a_range_the_batch_with_most_samples() -> None:
    question = {"sequence_length": 1024, "max_microbatch_size": 8}
    ranged = planner.scaling_curve(
        "gpt2", "dgx-a100-40gb:1", allocations=[1, 3, 8], global_batch_size=(20, 30), **question
    )
    fixed = [
        planner.scaling_curve(
            "gpt2", "dgx-a100-40gb:1", allocations=[1, 3, 8], global_batch_size=batch, **question
        )
        for batch in range(20, 31)
    ]
    for number, point in enumerate(ranged.points):
        assert 20 <= point.global_batch_size <= 30
        best = max(curve.points[number].samples_per_s or 0 for curve in fixed)
        assert point.samples_per_s == pytest.approx(best, rel=1e-9)
        assert planner.evaluate(point_plan(ranged, point)).ok
    assert any("range of global batch sizes" in note for note in ranged.notes)


def test_bands_follow_their_sources() -> None:
    measured = planner.scaling_curve(
        profile(1, 2, 3), "dgx-a100-80gb:1", allocations=[1], global_batch_size=4
    ).points[0]
    formula = planner.scaling_curve(
        "gpt2", "l4-pcie-8:1", allocations=[1], global_batch_size=4, sequence_length=128
    ).points[0]
    assert measured.measured_fraction == 1.0
    assert formula.measured_fraction == 0.0
    for point in (measured, formula):
        assert point.samples_per_s_low < point.samples_per_s <= point.samples_per_s_high

    def width(point: planner.curves.CurvePoint) -> float:
        return (point.samples_per_s_high - point.samples_per_s_low) / point.samples_per_s

    assert width(measured) < 0.2 < width(formula)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"allocations": []}, "no allocations"),
        ({"allocations": [0]}, "no number of GPUs"),
        ({"allocations": [12]}, "whole nodes"),
        ({"allocations": [64]}, "more than"),
        ({"allocations": ["8"]}, "no allocation"),
        ({"allocations": [True]}, "no allocation"),
        ({"allocations": "8"}, "no list"),
        ({"allocations": 8}, "no list"),
        ({"allocations": SizeRange(min_gpus=16, max_gpus=8)}, "empty range"),
        ({"allocations": SizeRange(min_gpus=8, max_gpus=8, gpu_type="v9")}, "GPU type"),
        ({"allocations": [Allocation(nodes=9)]}, "more nodes"),
        ({"allocations": [Allocation(nodes=1, gpus_per_node=9)]}, "more GPUs of a node"),
        (
            {"allocations": [Allocation(nodes=2, excluded_nodes=("a",))]},
            "not excluded",
        ),
        ({"cluster": {}}, "no cluster"),
        ({"cluster": {"a": "dgx-h100:2", "b": "dgx-h100:2"}}, "names no GPU type"),
        ({"global_batch_size": 0}, "range of global batch"),
        ({"global_batch_size": (8, 4)}, "range of global batch"),
        ({"global_batch_size": "many"}, "no global batch"),
        ({"global_batch_size": 10**7}, "global_batch_size"),
        ({"max_restart_s": -1.0}, "no time to restart"),
        ({"tp": 7}, "tp=7"),
        ({"allow_fewer": True}, "envelope"),
        ({"no_such_option": 1}, "no_such_option"),
        ({"schedules": "1f2b"}, "no schedule"),
        ({"model": "llama9"}, "llama9"),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_error(changes: dict[str, object], says: str) -> None:
    question = {
        "model": "gpt2", "cluster": "dgx-h100:2", "allocations": [8], "global_batch_size": 8,
        "sequence_length": 512, **changes,
    }  # fmt: skip
    with pytest.raises(InputError, match=says):
        planner.scaling_curve(question.pop("model"), question.pop("cluster"), **question)


def test_work_limit_closes_open_points() -> None:
    question = {"global_batch_size": 256, "sequence_length": 4096, "allocations": [120]}
    quick = planner.scaling_curve("llama3-8b", "dgx-h100:16", **question).points[0]
    longer = planner.scaling_curve("llama3-8b", "dgx-h100:16", work_limit=300, **question)
    assert longer.points[0].step_time_ms <= quick.step_time_ms
    assert longer.points[0].gap <= quick.gap + 1e-12


def test_without_numba_the_same_points() -> None:
    script = textwrap.dedent(
        """
        import sys, json
        if sys.argv[1] == "without":
            sys.modules["numba"] = None
        import planner
        curve = planner.scaling_curve("gpt2", "dgx-a100-40gb:1", allocations=[1, 2, 4],
                                      global_batch_size=8, sequence_length=512)
        print(json.dumps([[p.step_time_ms, p.bound_ms, p.cuts, p.plan_id] for p in curve.points]))
        """
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", script, how], capture_output=True, text=True, check=True
        ).stdout
        for how in ("with", "without")
    ]
    assert json.loads(outputs[0]) == json.loads(outputs[1])


def test_work_is_counted_not_timed() -> None:
    """Twelve sizes of a 405B model: what makes them quick is how little is solved."""
    from planner.graph import contract
    from planner.specs import Training
    from planner.studies.curve_solving import TypeSolver

    model, whole = planner.load_model("llama3-405b"), planner.load_cluster("dgx-h100:2048")
    training = Training(global_batch_size=2048, sequence_length=8192)
    solver = TypeSolver(model, contract(model), whole, training, (2048, 2048), None)
    sizes = [64, 128, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 16384]
    clusters: list[Cluster] = [
        whole.model_copy(update={"nodes": size // whole.gpus_per_node}) for size in sizes
    ]
    solver.solve(clusters, lambda index, result, batch: None)
    assert solver.counts.layouts > 3_000
    assert solver.counts.layouts_solved < 300
    assert solver.counts.simulations < 4_000
