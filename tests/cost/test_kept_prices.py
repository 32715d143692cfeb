"""Prices that outlive their question are those that a fresh question would find."""

from __future__ import annotations

import planner
from planner.cost import kept_prices as module
from planner.cost.kept_prices import kept_prices
from planner.cost.question import plan_pricer
from planner.formats.catalog import load_cluster, load_model
from planner.specs import Pins, Training

MODEL, CLUSTER = load_model("llama3-8b"), load_cluster("dgx-h100:2")


def training(batch: int, **options: object) -> Training:
    return Training(global_batch_size=batch, sequence_length=4096, **options)


def test_another_batch_and_other_pins_cost_the_same_a_layer():
    first = plan_pricer(MODEL, CLUSTER, training(64))
    table = first.block_table(2, 1)
    other = plan_pricer(MODEL, CLUSTER, training(72, pins=Pins(tp=2), allow_fewer=True))
    assert other.layer_prices(2, 1) is first.layer_prices(2, 1)
    assert other.block_table(2, 1) is table or other.quantum.exponent != first.quantum.exponent


def test_what_changes_a_price_is_a_question_of_its_own():
    kept = kept_prices(MODEL, CLUSTER, training(64))
    assert kept_prices(MODEL, CLUSTER, training(128)) is kept
    for changed in (
        {"sequence_length": 8192}, {"precision": "fp16"}, {"optimizer": "sgd"},
        {"sharded_optimizer": False}, {"sequence_parallel": False}, {"flash_attention": False},
        {"overlap_gradient_reduction": False},
    ):  # fmt: skip
        other = training(64).model_copy(update=changed)
        assert kept_prices(MODEL, CLUSTER, other) is not kept, changed
    assert kept_prices(MODEL, load_cluster("dgx-h100:4"), training(64)) is not kept
    assert kept_prices(load_model("llama3-70b"), CLUSTER, training(64)) is not kept


def test_every_field_of_a_training_is_a_price_or_known_not_to_be():
    # A new field is part of the key unless it is named as one that changes no price.
    assert set(Training.model_fields) >= module._NOT_PRICED


def test_the_same_plan_first_and_later():
    def asked(batch: int) -> str:
        return planner.plan(
            "llama3-8b", "dgx-h100:2", global_batch_size=batch, sequence_length=4096
        ).to_json()

    module._kept.clear()
    cold = asked(96)
    module._kept.clear()
    asked(64)
    asked(128)
    assert asked(96) == cold


def test_few_are_kept(monkeypatch):
    monkeypatch.setattr(module, "_MOST_KEPT", 2)
    for length in (1024, 2048, 4096, 8192):
        kept_prices(MODEL, CLUSTER, training(64).model_copy(update={"sequence_length": length}))
    assert len(module._kept) == 2


def test_full_tables_are_started_afresh(monkeypatch):
    pricer = plan_pricer(MODEL, CLUSTER, training(64))
    pricer.block_table(1, 1)
    monkeypatch.setattr(module, "_MOST_CELLS", 10)
    assert plan_pricer(MODEL, CLUSTER, training(64))._kept is not pricer._kept
