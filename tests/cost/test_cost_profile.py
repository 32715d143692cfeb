"""Choosing, interpolating and scaling measured rows."""

from __future__ import annotations

from typing import Any

import pytest
from cost_examples import cluster, profiled, training
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.layers import LayerPrice, price_layer
from planner.errors import ClusterError, ProfileError
from planner.specs import Layer, LayerCost, Origin, Precision

ROW: dict[str, Any] = {
    "forward_ms": 1.3,
    "backward_ms": 2.7,
    "parameter_bytes": 1000,
    "activation_bytes": 600,
    "output_bytes": 200,
    "workspace_bytes": 40,
}


def row(**changes: Any) -> LayerCost:
    return LayerCost(**ROW | changes)


def price(
    layer: Layer,
    tp: int = 1,
    microbatch_size: int = 1,
    precision: Precision = Precision.BF16,
    **changes: Any,
) -> LayerPrice:
    return price_layer(
        layer,
        cluster=cluster(),
        training=training(**changes),
        tp=tp,
        microbatch_size=microbatch_size,
        profile_precision=precision,
    )


def test_a_measured_row_is_used_as_it_is() -> None:
    found = price(profiled(row(weight_gradient_ms=0.9, gradient_bytes=50), type="conv"))
    assert (found.forward_ms, found.input_gradient_ms, found.weight_gradient_ms) == (1.3, 1.8, 0.9)
    assert (found.kept_bytes, found.kept_selective_bytes, found.kept_full_bytes) == (600,) * 3
    assert (found.output_bytes, found.gradient_bytes, found.buffer_bytes) == (200, 50, 0)
    assert (found.transient_bytes, found.parameters, found.logits_bytes) == (40, 500, 0)
    assert found.model_flops == 0
    assert found.origin is Origin.MEASURED
    assert not found.recomputable
    assert price(profiled(row()), precision=Precision.FP32).parameters == 250


def test_half_of_the_backward_is_for_the_weights_where_nothing_else_is_known() -> None:
    found = price(profiled(row()))
    assert (found.input_gradient_ms, found.weight_gradient_ms) == (1.35, 1.35)
    assert found.gradient_bytes == found.output_bytes


def test_checkpoint_bytes_make_a_layer_recomputable() -> None:
    found = price(profiled(row(checkpoint_bytes=100)))
    assert found.recomputable
    assert (found.kept_full_bytes, found.full_extra_ms) == (100, 1.3)
    assert found.transient_full_bytes == 640


def test_frozen_layers_keep_no_gradient() -> None:
    found = price(profiled(row(weight_gradient_ms=0.9), trainable=False))
    assert (found.input_gradient_ms, found.weight_gradient_ms) == (1.8, 0)
    assert (found.parameters, found.trainable_parameters) == (500, 0)
    assert price(profiled(row(), trainable=False)).input_gradient_ms == 2.7


@pytest.mark.parametrize("origin", list(Origin))
def test_a_row_is_what_it_says_and_no_better_than_what_is_done_with_it(origin: Origin) -> None:
    order = list(Origin)
    layer = profiled(row(origin=origin), row(microbatch_size=4))
    assert price(layer).origin is origin
    assert price(layer, microbatch_size=4).origin is Origin.MEASURED
    between = price(layer, microbatch_size=2).origin
    assert between is max(origin, Origin.INTERPOLATED, key=order.index)
    assert price(layer, microbatch_size=8).origin is Origin.FORMULA
    work = {"forward_ms": None, "backward_ms": None, "forward_flops": 1e9}
    assert price(profiled(row(origin=origin, **work))).origin is Origin.FORMULA


# --- micro-batch sizes -----------------------------------------------------------------------


def test_between_two_measured_sizes() -> None:
    layer = profiled(
        row(forward_ms=1, backward_ms=2),
        row(microbatch_size=4, forward_ms=2.5, backward_ms=5, activation_bytes=2400),
    )
    found = price(layer, microbatch_size=2)
    assert found.forward_ms == pytest.approx(1.5)
    assert found.input_gradient_ms + found.weight_gradient_ms == pytest.approx(3)
    assert (found.kept_bytes, found.parameters) == (1200, 500)
    assert found.origin is Origin.INTERPOLATED
    assert price(layer, microbatch_size=4).origin is Origin.MEASURED


def test_outside_the_measured_sizes() -> None:
    single = price(profiled(row(microbatch_size=2)), microbatch_size=6)
    assert single.forward_ms == pytest.approx(3.9)
    assert (single.kept_bytes, single.output_bytes, single.parameters) == (1800, 600, 500)
    assert single.origin is Origin.FORMULA
    # A fixed cost of 1 ms and 0.5 ms a sample: the line continues on both sides.
    layer = profiled(
        row(microbatch_size=2, forward_ms=2, backward_ms=4),
        row(microbatch_size=4, forward_ms=3, backward_ms=6),
    )
    assert price(layer, microbatch_size=8).forward_ms == pytest.approx(5)
    assert price(layer, microbatch_size=1).forward_ms == pytest.approx(1.5)
    # A line that falls below zero does not: 1 ms a sample at most.
    steep = profiled(
        row(microbatch_size=2, forward_ms=1, backward_ms=4),
        row(microbatch_size=4, forward_ms=6, backward_ms=6),
    )
    assert price(steep, microbatch_size=1).forward_ms == pytest.approx(0.5)


@given(
    st.lists(st.floats(0.1, 10), min_size=1, max_size=4),
    st.integers(1, 64),
)
def test_more_samples_never_take_less_than_monotone_rows_say(steps: list[float], size: int) -> None:
    rows, total = [], 0.0
    for index, step in enumerate(steps):
        total += step
        rows.append(row(microbatch_size=2 ** (index + 1), forward_ms=total, backward_ms=total))
    layer = profiled(*rows)
    low, high = price(layer, microbatch_size=size), price(layer, microbatch_size=size + 1)
    assert 0 < low.forward_ms <= high.forward_ms * (1 + 1e-12)
    assert low.kept_bytes <= high.kept_bytes


# --- tensor degrees --------------------------------------------------------------------------


def test_known_types_split_by_formula() -> None:
    found = price(profiled(row(output_bytes=2**20), type="block"), tp=4)
    assert found.origin is Origin.FORMULA
    assert (found.parameters, found.kept_bytes) == (125, 150)
    assert found.output_bytes == 2**18
    compute = found.forward_ms + found.input_gradient_ms + found.weight_gradient_ms
    assert compute - found.tensor_parallel_ms == pytest.approx(1.0)
    assert found.tensor_parallel_bytes == 4 * 2 * 3 * 2**20 // 4
    whole = price(profiled(row(output_bytes=2**20), type="block"), tp=4, sequence_parallel=False)
    assert whole.output_bytes == 2**20
    assert whole.kept_bytes == -(-600 * (10 + 24 / 4) // 34)


def test_norms_are_replicated() -> None:
    layer = profiled(row(), type="norm")
    assert price(layer, tp=4).parameters == 500
    assert price(layer, tp=4, sequence_parallel=False).forward_ms == 1.3
    assert price(layer, tp=4).forward_ms == pytest.approx(1.3 / 4)


def test_rows_at_a_degree_still_need_their_collectives_unless_included() -> None:
    without = profiled(row(tp=2, output_bytes=2**20), type="block")
    included = profiled(row(tp=2, output_bytes=2**20, collectives_included=True), type="block")
    assert price(without, tp=2).tensor_parallel_ms > 0
    assert price(without, tp=2).forward_ms > 1.3
    assert price(included, tp=2).tensor_parallel_ms == 0
    assert price(included, tp=2).weakest_origin is Origin.MEASURED
    # The rest of the layer is as measured as before.
    assert price(without, tp=2).origin is Origin.MEASURED
    assert price(without, tp=2).weakest_origin is Origin.FORMULA
    assert price(without, tp=2).collectives_added
    assert not price(included, tp=2).collectives_added


def test_the_nearest_degree_is_scaled() -> None:
    layer = profiled(row(forward_ms=8), row(tp=2, forward_ms=5), type="mlp")
    found = price(layer, tp=4, sequence_parallel=False)
    assert found.forward_ms - found.tensor_parallel_ms / 2 == pytest.approx(2.5)


def test_unknown_types_are_refused() -> None:
    with pytest.raises(ProfileError, match=r'column tp: "2" .* of type "conv" splits'):
        price(profiled(row(), type="conv"), tp=2)


# --- sequence lengths and devices ------------------------------------------------------------


def test_another_sequence_length_is_no_measurement() -> None:
    layer = profiled(row(sequence_length=32768, microbatch_size=16), type="mlp")
    found = price(layer, microbatch_size=32, sequence_length=1024)
    # 16 times fewer tokens (a published case).
    assert found.forward_ms == pytest.approx(1.3 / 16)
    assert found.origin is Origin.FORMULA
    with pytest.raises(ProfileError, match="sequence_length"):
        price(profiled(row(sequence_length=512), type="conv"))
    both = profiled(row(sequence_length=512), row(sequence_length=2048, forward_ms=7))
    assert price(both).forward_ms == 7
    assert price(both).origin is Origin.MEASURED


def test_rows_of_other_devices_are_ignored() -> None:
    mine, other, any_device = (
        row(device="A100"),
        row(device="h100", forward_ms=9),
        row(forward_ms=5),
    )
    assert price(profiled(other, mine, any_device)).forward_ms == 1.3
    assert price(profiled(other, any_device)).forward_ms == 5
    with pytest.raises(ProfileError, match="expected one of h100"):
        price(profiled(other))


# --- rows with FLOPs -------------------------------------------------------------------------


def flops_row(**changes: Any) -> LayerCost:
    return LayerCost(**{"forward_flops": 312e9, "parameter_bytes": 2**21} | changes)


def test_flops_run_at_the_efficiency_of_their_shape() -> None:
    found = price(profiled(flops_row(parameter_bytes=0), type="conv"))
    assert found.forward_ms == pytest.approx(1 / 0.8)
    assert found.input_gradient_ms == pytest.approx(found.forward_ms)
    assert found.weight_gradient_ms == pytest.approx(found.forward_ms)
    assert found.model_flops == 3 * 312e9
    assert found.origin is Origin.FORMULA
    narrow = price(profiled(flops_row(), type="conv"))
    # 2^20 parameters are a 1024-wide matrix: 450 / 1024 more, and 30 rows of 148,773.
    rows = 312e9 / (2 * 2**20)
    assert narrow.forward_ms == pytest.approx((1 + 450 / 1024 + 30 / rows) / 0.8)


def test_flops_of_a_frozen_layer_and_given_backward() -> None:
    frozen = price(profiled(flops_row(), trainable=False))
    assert frozen.weight_gradient_ms == 0
    assert frozen.input_gradient_ms == pytest.approx(frozen.forward_ms)
    assert frozen.model_flops == 2 * 312e9
    given = price(profiled(flops_row(backward_flops=312e9)))
    backward = given.input_gradient_ms + given.weight_gradient_ms
    assert backward == pytest.approx(given.forward_ms)


def test_flops_need_a_rate_and_times_need_both() -> None:
    with pytest.raises(ClusterError, match="no peak"):
        price_layer(
            profiled(flops_row()),
            cluster=cluster(),
            training=training(precision=Precision.FP8),
            tp=1,
            microbatch_size=1,
            profile_precision=Precision.BF16,
        )
    with pytest.raises(ProfileError, match="no backward time"):
        price(profiled(LayerCost(forward_ms=1)))
    with pytest.raises(ProfileError, match="neither times nor FLOPs"):
        price(profiled(LayerCost(parameter_bytes=1)))
