"""Hand-counted transitions, placements in schedulers' words, and proofs against brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import planner
from planner.cost.question import plan_pricer
from planner.curves import Allocation, PointStatus, TransitionKind
from planner.errors import InputError
from planner.plans import Layout
from planner.schedules.step import evaluate_cuts
from planner.search.space import enumerate_layouts
from planner.specs import Layer, LayerCost, Model, Tier, Training
from planner.studies.curve_allocations import allocation_cluster
from planner.studies.curve_placement import placement_of
from planner.studies.curve_transitions import RESTART_S, Holding, transition

CLUSTER = planner.load_cluster("dgx-h100:4")


def training(**fields: object) -> Training:
    return Training(global_batch_size=8, sequence_length=128, **fields)


def moved(
    old: Layout,
    new: Layout,
    *,
    layers: int = 4,
    gpus: int = 8,
    limit: float | None = None,
    **more: object,
) -> tuple[TransitionKind, int, float, bool]:
    """From even stages to even stages of layers with 1,200 parameters each."""

    def even(layout: Layout) -> Holding:
        each = layers // layout.pp
        ranks = tuple(frozenset(range(i * each, (i + 1) * each)) for i in range(layout.pp))
        return Holding(layout, ranks)

    sizes = np.full(layers, 1_200, np.int64)
    cluster = CLUSTER.model_copy(update={"nodes": max(1, gpus // 8)})
    found = transition(even(old), even(new), sizes, sizes, cluster, training(**more), limit)
    return found.kind, found.bytes_moved, found.seconds, found.exceeds_max_restart


def test_nothing_moves_where_nothing_changes() -> None:
    layout = Layout(dp=2, pp=2, tp=2)
    other = layout.model_copy(update={"microbatch_size": 4, "num_microbatches": 2})
    assert moved(layout, layout) == (TransitionKind.NONE, 0, 0.0, False)
    assert moved(layout, other)[:2] == (TransitionKind.NONE, 0)


def test_new_replicas_receive_everything() -> None:
    """tp=2, pp=2, 4 layers of 1,200 parameters: a rank holds 2 layers' halves, 1,200 parameters:
    2,400 bytes of bf16 weights, 14,400 of fp32 Adam and master weights, unsharded."""
    kind, size, seconds, _ = moved(
        Layout(dp=1, pp=2, tp=2), Layout(dp=2, pp=2, tp=2), sharded_optimizer=False
    )
    assert kind is TransitionKind.DATA_PARALLEL_ONLY
    assert size == 4 * (2_400 + 14_400)
    assert seconds > RESTART_S


def test_sharded_optimizers_move_their_shards() -> None:
    """From 1 to 2 replicas each rank needs half of its optimizer states: the old ones have it,
    the four new ranks receive 7,200 bytes and 2,400 of weights. Back: the old ranks receive the
    other half."""
    grown = moved(Layout(dp=1, pp=2, tp=2), Layout(dp=2, pp=2, tp=2))
    assert grown[1] == 4 * (2_400 + 7_200)
    shrunk = moved(Layout(dp=2, pp=2, tp=2), Layout(dp=1, pp=2, tp=2))
    assert shrunk[:2] == (TransitionKind.DATA_PARALLEL_ONLY, 4 * 7_200)
    # 2 -> 3: shards [0,1/3), [1/3,2/3), [2/3,1) of 14,400; replica 0 has its own already, replica
    # 1 held [1/2,1) and misses [1/3,1/2), replica 2 is new.
    third = moved(Layout(dp=2, pp=1, tp=1), Layout(dp=3, pp=1, tp=1), layers=1)
    assert third[1] == 2_400 + 4_800 + 14_400 // 6


def test_cutting_anew_moves_layers() -> None:
    """pp 2 -> 4 on 4 GPUs, tp=1, 4 layers of 2,400 + 14,400 bytes. Before, dp=2: GPUs 0, 1 hold
    layers 0, 1 and GPUs 2, 3 layers 2, 3, each half of their optimizer states (replica = GPU mod
    2). After: GPU g holds layer g whole. All have its weights and half of its states."""
    kind, size, seconds, late = moved(
        Layout(dp=2, pp=2, tp=1), Layout(dp=1, pp=4, tp=1), gpus=8, limit=RESTART_S
    )
    assert kind is TransitionKind.REPARTITION
    assert size == 4 * 7_200
    assert late  # anything moved takes longer than the restart alone
    rate = 450e9 * CLUSTER.gpu.calibration.domain_efficiency
    assert seconds == pytest.approx(RESTART_S + 7_200 / rate)


def test_splitting_tensors_moves_no_shard_that_is_there() -> None:
    """tp 1 -> 2 on 2 GPUs that were replicas: each keeps its half of the weights; of its half of
    the states (unsharded) it has all."""
    kind, size, *_ = moved(
        Layout(dp=2, pp=1, tp=1), Layout(dp=1, pp=1, tp=2), sharded_optimizer=False
    )
    assert (kind, size) == (TransitionKind.REPARTITION, 0)


def test_counts_are_exact_where_products_exceed_64_bits() -> None:
    """10^13 bytes a rank and 4,096 shards that become 4,095: rank d of the new ones has kept what
    its old shard shares with the new one, counted here in whole numbers."""
    old, new = Layout(dp=4096), Layout(dp=4095)
    sizes = np.full(1, 10**12 + 7, np.int64)
    ranks = (frozenset({0}),)
    cluster = planner.load_cluster("dgx-h100:512")
    found = transition(Holding(old, ranks), Holding(new, ranks), sizes, sizes, cluster,
                       training(), None)  # fmt: skip
    states = 12 * (10**12 + 7)
    expected = 0
    for d in range(4095):
        overlap = min((d + 1) * 4096, (d + 1) * 4095) - max(d * 4096, d * 4095)
        expected += -(-states // 4095) - states * overlap // (4095 * 4096)
    assert found.bytes_moved == expected


def test_gpus_of_another_type_have_nothing_yet() -> None:
    """The same layout on other GPUs: each of 8 ranks receives its 1,200 parameters' weights and
    half of their states."""
    layout = Layout(dp=2, pp=2, tp=2)
    ranks = (frozenset({0, 1}), frozenset({2, 3}))
    sizes = np.full(4, 1_200, np.int64)
    held = Holding(layout, ranks)
    found = transition(held, held, sizes, sizes, CLUSTER, training(), None, elsewhere=True)
    assert found.kind is TransitionKind.REPARTITION
    assert found.bytes_moved == 8 * (2_400 + 14_400 // 2)

    question = {"global_batch_size": 64, "sequence_length": 2048, "pp": 1, "tp": 2}
    now = planner.plan("llama3-8b", "dgx-a100-80gb:1", **question)
    curve = planner.scaling_curve(
        "llama3-8b", {"a100": "dgx-a100-80gb:1", "h100": "dgx-h100:1"},
        allocations=[Allocation(gpu_type=name, nodes=1) for name in ("a100", "h100")],
        current_plan=now, **question,
    )  # fmt: skip
    kinds = [point.transition.kind for point in curve.points]
    assert kinds == [TransitionKind.NONE, TransitionKind.REPARTITION]
    assert curve.points[1].transition.bytes_moved > 8 * 8e9 / 2 * 2


def test_points_say_how_to_get_there() -> None:
    question = {"global_batch_size": 64, "sequence_length": 2048}
    now = planner.plan("llama3-8b", "dgx-h100:1", dp=4, pp=2, tp=1, **question)
    curve = planner.scaling_curve(
        "llama3-8b", "dgx-h100:4", allocations=[8, 16], current_plan=now, max_restart_s=RESTART_S,
        pp=2, tp=1, **question,
    )  # fmt: skip
    same, grown = curve.points
    assert same.transition.kind is TransitionKind.NONE
    assert not same.transition.exceeds_max_restart
    expected = (
        TransitionKind.DATA_PARALLEL_ONLY
        if grown.stage_layer_counts == same.stage_layer_counts
        else TransitionKind.REPARTITION
    )
    assert grown.transition.kind is expected
    assert grown.transition.bytes_moved > 8e9 * 2  # four replicas more, of 8e9 parameters each
    assert grown.transition.exceeds_max_restart
    with pytest.raises(InputError, match="does not have"):
        planner.scaling_curve("gpt2", "dgx-h100:1", allocations=[8], current_plan=now, **question)


# --- placement ---------------------------------------------------------------------------------


def test_a_node_is_required_and_racks_are_preferred() -> None:
    one = placement_of(
        CLUSTER.model_copy(update={"nodes": 1}),
        Allocation(nodes=1, gpus_per_node=8),
        Layout(dp=2, pp=1, tp=4),
    )
    assert one.kueue == {"kueue.x-k8s.io/podset-required-topology": "kubernetes.io/hostname"}
    assert one.volcano == {"mode": "hard", "highestTierAllowed": "1"}
    assert one.slurm == ("--nodes=1", "--gpus-per-node=8")
    four = placement_of(CLUSTER, Allocation(nodes=4, gpus_per_node=8), Layout(dp=2, pp=2, tp=8))
    assert [(g.kind, g.size, g.count, g.level, g.required) for g in four.groups] == [
        ("tensor", 8, 4, Tier.DOMAIN, True),
        ("pipeline", 2, 16, Tier.CLUSTER, False),
        ("data", 2, 16, Tier.CLUSTER, False),
    ]
    assert "kueue.x-k8s.io/podset-preferred-topology" in four.kueue
    assert four.volcano == {"mode": "soft"}


def test_a_domain_of_several_nodes_is_a_slice_and_a_segment() -> None:
    whole = planner.load_cluster("gb200-nvl72:8")
    per_node = whole.gpus_per_node
    allocation = Allocation(nodes=24, gpus_per_node=per_node, excluded_nodes=("a", "b"))
    part = allocation_cluster(whole, allocation)
    tp = 2 * per_node
    found = placement_of(part, allocation, Layout(dp=12, pp=1, tp=tp))
    assert found.kueue["kueue.x-k8s.io/podset-slice-size"] == "2"
    assert "kueue.x-k8s.io/podset-slice-required-topology" in found.kueue
    (segment,) = [word for word in found.slurm if word.startswith("--segment=")]
    size = int(segment.removeprefix("--segment="))
    assert 24 % size == 0
    assert size % 2 == 0
    assert size * per_node <= whole.nvlink_domain
    assert found.slurm[-1] == "--exclude=a,b"


# --- proofs ------------------------------------------------------------------------------------


@st.composite
def questions(draw: st.DrawFn) -> tuple[Model, dict[str, object], int]:
    count = draw(st.integers(2, 6))
    layers = []
    for i in range(count):
        layers.append(
            Layer(
                name=f"l{i}",
                type="block",
                inputs=(f"l{i - 1}",) if i else (),
                costs=(
                    LayerCost(
                        forward_ms=draw(st.integers(1, 9)),
                        backward_ms=draw(st.integers(1, 19)),
                        parameter_bytes=draw(st.sampled_from([1 << 20, 1 << 29, 1 << 31])),
                        activation_bytes=draw(st.sampled_from([1 << 20, 1 << 30, 4 << 30])),
                        checkpoint_bytes=1 << 20,
                        output_bytes=draw(st.sampled_from([0, 1 << 20, 1 << 27])),
                    ),
                ),
            )
        )
    options = {
        "global_batch_size": draw(st.sampled_from([4, 6, 8, 12])),
        "sends": draw(st.sampled_from(["overlapped", "blocking"])),
        "recompute": draw(st.sampled_from([("none",), ("none", "full"), ("full",)])),
        "tp": 1,
        "max_microbatch_size": 2,
        "schedules": draw(st.sampled_from([("1f1b",), ("gpipe",), ("1f1b", "gpipe")])),
    }
    gpus = draw(st.sampled_from([1, 2, 4, 8, 16]))
    model = Model(name="drawn", layers=tuple(layers), sequence_length=128)
    return model, options, gpus


@settings(max_examples=60, deadline=None)
@given(questions())
def test_bounds_hold_against_every_cut_of_every_layout(
    drawn: tuple[Model, dict[str, object], int],
) -> None:
    model, options, gpus = drawn
    whole = planner.load_cluster("dgx-a100-40gb:2")
    curve = planner.scaling_curve(model, whole, allocations=[gpus], **options)
    (point,) = curve.points
    pins = {"pins": {"tp": options["tp"]}}
    rest = {name: value for name, value in options.items() if name != "tp"}
    asked = Training(sequence_length=128, **rest, **pins)
    pricer = plan_pricer(model, allocation_cluster(whole, point.allocation), asked)
    best: int | None = None
    try:
        space = enumerate_layouts(model, pricer.cluster, asked, len(model.layers))
    except InputError:
        assert point.status in (PointStatus.INFEASIBLE_BATCH, PointStatus.INFEASIBLE_DIVISIBILITY)
        return
    for index in range(len(space)):
        problem = pricer.problem(space.layout(index))
        inner = range(1, len(model.layers))
        for cuts in itertools.combinations(inner, problem.num_stages - 1):
            found = evaluate_cuts(problem, (0, *cuts, len(model.layers)))
            if found is not None:
                best = found.value if best is None else min(best, found.value)
    if best is None:
        assert point.status is PointStatus.INFEASIBLE_MEMORY
        return
    assert point.status is PointStatus.FEASIBLE
    value = pricer.quantum.ms(best)
    assert point.bound_ms <= value * (1 + 1e-12)
    assert point.step_time_ms >= value * (1 - 1e-12)
    assert point.step_time_ms <= value * 1.05
    if point.proven:
        assert point.step_time_ms == pytest.approx(value, rel=1e-12)
