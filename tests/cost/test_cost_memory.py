"""Memory formulas against published totals."""

from __future__ import annotations

import itertools

import pytest
from cost_examples import deepseek_v3, gpt, llama, mixtral, price, training
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.memory import (
    StateBytes,
    block_activations,
    block_pieces,
    boundary_bytes,
    embedding_activations,
    head_activations,
    state_bytes,
)
from planner.specs import EmbeddingShape, HeadShape, Precision

GPT = gpt(hidden=4096, heads=32)
SBH = 2048 * 4096


@pytest.mark.parametrize("tp", [1, 2, 8])
@pytest.mark.parametrize("batch", [1, 4])
def test_korthikanti_equations(tp: int, batch: int) -> None:
    """Equations 1 to 6 of Korthikanti et al. 2022, s = 2048, h = 4096, a = 32: 5as/h = 80."""
    sbh = SBH * batch
    naive = training(flash_attention=False, sequence_parallel=False)
    shared = block_activations(GPT, naive, tp, batch)
    assert shared.kept == 10 * sbh + 24 * sbh // tp + 80 * sbh // tp
    assert shared.kept_selective == 10 * sbh + 24 * sbh // tp
    assert shared.kept_full == 2 * sbh
    sequence = block_activations(GPT, training(flash_attention=False), tp, batch)
    assert sequence.kept == (34 + 80) * sbh // tp
    assert sequence.kept_selective == 34 * sbh // tp
    # Checkpoints are sharded with the sequence.
    assert sequence.kept_full == 2 * sbh // tp


def test_fused_attention_keeps_no_scores_so_selective_saves_nothing() -> None:
    naive = block_activations(GPT, training(flash_attention=False), 1, 1)
    flash = block_activations(GPT, training(), 1, 1)
    assert (naive.kept, naive.kept_selective) == (956_301_312, 285_212_672)
    assert (flash.kept, flash.kept_selective) == (285_212_672, 285_212_672)


@pytest.mark.parametrize("tp", [1, 2, 8])
@pytest.mark.parametrize("sequence_parallel", [True, False])
def test_llama_block(tp: int, sequence_parallel: bool) -> None:
    """sbh (12 + 4g + 6f/h), g = 1/4 and f/h = 3.5, and fused attention's row statistic."""
    shape = llama()
    setup = training(sequence_parallel=sequence_parallel)
    shards = tp if sequence_parallel else 1
    # The 8 of norm and matrix inputs are sharded with the sequence alone.
    expected = 8 * SBH // shards + (4 + 4 // 4 + 21) * SBH // tp + 4 * 32 * 2048 // tp
    assert block_activations(shape, setup, tp, 1).kept == expected


def test_seven_billion_case_of_the_textbook() -> None:
    """8 layers, h = 4096, s = 4096, one sample: about 4.6 GB; without flash about 26 GB."""
    flash = 8 * block_activations(GPT, training(sequence_length=4096), 1, 1).kept
    naive_setup = training(sequence_length=4096, flash_attention=False)
    naive = 8 * block_activations(GPT, naive_setup, 1, 1).kept
    assert flash == pytest.approx(4.6e9, rel=0.01)
    assert naive == pytest.approx(26e9, rel=0.01)


def test_replicated_kv_heads_do_not_shrink_below_one() -> None:
    shape = llama(kv_heads=2)
    pieces = [block_pieces(shape, training(), tp, 1)["query, key, value"] for tp in (2, 4, 8)]
    token = 2 * 2048 * 128
    assert pieces == [token * (16 + 1 + 1), token * (8 + 1 + 1), token * (4 + 1 + 1)]


def test_experts_hold_a_copy_of_every_routed_token() -> None:
    """4,096 tokens x top-8 = 32,768 dispatched tokens, whatever the sharding."""
    pieces = block_pieces(deepseek_v3(), training(sequence_length=4096), 1, 1)
    assert pieces["expert inputs and outputs"] == 32_768 * 2 * 7168 * 2
    assert pieces["expert hidden"] == 32_768 * 3 * 2048 * 2
    pieces = block_pieces(mixtral(), training(), 8, 1)
    assert pieces["expert hidden"] == 2048 * 2 * 3 * 14336 * 2 // 8


def test_latent_attention_keeps_latents_once_and_full_heads() -> None:
    pieces = block_pieces(deepseek_v3(), training(), 1, 1)
    assert pieces["latents"] == 2048 * 2 * (1536 + 512 + 64 + 1536 + 512)
    assert pieces["query, key, value"] == 2048 * 2 * 128 * (192 + 192 + 128)


def test_half_precision_elements_double_in_fp32() -> None:
    setup = training(precision=Precision.FP32)
    plain = llama()
    statistics = 4 * 32 * 2048
    assert block_activations(plain, setup, 1, 1).kept - statistics == 2 * (
        block_activations(plain, training(), 1, 1).kept - statistics
    )


def test_head_and_embedding() -> None:
    head = HeadShape(vocab=50257, hidden=1600)
    padded = 50304
    activations = head_activations(head, training(), 1, 2)
    assert activations.logits == 4 * 2 * 2048 * padded
    assert activations.kept == activations.logits + 4 * 2 * 2048 * 1600
    assert head_activations(head, training(), 8, 2).logits == 4 * 2 * 2048 * 51200 // 8
    embedding = EmbeddingShape(vocab=50257, hidden=1600, dropout=True)
    assert embedding_activations(embedding, training(), 1, 1).kept == 2048 * (8 + 1600)


def test_boundary_tensor_of_the_textbook() -> None:
    setup = training(sequence_length=4096)
    assert boundary_bytes(8192, 2, setup, 1) == 134_217_728
    assert boundary_bytes(8192, 2, setup, 8) == 134_217_728 // 8
    whole = training(sequence_length=4096, sequence_parallel=False)
    assert boundary_bytes(8192, 2, whole, 8) == 134_217_728
    block = price(gpt(hidden=8192, heads=64), 1, 2, sequence_length=4096)
    assert block.output_bytes + block.gradient_bytes == 256 * 2**20


def test_states() -> None:
    """8e9 parameters at T = 2, P = 2, D = 4: 9 bytes sharded, 18 not (a published case)."""
    count = 2_000_000_000
    assert state_bytes(count, count, training(), 4).total == 18 * 10**9
    assert state_bytes(count, count, training(sharded_optimizer=False), 4).total == 36 * 10**9
    assert state_bytes(count, count, training(), 1) == StateBytes(2 * count, 4 * count, 12 * count)
    fp32 = training(precision=Precision.FP32)
    assert state_bytes(count, count, fp32, 1) == StateBytes(4 * count, 4 * count, 8 * count)
    sgd = training(optimizer="sgd")
    assert state_bytes(count, count, sgd, 1) == StateBytes(2 * count, 4 * count, 8 * count)
    assert state_bytes(count, count, training(optimizer="none"), 1).total == 2 * count


def test_frozen_parameters_are_weights_alone() -> None:
    assert state_bytes(1000, 10, training(), 1) == StateBytes(2000, 40, 120)


@given(st.integers(0, 10**6), st.integers(1, 64))
def test_shards_cover_the_optimizer(parameters: int, dp: int) -> None:
    whole = state_bytes(parameters, parameters, training(), 1).optimizer
    shard = state_bytes(parameters, parameters, training(), dp).optimizer
    assert shard * dp >= whole > (shard - 1) * dp


@given(
    st.sampled_from([gpt(), llama(), mixtral(), deepseek_v3()]),
    st.booleans(),
    st.booleans(),
    st.integers(1, 8),
)
def test_more_tensor_ranks_never_hold_more(
    shape: object, flash: bool, sequence_parallel: bool, batch: int
) -> None:
    setup = training(flash_attention=flash, sequence_parallel=sequence_parallel)
    held = [block_activations(shape, setup, tp, batch) for tp in (1, 2, 4, 8)]  # type: ignore[arg-type]
    for fewer, more in itertools.pairwise(held):
        assert all(a >= b for a, b in zip(fewer, more, strict=True))
    for one in held:
        assert one.kept >= one.kept_selective >= one.kept_full
