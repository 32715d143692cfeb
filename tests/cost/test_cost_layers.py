"""The whole price of a shaped layer, and legal tensor degrees."""

from __future__ import annotations

import pytest
from cost_examples import SHAPES, cluster, deepseek_v3, gpt, llama, price, profiled

from planner.cost.legality import legal_tensor_degrees, tensor_parallel_conflict
from planner.cost.network import all_reduce_ms
from planner.placement import tensor_group
from planner.specs import (
    BlockShape,
    EmbeddingShape,
    HeadShape,
    Layer,
    LayerCost,
    Model,
    MoeShape,
    Origin,
)


def test_collectives_of_a_block() -> None:
    """Two all-reduces of 2 s b h forward, two backward; as many bytes under sequence parallel."""
    machine = cluster()
    size = 2 * 2048 * 12288
    each = all_reduce_ms(size, tensor_group(machine, 8), machine)
    plain = price(gpt(), 8, on=machine, sequence_parallel=False)
    assert plain.tensor_parallel_ms == pytest.approx(4 * each)
    assert plain.tensor_parallel_bytes == 4 * 2 * 7 * size // 8
    sequence = price(gpt(), 8, on=machine)
    # An all-gather and a reduce-scatter in place of each all-reduce: one more launch.
    launch = machine.gpu.calibration.collective_latency_ms
    assert sequence.tensor_parallel_ms == pytest.approx(4 * (each + launch))
    assert sequence.tensor_parallel_bytes == plain.tensor_parallel_bytes
    assert price(gpt(), 1).tensor_parallel_ms == 0


def test_tensor_parallel_beyond_the_node_is_paid_for() -> None:
    inside, across = price(gpt(), 8), price(gpt(), 16)
    assert across.tensor_parallel_ms > 1.5 * inside.tensor_parallel_ms


def test_full_recompute_runs_the_forward_again_with_its_collectives() -> None:
    found = price(gpt(), 8)
    assert found.full_extra_ms == found.forward_ms
    assert found.recomputable
    assert found.transient_full_bytes == found.transient_bytes + found.kept_bytes


@pytest.mark.parametrize("name", sorted(SHAPES))
@pytest.mark.parametrize("tp", [1, 8])
def test_collectives_are_contained_in_the_times(name: str, tp: int) -> None:
    found = price(SHAPES[name], tp)
    total = found.forward_ms + found.input_gradient_ms + found.weight_gradient_ms
    assert 0 <= found.tensor_parallel_ms < total
    assert found.logits_bytes <= found.kept_bytes
    assert found.buffer_bytes == 2 * (found.output_bytes + found.gradient_bytes)
    assert found.origin is Origin.FORMULA


def test_the_embedding_has_no_input_to_give_a_gradient_to() -> None:
    found = price(SHAPES["embedding"], 8)
    assert found.input_gradient_ms == 0
    assert found.weight_gradient_ms > 0
    frozen = price(SHAPES["embedding"], 8, trainable=False)
    assert frozen.weight_gradient_ms == 0
    assert frozen.trainable_parameters == 0 < frozen.parameters


def test_a_frozen_block_passes_gradients_on_without_making_its_own() -> None:
    free, frozen = price(llama(), 2), price(llama(), 2, trainable=False)
    assert frozen.weight_gradient_ms == 0
    assert frozen.input_gradient_ms == free.input_gradient_ms
    assert frozen.model_flops == pytest.approx(free.model_flops * 2 / 3)


def test_head_sends_nothing_on() -> None:
    found = price(SHAPES["head"], 8)
    assert (found.output_bytes, found.gradient_bytes, found.buffer_bytes) == (0, 0, 0)
    assert not found.recomputable


def test_activation_factor_scales_what_is_kept() -> None:
    plain, doubled = price(gpt()), price(gpt(), on=cluster(activation_factor=2.0))
    assert doubled.kept_bytes == 2 * plain.kept_bytes
    assert doubled.parameters == plain.parameters
    assert doubled.output_bytes == plain.output_bytes


def test_calibrated_parameters_say_so() -> None:
    assert price(gpt(), on=cluster(origin="calibrated")).origin is Origin.CALIBRATED


def test_next_token_module_costs_more_than_its_block() -> None:
    block, module = price(deepseek_v3(), 8), price(deepseek_v3(mtp=True), 8)
    assert module.forward_ms > block.forward_ms
    assert module.parameters - block.parameters == 3 * 7168 + 2 * 7168**2 // 8
    assert module.tensor_parallel_ms > block.tensor_parallel_ms


# --- legality --------------------------------------------------------------------------------


def shaped(shape: BlockShape, vocab: int = 32000) -> Model:
    return Model(
        name="m",
        layers=(
            Layer(name="embedding", shape=EmbeddingShape(vocab=vocab, hidden=shape.hidden)),
            Layer(name="block.0", shape=shape),
            Layer(name="block.1", shape=shape),
            Layer(name="head", shape=HeadShape(vocab=vocab, hidden=shape.hidden)),
        ),
    )


def test_published_heads_case() -> None:
    """52 heads: T in {1, 2, 4}."""
    model = shaped(gpt(hidden=6656, heads=52, head_dim=128))
    assert legal_tensor_degrees(model, 8) == [1, 2, 4]
    assert "52 attention heads of block.0" in str(tensor_parallel_conflict(model, 8))


def test_kv_heads_are_divided_or_replicated() -> None:
    assert legal_tensor_degrees(shaped(llama()), 64) == [1, 2, 4, 8, 16, 32]
    odd = shaped(llama(heads=24, kv_heads=8, hidden=3072, ffn_hidden=8192 * 3))
    assert legal_tensor_degrees(odd, 24) == [1, 2, 4, 8, 24]
    assert "key-value heads" in str(tensor_parallel_conflict(odd, 3))


def test_every_size_must_divide() -> None:
    assert "feed-forward size 14330" in str(
        tensor_parallel_conflict(shaped(llama(ffn_hidden=14330)), 4)
    )
    experts = MoeShape(experts=8, experts_per_token=2, expert_ffn_hidden=100, shared_ffn_hidden=48)
    assert legal_tensor_degrees(shaped(llama(moe=experts)), 32) == [1, 2, 4]
    assert "expert feed-forward size 100" in str(
        tensor_parallel_conflict(shaped(llama(moe=experts)), 8)
    )


@pytest.mark.parametrize("shape", [gpt(), llama(), deepseek_v3()])
def test_listed_degrees_are_those_without_conflict(shape: BlockShape) -> None:
    model = shaped(shape)
    expected = [tp for tp in range(1, 129) if tensor_parallel_conflict(model, tp) is None]
    assert legal_tensor_degrees(model, 128) == expected


def test_profiled_layers() -> None:
    row = LayerCost(forward_ms=1, backward_ms=2)
    wide = row.model_copy(update={"tp": 3})
    known = Model(name="m", layers=(profiled(row, wide, type="block"),))
    assert legal_tensor_degrees(known, 8) == [1, 2, 3, 4, 8]
    assert "powers of two" in str(tensor_parallel_conflict(known, 6))
    unknown = Model(name="m", layers=(profiled(row, wide, type="conv"),))
    assert legal_tensor_degrees(unknown, 8) == [1, 3]
    assert 'type "conv" splits at tp=2 is not known' in str(tensor_parallel_conflict(unknown, 2))
