"""Where a plan's numbers come from, and what it says where a price stands for something else."""

from __future__ import annotations

import pytest

import planner
from planner.cost.question import partition_question
from planner.plans import Plan
from planner.specs import Cluster, Device, Model, Origin, PartitionSetup, Precision
from tests.factories import chain_model, small_cluster, tiny_llama

OUTPUT = 2**20


def at_tp2(type: str = "block", **changes: object) -> Model:
    """Four layers of 1 + 2 ms, measured at tp = 2 without collectives unless ``changes`` say so."""
    model = chain_model([1.0] * 4, output_bytes=OUTPUT, type=type)
    layers = [
        layer.model_copy(
            update={"costs": (layer.costs[0].model_copy(update={"tp": 2, **changes}),)}
        )
        for layer in model.layers
    ]
    return model.model_copy(update={"layers": tuple(layers)})


def cut(model: Model, **options: object) -> Plan:
    return planner.partition(model, stages=2, microbatches=4, tp=2, **options)


def about_collectives(plan: Plan) -> list[str]:
    return [note for note in plan.notes if "collectives" in note]


# --- collectives that a profile excludes --------------------------------------------------------


def test_without_a_cluster_excluded_collectives_are_free_and_said() -> None:
    plan = cut(at_tp2())
    # (M + P - 1) (F + B) of equal stages: nothing was added to 2 x (1 + 2) ms.
    assert plan.step_time_ms == 5 * 6
    assert [stage.tensor_parallel_ms for stage in plan.stages] == [0, 0]
    assert plan.origins == {"measured": 1.0}
    assert {stage.origin for stage in plan.stages} == {Origin.MEASURED}
    (note,) = about_collectives(plan)
    assert "rows exclude collectives at tp=2" in note
    assert "they are free" in note
    assert "--cluster" in note


def test_with_a_cluster_only_the_added_time_is_a_formula() -> None:
    plan = cut(at_tp2(), cluster=small_cluster())
    added = sum(stage.tensor_parallel_ms for stage in plan.stages)
    assert added > 0
    assert plan.origins["measured"] == pytest.approx(12 / (12 + added))
    assert plan.origins["formula"] == pytest.approx(added / (12 + added))
    assert sum(plan.origins.values()) == pytest.approx(1)
    # A stage is named by its weakest figure.
    assert {stage.origin for stage in plan.stages} == {Origin.FORMULA}
    (note,) = about_collectives(plan)
    assert "a micro-batch was added by formula" in note
    assert planner.evaluate(plan, model=at_tp2()).ok


def test_added_collectives_keep_a_rows_own_origin() -> None:
    plan = cut(at_tp2(origin=Origin.INTERPOLATED), cluster=small_cluster())
    assert list(plan.origins) == ["interpolated", "formula"]
    assert cut(at_tp2(origin=Origin.FORMULA), cluster=small_cluster()).origins == {"formula": 1.0}


@pytest.mark.parametrize("cluster", [None, small_cluster()])
def test_included_collectives_need_no_word(cluster: Cluster | None) -> None:
    plan = cut(at_tp2(collectives_included=True), cluster=cluster)
    assert plan.origins == {"measured": 1.0}
    assert about_collectives(plan) == []


def test_collectives_of_unknown_types_are_said_to_be_free() -> None:
    (note,) = about_collectives(cut(at_tp2(type="conv"), cluster=small_cluster()))
    assert "layers of type conv" in note
    assert "free" in note
    assert about_collectives(cut(at_tp2(type="conv", collectives_included=True))) == []
    whole = chain_model([1.0] * 4, output_bytes=OUTPUT, type="conv")
    assert about_collectives(planner.partition(whole, stages=2, microbatches=4)) == []


def test_the_stand_in_cluster_adds_nothing_whatever_is_sent() -> None:
    for type in ("block", "embedding", "mlp"):
        model = at_tp2(type=type, output_bytes=2**50)
        for sequence_parallel in (True, False):
            setup = PartitionSetup(num_stages=2, tp=2, sequence_parallel=sequence_parallel)
            pricer, _ = partition_question(model, setup)
            prices = pricer.layer_prices(2, 1)
            assert {price.forward_ms for price in prices} == {1.0}
            assert all(price.collectives_added for price in prices)


# --- rates that stand for others ----------------------------------------------------------------


def half_only(*precisions: Precision) -> Cluster:
    cluster = small_cluster()
    gpu = Device(
        name="half-gpu",
        memory_bytes=cluster.gpu.memory_bytes,
        peak_flops=dict.fromkeys(precisions, 100e12),
        memory_bandwidth_bytes_per_s=1e12,
    )
    return cluster.model_copy(update={"gpu": gpu})


@pytest.mark.parametrize(
    ("has", "asked"),
    [(Precision.FP16, Precision.BF16), (Precision.BF16, Precision.FP16)],
)
def test_a_rate_that_stands_for_another_is_said(has: Precision, asked: Precision) -> None:
    def notes(cluster: Cluster, precision: Precision) -> list[str]:
        plan = planner.plan(
            tiny_llama(), cluster, global_batch_size=8, sequence_length=256, precision=precision
        )
        return [note for note in plan.notes if "rate" in note]

    assert notes(half_only(has), asked) == [
        f"half-gpu has no {asked.value} rate: priced at its {has.value} rate; "
        f"give --precision {has.value}"
    ]
    assert notes(half_only(has), has) == []
    assert notes(half_only(has, asked), asked) == []


def test_a_measured_profile_needs_no_rate() -> None:
    plan = planner.partition(
        chain_model([1.0] * 4), stages=2, microbatches=4, cluster=half_only(Precision.FP16)
    )
    assert not any("rate" in note for note in plan.notes)
