"""Compute times: monotone, honest about small shapes, and consistent with published counts."""

from __future__ import annotations

import itertools

import pytest
from cost_examples import (
    SHAPES,
    cluster,
    deepseek_v3,
    device,
    gpt,
    llama,
    mixtral,
    price,
    training,
)
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.compute import (
    block_times,
    device_rates,
    gemm_ms,
    optimizer_step,
    optimizer_step_ms,
)
from planner.cost.shapes import (
    block_parameters,
    embedding_parameters,
    head_parameters,
    layer_model_flops,
    padded_vocabulary,
)
from planner.errors import ClusterError
from planner.specs import BlockShape, EmbeddingShape, HeadShape, MoeShape, Precision

IDEAL = {
    "gemm_efficiency": 1,
    "gemm_half_width": 0,
    "gemm_half_rows": 0,
    "attention_efficiency": 1,
    "memory_efficiency": 1,
    "layer_floor_ms": 0,
}


def test_gemm_is_the_roofline() -> None:
    rates = device_rates(device(**IDEAL), Precision.BF16)
    large = gemm_ms(rates, 8192, 8192, 8192, 2)
    assert large == pytest.approx(2 * 8192**3 / 312e12 * 1e3)
    thin = gemm_ms(rates, 1, 8192, 8192, 2)
    assert thin == pytest.approx(2 * (8192 * 8192 + 2 * 8192) / 2.039e12 * 1e3)


def test_half_width_and_half_rows_double_the_time() -> None:
    rates = device_rates(
        device(**IDEAL | {"gemm_half_width": 4096, "memory_efficiency": 1}), Precision.BF16
    )
    ideal = device_rates(device(**IDEAL), Precision.BF16)
    assert gemm_ms(rates, 8192, 4096, 16384, 2) == pytest.approx(
        2 * gemm_ms(ideal, 8192, 4096, 16384, 2)
    )
    rows = device_rates(device(**IDEAL | {"gemm_half_rows": 8192}), Precision.BF16)
    assert gemm_ms(rows, 8192, 4096, 16384, 2) == pytest.approx(
        2 * gemm_ms(ideal, 8192, 4096, 16384, 2)
    )


def test_block_on_an_ideal_machine_is_its_flops() -> None:
    """24 b s h^2 (matrices) at peak plus causal attention 2 b s^2 h, and element-wise bytes."""
    shape, seq = gpt(), 2048
    setup = training()
    times = block_times(shape, device_rates(device(**IDEAL), Precision.BF16), setup, 1, 1)
    matrices = 24 * seq * 12288**2 / 312e12 * 1e3
    core = 2 * seq**2 * 12288 / 312e12 * 1e3
    assert times.core_forward_ms == pytest.approx(core)
    assert times.weight_gradient_ms == pytest.approx(matrices)
    element = times.forward_ms - matrices - core
    # Norms, residuals with dropout, q and k, GELU: (10 x 2 + 2 + 8 + 2 x 8) h bytes a token.
    assert element == pytest.approx(seq * 12288 * 46 / 2.039e12 * 1e3)
    assert times.input_gradient_ms == pytest.approx(matrices + 2.5 * core + 2 * element)


def test_unfused_attention_is_slower_and_its_recompute_dear() -> None:
    fused, unfused = price(gpt()), price(gpt(), flash_attention=False)
    assert unfused.forward_ms > fused.forward_ms
    assert unfused.selective_extra_ms > 2 * fused.selective_extra_ms
    assert unfused.selective_extra_ms < unfused.full_extra_ms
    assert unfused.kept_bytes > unfused.kept_selective_bytes


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_backward_is_about_twice_the_forward(name: str) -> None:
    machine = cluster(layer_floor_ms=0)
    found = price(SHAPES[name], 1, 2, on=machine)
    backward = found.input_gradient_ms + found.weight_gradient_ms
    assert 1.2 * found.forward_ms < backward < 2.6 * found.forward_ms


def test_small_micro_batches_and_large_tensor_degrees_cost() -> None:
    """At a fixed batch, time per sample falls with m, and per-rank time falls slower than 1/T."""
    machine = cluster()
    shape = llama()
    per_sample = [price(shape, 8, m, on=machine).forward_ms / m for m in (1, 2, 4)]
    assert per_sample == sorted(per_sample, reverse=True)
    assert per_sample[0] > 1.05 * per_sample[-1]
    one, eight = price(shape, 1, 4), price(shape, 8, 4)
    assert one.weight_gradient_ms / 8 < 0.95 * eight.weight_gradient_ms


@pytest.mark.parametrize(("tp", "best_is_one"), [(8, False), (1, True)])
def test_the_best_micro_batch_depends_on_the_shape(tp: int, best_is_one: bool) -> None:
    """1F1B time (M + P - 1) t(m) at a fixed batch of 64 samples and P = 8 stages.

    A large block on one GPU fills it with one sample, and more micro-batches shrink the bubble;
    narrow shards of a small block do not fill it.
    """
    shape = llama() if tp == 8 else gpt()
    costs = {}
    for size in (1, 2, 4, 8, 16):
        found = price(shape, tp, size)
        beat = found.forward_ms + found.input_gradient_ms + found.weight_gradient_ms
        costs[size] = (64 // size + 7) * beat
    assert (min(costs, key=lambda size: costs[size]) == 1) is best_is_one


@given(
    st.sampled_from(sorted(SHAPES)),
    st.sampled_from([1, 2, 4, 8]),
    st.integers(1, 16),
    st.booleans(),
)
def test_more_samples_never_take_less(name: str, tp: int, size: int, flash: bool) -> None:
    shape = SHAPES[name]
    low = price(shape, tp, size, flash_attention=flash)
    high = price(shape, tp, size + 1, flash_attention=flash)
    for part in ("forward_ms", "input_gradient_ms", "weight_gradient_ms", "kept_bytes"):
        assert getattr(low, part) <= getattr(high, part) * (1 + 1e-12)
    ratio = (size + 1) / size
    assert high.model_flops == pytest.approx(low.model_flops * ratio)


@given(st.sampled_from(sorted(SHAPES)), st.integers(1, 4))
def test_more_tensor_ranks_never_compute_more(name: str, size: int) -> None:
    def compute_ms(tp: int) -> float:
        found = price(SHAPES[name], tp, size)
        total = found.forward_ms + found.input_gradient_ms + found.weight_gradient_ms
        return total - found.tensor_parallel_ms

    times = [compute_ms(tp) for tp in (1, 2, 4, 8)]
    assert all(more <= fewer * (1 + 1e-9) for fewer, more in itertools.pairwise(times))


def test_a_window_saves_attention_time() -> None:
    full = price(llama(), 1, 1, sequence_length=8192)
    windowed = price(llama(window=1024), 1, 1, sequence_length=8192)
    share = (1024 - 1024**2 / (2 * 8192)) / (8192 / 2)
    assert windowed.selective_extra_ms == pytest.approx(full.selective_extra_ms * share)


def test_few_tokens_read_only_the_experts_they_reach() -> None:
    rates = device_rates(device(**IDEAL), Precision.BF16)
    shape = mixtral()

    def forward(samples: int) -> float:
        return block_times(shape, rates, training(sequence_length=1), 1, samples).forward_ms

    # One token reaches 2 of 8 experts; eight tokens reach all of them. Reading weights dominates.
    expert_bytes = 2 * 3 * 4096 * 14336
    assert forward(8) - forward(1) == pytest.approx(6 * expert_bytes / 2.039e12 * 1e3, rel=0.02)


def test_a_missing_precision_is_refused() -> None:
    with pytest.raises(ClusterError, match="no peak FLOP/s for fp8"):
        price(llama(), precision=Precision.FP8)


# --- parameters and model FLOPs --------------------------------------------------------------


def test_parameters_of_published_models() -> None:
    # Narayanan et al. 2021, equation 2 at L = 96, h = 12288, s = 2048, V = 51200 (175B).
    layers, hidden, seq, vocab = 96, 12288, 2048, 51200
    total = layers * block_parameters(gpt(), 1)
    total += embedding_parameters(EmbeddingShape(vocab=vocab, hidden=hidden, positions=seq), 1)
    published = (
        12 * layers * hidden**2 * (1 + 13 / (12 * hidden) + (vocab + seq) / (12 * layers * hidden))
    )
    assert total == pytest.approx(published, rel=1e-12)
    # Llama 3 8B: 8,030,261,248 parameters (model card; untied head).
    llama3 = 32 * block_parameters(llama(), 1)
    llama3 += embedding_parameters(EmbeddingShape(vocab=128256, hidden=4096), 1)
    llama3 += head_parameters(HeadShape(vocab=128256, hidden=4096), 1)
    assert llama3 == 8_030_261_248
    # Mixtral 8x7B: 46,702,792,704 parameters (vocabulary 32000 is a multiple of 128).
    mixtral_total = 32 * block_parameters(mixtral(), 1)
    mixtral_total += 2 * 32000 * 4096 + 4096
    assert mixtral_total == 46_702_792_704
    # DeepSeek-V3: 671B in all, of which 61 layers, the first three dense (technical report).
    dense = deepseek_v3(moe=None)
    deepseek = 3 * block_parameters(dense, 1) + 58 * block_parameters(deepseek_v3(), 1)
    deepseek += 2 * 129280 * 7168 + 7168
    assert deepseek == pytest.approx(671.0e9, rel=1e-3)


def test_vocabulary_padding_case() -> None:
    assert padded_vocabulary(151669, 4) == 152_064
    assert embedding_parameters(EmbeddingShape(vocab=151669, hidden=2560), 4) == 97_320_960
    # GPT-2 XL, T = 1: tying adds 80,486,400 parameters on the last stage.
    tied = HeadShape(vocab=50257, hidden=1600, tied=True)
    assert price(tied).embedding_parameters == 80_486_400
    assert price(HeadShape(vocab=50257, hidden=1600)).embedding_parameters == 0


@pytest.mark.parametrize("shape", [gpt(), llama(), mixtral(), deepseek_v3()])
@pytest.mark.parametrize("tp", [2, 8])
def test_tensor_ranks_share_the_parameters(shape: BlockShape, tp: int) -> None:
    whole, shard = block_parameters(shape, 1), block_parameters(shape, tp)
    # Replicated: norms, biases of row-parallel matrices, routers and latents; under 5 %.
    assert whole <= shard * tp < 1.05 * whole


def test_model_flops_are_narayanans_without_recompute() -> None:
    """72 B s L h^2 (1 + s/6h + V/12Lh) for GPT-3: B = 1536, L = 96, h = 12288, s = 2048."""
    batch, layers, hidden, seq, vocab = 1536, 96, 12288, 2048, 51200
    found = layers * layer_model_flops(gpt(), seq, batch)
    found += layer_model_flops(HeadShape(vocab=vocab, hidden=hidden), seq, batch)
    found += layer_model_flops(EmbeddingShape(vocab=vocab, hidden=hidden), seq, batch)
    published = 72 * batch * seq * layers * hidden**2
    published *= 1 + seq / (6 * hidden) + vocab / (12 * layers * hidden)
    assert found == pytest.approx(published, rel=1e-12)


def test_experts_count_the_active_ones() -> None:
    dense = layer_model_flops(llama(), 2048, 1)
    routed = layer_model_flops(mixtral(), 2048, 1)
    extra = 6 * 2048 * (3 * 4096 * 14336 + 4096 * 8)
    assert routed - dense == pytest.approx(extra)


# --- the optimizer step ----------------------------------------------------------------------


def test_optimizer_moves_thirty_bytes_a_parameter() -> None:
    machine = cluster(memory_efficiency=1)
    step = optimizer_step(training(), dp=1, tp=1, cluster=machine)
    assert step.update_ms(10**9) == pytest.approx(30e9 / 2.039e12 * 1e3)
    assert step.all_gather_ms(10**9) == 0
    sharded = optimizer_step(training(), dp=4, tp=8, cluster=machine)
    assert sharded.update_ms(10**9) == pytest.approx(step.update_ms(10**9) / 4)
    # Gathering bf16 weights over four nodes: 3/4 of them over the network.
    rate = 25e9 * machine.gpu.calibration.network_efficiency
    bandwidth_ms = 0.75 * 2e9 / rate * 1e3
    assert sharded.all_gather_ms(10**9) == pytest.approx(bandwidth_ms + 3 * 5e-3 + 0.02)
    additive = optimizer_step_ms(10**9, dp=4, tp=8, training=training(), cluster=machine)
    assert additive == pytest.approx(sharded.update_ms(10**9) + bandwidth_ms)
    idle = training(optimizer="none")
    assert optimizer_step_ms(10**9, dp=1, tp=1, training=idle, cluster=machine) == 0


def test_uneven_experts_do_not_divide_by_zero() -> None:
    lonely = llama(moe=MoeShape(experts=64, experts_per_token=1, expert_ffn_hidden=128))
    assert price(lonely, 1, 1, sequence_length=1).forward_ms > 0
