"""Widths and parameter counts of layers on one tensor-parallel rank, and their model FLOPs.

Column-parallel first matrices and row-parallel second ones (Shoeybi et al. 2019, section 3);
norms, biases of row-parallel matrices, routers, learned positions and MLA's down-projections are
replicated. Experts are sharded like a dense feed-forward (ep = 1: every rank holds a slice of
every expert).
"""

from __future__ import annotations

from typing import NamedTuple

from planner.specs import BlockShape, EmbeddingShape, HeadShape

__all__ = [
    "VOCABULARY_MULTIPLE",
    "AttentionWidths",
    "attention_widths",
    "block_parameters",
    "embedding_parameters",
    "head_parameters",
    "layer_model_flops",
    "padded_vocabulary",
]

VOCABULARY_MULTIPLE = 128
"""Megatron-LM's default --make-vocab-size-divisible-by."""


def padded_vocabulary(vocab: int, tp: int) -> int:
    """Vocabulary padded to a multiple of 128 x tp, so that every rank holds full tiles.

    The rule of Megatron-LM's vocabulary padding.

    Examples
    --------
    >>> padded_vocabulary(151669, 4), padded_vocabulary(151669, 4) * 2560 // 4
    (152064, 97320960)
    >>> padded_vocabulary(50257, 1), padded_vocabulary(50257, 8)
    (50304, 51200)
    """
    multiple = VOCABULARY_MULTIPLE * tp
    return -(-vocab // multiple) * multiple


class AttentionWidths(NamedTuple):
    """Widths (elements per token) of attention on one tensor-parallel rank."""

    heads: int
    query: int
    key: int
    value: int
    context: int
    """Output of the attention core, input of the output projection."""
    latent: int
    """Replicated low-rank latents of MLA, both norms' inputs included (0 otherwise)."""


def attention_widths(shape: BlockShape, tp: int) -> AttentionWidths:
    """Widths of q, k, v and the attention output per rank; KV heads are replicated when kv < tp."""
    heads = -(-shape.heads // tp)
    if shape.mla is not None:
        mla = shape.mla
        wide = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
        value = heads * mla.v_head_dim
        latent = mla.q_lora_rank + mla.kv_lora_rank + mla.qk_rope_head_dim
        return AttentionWidths(heads, wide, wide, value, value, latent)
    kv = -(-shape.kv_heads // tp) * shape.head_dim
    query = heads * shape.head_dim
    return AttentionWidths(heads, query, kv, kv, query, 0)


def block_parameters(shape: BlockShape, tp: int) -> int:
    """Parameters of a transformer block on one rank.

    Summed over GPT layers this is Narayanan et al. 2021, equation 2.

    Examples
    --------
    >>> gpt3 = BlockShape(hidden=12288, heads=96, kv_heads=96, head_dim=128, ffn_hidden=49152,
    ...                   gated=False, linear_bias=True, qkv_bias=True, norm_bias=True)
    >>> block_parameters(gpt3, 1) == 12 * 12288**2 + 13 * 12288
    True
    """
    hidden = shape.hidden
    widths = attention_widths(shape, tp)
    norm = hidden * (2 if shape.norm_bias else 1)
    total = shape.norms * norm
    if shape.mla is not None:
        mla = shape.mla
        if mla.q_lora_rank:
            total += hidden * mla.q_lora_rank + mla.q_lora_rank * (1 + widths.query)
        else:
            total += hidden * widths.query
        total += hidden * (mla.kv_lora_rank + mla.qk_rope_head_dim)
        up = widths.heads * (mla.qk_nope_head_dim + mla.v_head_dim)
        total += mla.kv_lora_rank * (1 + up)
    else:
        projected = widths.query + widths.key + widths.value
        total += hidden * projected
        if shape.qkv_bias or shape.linear_bias:
            total += projected
        if shape.qk_norm:
            total += 2 * shape.head_dim
    total += widths.context * hidden
    if shape.linear_bias:
        total += hidden
    total += _feed_forward_parameters(shape, tp)
    if shape.mtp:
        # Two input norms, the final norm, and the (2h -> h) projection (DeepSeek-V3, section 2.2).
        total += 3 * norm + -(-2 * hidden * hidden // tp)
    return total


def _feed_forward_parameters(shape: BlockShape, tp: int) -> int:
    matrices = 3 if shape.gated else 2
    if shape.moe is not None:
        moe = shape.moe
        total = shape.hidden * moe.experts
        total += moe.experts * matrices * shape.hidden * -(-moe.expert_ffn_hidden // tp)
        return total + matrices * shape.hidden * -(-moe.shared_ffn_hidden // tp)
    ffn = -(-shape.ffn_hidden // tp)
    total = matrices * shape.hidden * ffn
    if shape.linear_bias:
        total += (matrices - 1) * ffn + shape.hidden
    return total


def embedding_parameters(shape: EmbeddingShape, tp: int) -> int:
    """Parameters of the token embedding on one rank, learned positions included."""
    return padded_vocabulary(shape.vocab, tp) // tp * shape.hidden + shape.positions * shape.hidden


def head_parameters(shape: HeadShape, tp: int) -> int:
    """Parameters of the final norm and the language-model head on one rank.

    A tied head counts too: under pipelining the matrix is stored on both ends.
    """
    norm = shape.hidden * (2 if shape.norm_bias else 1)
    return norm + padded_vocabulary(shape.vocab, tp) // tp * shape.hidden


def layer_model_flops(
    shape: BlockShape | EmbeddingShape | HeadShape, sequence_length: int, microbatch_size: int
) -> float:
    """Model FLOPs of a layer and micro-batch, forward and backward, over all tensor ranks.

    The convention of model FLOPs utilisation (Chowdhery et al. 2022, PaLM, appendix B): no
    recompute, no causal halving, the head in, the embedding lookup out. Three times the forward's
    2 N + 4 s h per token; over a GPT these add up to Narayanan et al. 2021, equation 3, without
    recompute: 72 B s L h^2 (1 + s/6h + V/12Lh). Padding of the vocabulary is no useful work.
    """
    tokens = float(microbatch_size) * sequence_length
    if shape.kind == "embedding":
        return 0.0
    if shape.kind == "head":
        return 6.0 * tokens * shape.hidden * shape.vocab
    hidden = shape.hidden
    attention = attention_widths(shape, 1)
    if shape.mla is not None:
        mla = shape.mla
        if mla.q_lora_rank:
            weights = (hidden + attention.query) * mla.q_lora_rank
        else:
            weights = hidden * attention.query
        weights += hidden * (mla.kv_lora_rank + mla.qk_rope_head_dim)
        up = attention.heads * (mla.qk_nope_head_dim + mla.v_head_dim)
        weights += mla.kv_lora_rank * up
    else:
        weights = hidden * (attention.query + attention.key + attention.value)
    weights += attention.context * hidden
    matrices = 3 if shape.gated else 2
    if shape.moe is None:
        weights += matrices * hidden * shape.ffn_hidden
    else:
        moe = shape.moe
        active = moe.experts_per_token * moe.expert_ffn_hidden + moe.shared_ffn_hidden
        weights += matrices * hidden * active + hidden * moe.experts
    if shape.mtp:
        weights += 2 * hidden * hidden
    keys = sequence_length if shape.window is None else min(sequence_length, shape.window)
    return 6.0 * tokens * (weights + keys * (attention.query + attention.context))
