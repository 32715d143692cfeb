"""A profile made from formulas prices like the model it was made from."""

from __future__ import annotations

import pytest

from planner import api
from planner.errors import InputError, LayoutError
from planner.specs import Cluster, Origin
from planner.studies.profiles import formula_profile


def test_rows_for_every_degree_and_size() -> None:
    model = api.load_model("gpt2")
    profile = formula_profile(
        model, api.load_cluster("dgx-h100:1"), tensor_degrees=(1, 2), microbatch_sizes=(1, 4)
    )
    assert [layer.name for layer in profile.layers] == [layer.name for layer in model.layers]
    for layer in profile.layers:
        assert [(row.tp, row.microbatch_size) for row in layer.costs] == [
            (1, 1), (1, 4), (2, 1), (2, 4),
        ]  # fmt: skip
    block = profile.layers[1]
    one, four = block.costs[0], block.costs[1]
    # Four samples keep and send four times as much; weights do not change.
    assert four.activation_bytes == 4 * one.activation_bytes
    assert four.output_bytes == 4 * one.output_bytes == 4 * 1024 * 768 * 2
    assert four.parameter_bytes == one.parameter_bytes
    assert one.forward_ms is not None
    assert four.forward_ms is not None
    assert one.forward_ms <= four.forward_ms <= 4 * one.forward_ms


def test_formulas_are_not_called_measured() -> None:
    model, cluster = api.load_model("gpt2"), api.load_cluster("dgx-h100:1")

    def origins(cluster: Cluster) -> set[Origin]:
        profile = formula_profile(model, cluster, tensor_degrees=(1, 2))
        return {row.origin for layer in profile.layers for row in layer.costs}

    assert origins(cluster) == {Origin.FORMULA}
    fitted = cluster.gpu.calibration.model_copy(update={"origin": Origin.CALIBRATED})
    gpu = cluster.gpu.model_copy(update={"calibration": fitted})
    assert origins(cluster.model_copy(update={"gpu": gpu})) == {Origin.CALIBRATED}


def test_parameters_of_a_gpt2_block() -> None:
    profile = formula_profile(api.load_model("gpt2"), api.load_cluster("dgx-h100:1"))
    # 12 h^2 + 13 h weights and biases of a GPT-2 block with h = 768, 2 bytes each.
    assert profile.layers[1].costs[0].parameter_bytes == 2 * (12 * 768**2 + 13 * 768)


def test_what_cannot_be_priced() -> None:
    model = api.load_model("gpt2")
    cluster = api.load_cluster("dgx-h100:1")
    with pytest.raises(LayoutError, match="tp=5 does not divide"):
        formula_profile(model, cluster, tensor_degrees=(5,))
    with pytest.raises(InputError, match="--seq-len"):
        formula_profile(model.model_copy(update={"sequence_length": None}), cluster)
