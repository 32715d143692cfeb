"""Memory of one rank: model states, and activations piece by piece.

Activations follow Korthikanti et al. 2022, "Reducing Activation Recomputation in Large
Transformer Models", section 4: each piece is a tensor that the backward pass needs, divided by
the tensor degree where tensor parallelism shards it, and under sequence parallelism everywhere.
For a GPT block with dropout and GELU the pieces add up to the paper's equations 1 to 6; for a
llama block (no dropout, gated feed-forward, grouped queries, g = kv heads / heads) to
s b h (12 + 4g + 6f/h). Small buffers (norm statistics) are neglected, as in the paper.

Bytes per element: 2 in half precision (and fp8 recipes, which keep bf16 activations), 4 in fp32.
"""

from __future__ import annotations

from typing import NamedTuple

from planner.cost.shapes import attention_widths, padded_vocabulary
from planner.specs import BlockShape, EmbeddingShape, HeadShape, Precision, Training

__all__ = [
    "Activations",
    "StateBytes",
    "block_activations",
    "block_pieces",
    "boundary_bytes",
    "element_bytes",
    "embedding_activations",
    "head_activations",
    "optimizer_bytes_per_parameter",
    "state_bytes",
]


class StateBytes(NamedTuple):
    """Bytes of the model states on one rank."""

    parameters: int
    gradients: int
    optimizer: int

    @property
    def total(self) -> int:
        """All three."""
        return self.parameters + self.gradients + self.optimizer


def optimizer_bytes_per_parameter(training: Training) -> int:
    """Optimizer state bytes of a trainable parameter, before sharding.

    Adam keeps two fp32 moments, SGD one fp32 momentum; half-precision weights add an fp32 master
    copy (Rajbhandari et al. 2020, ZeRO, section 3.1: K = 12 for mixed-precision Adam).
    """
    if training.optimizer == "none":
        return 0
    master = 0 if training.precision.weight_bytes == 4 else 4
    return master + (8 if training.optimizer == "adam" else 4)


def state_bytes(
    parameters: int, trainable_parameters: int, training: Training, dp: int
) -> StateBytes:
    """Weights, gradients and optimizer state of a rank.

    bf16 Adam: 2 + 4 + 12 = 18 bytes a parameter (fp32 main gradients), and 6 + 12/dp with the
    optimizer sharded over data-parallel ranks; fp32 Adam 4 + 4 + 8. Optimizer ``none`` keeps the
    weights alone; frozen parameters are weights alone too.

    Parameters
    ----------
    parameters, trainable_parameters
        Counts on this rank.
    training
        Precision, optimizer and whether it is sharded.
    dp
        Data-parallel degree; the optimizer share is rounded up where it does not divide.

    Examples
    --------
    >>> plan = Training(global_batch_size=8, sequence_length=128)
    >>> state_bytes(1000, 1000, plan, 1), state_bytes(1000, 1000, plan, 8).total
    (StateBytes(parameters=2000, gradients=4000, optimizer=12000), 7500)
    """
    weights = parameters * training.precision.weight_bytes
    if training.optimizer == "none":
        return StateBytes(weights, 0, 0)
    optimizer = trainable_parameters * optimizer_bytes_per_parameter(training)
    if training.sharded_optimizer and dp > 1:
        optimizer = -(-optimizer // dp)
    return StateBytes(weights, 4 * trainable_parameters, optimizer)


class Activations(NamedTuple):
    """Bytes of one layer and micro-batch on one rank."""

    kept: int
    """From the forward to the backward, nothing recomputed."""
    kept_selective: int
    """The attention core recomputed."""
    kept_full: int
    """Only the layer's input."""
    transient: int
    """Gradients and gathered inputs alive while the layer runs backward."""
    transient_full: int
    """The same when recomputed in full: the layer's own activations come back."""
    logits: int
    """Part of ``kept`` that is logits."""


def element_bytes(precision: Precision) -> int:
    """Bytes of one activation element."""
    return 4 if precision in (Precision.FP32, Precision.TF32) else 2


def boundary_bytes(hidden: int, microbatch_size: int, training: Training, tp: int) -> int:
    """Bytes that one rank sends over a cut between blocks, one way.

    b s h elements; with sequence parallelism each tensor rank holds and sends 1/tp of them.

    Examples
    --------
    >>> boundary_bytes(8192, 2, Training(global_batch_size=2, sequence_length=4096), 1)
    134217728
    """
    tokens = microbatch_size * training.sequence_length
    shards = tp if training.sequence_parallel else 1
    return -(-element_bytes(training.precision) * tokens * hidden // shards)


def block_pieces(
    shape: BlockShape, training: Training, tp: int, microbatch_size: int
) -> dict[str, int]:
    """Tensors of a transformer block that its backward needs, in bytes on one rank.

    Shards: pieces produced by column-parallel matrices are per rank already; the residual stream
    (norm and matrix inputs, dropout masks) is whole on each rank, or 1/tp under sequence
    parallelism. Inputs of experts are copies of the gathered tokens and stay whole.
    """
    seq = training.sequence_length
    tokens = microbatch_size * seq
    width = element_bytes(training.precision)
    shards = tp if training.sequence_parallel else 1
    hidden = shape.hidden
    attention = attention_widths(shape, tp)

    def stream(bytes_per_token: int) -> int:
        return -(-tokens * bytes_per_token // shards)

    pieces = {
        "norm inputs": stream(shape.norms * width * hidden),
        "attention input": stream(width * hidden),
        "query, key, value": tokens * width * (attention.query + attention.key + attention.value),
        "attention output": tokens * width * attention.context,
    }
    if attention.latent and shape.mla is not None:
        # Latents enter a norm and, normed, the up-projection; the rotary key part enters neither.
        normed = shape.mla.q_lora_rank + shape.mla.kv_lora_rank
        pieces["latents"] = stream(width * (attention.latent + normed))
    if shape.qk_norm:
        pieces["query, key norm inputs"] = tokens * width * (attention.query + attention.key)
    keys = seq if shape.window is None else min(seq, shape.window)
    if not training.flash_attention:
        # Softmax output; with dropout also its mask (one byte) and its output: 5 a s^2 b.
        per_score = 2 * width + 1 if shape.dropout else width
        pieces["attention scores"] = tokens * attention.heads * keys * per_score
    elif not shape.dropout:
        # The paper's GPT count neglects this fp32 row statistic of fused attention.
        pieces["softmax statistics"] = tokens * attention.heads * 4
    if shape.dropout:
        pieces["dropout masks"] = stream(2 * hidden)
    pieces |= _feed_forward_pieces(shape, tokens, width, tp, stream(width * hidden))
    if shape.mtp:
        # Norm inputs of the hidden state and of the next token's embedding, and their join.
        pieces["next-token inputs"] = stream(width * 4 * hidden)
    return pieces


def _feed_forward_pieces(
    shape: BlockShape, tokens: int, width: int, tp: int, input_bytes: int
) -> dict[str, int]:
    """Inputs and hidden activations of the feed-forward part.

    GELU keeps its input and its output (2f); a gated unit keeps gate, up and their product (3f).
    """
    hidden_tensors = 3 if shape.gated else 2
    if shape.moe is None:
        ffn = -(-shape.ffn_hidden // tp)
        return {
            "feed-forward input": input_bytes,
            "feed-forward hidden": tokens * width * hidden_tensors * ffn,
        }
    moe = shape.moe
    routed = tokens * moe.experts_per_token
    pieces = {
        "feed-forward input": input_bytes,
        # fp32 logits and probabilities of every expert.
        "router": tokens * 8 * moe.experts,
        # Permuted copies that enter the experts, and outputs kept for the weighted sum.
        "expert inputs and outputs": 2 * routed * width * shape.hidden,
        "expert hidden": routed * width * hidden_tensors * -(-moe.expert_ffn_hidden // tp),
    }
    if moe.shared_ffn_hidden:
        shared = -(-moe.shared_ffn_hidden // tp)
        pieces["shared expert hidden"] = tokens * width * hidden_tensors * shared
    return pieces


_CORE_PIECES = ("attention scores", "softmax statistics")


def block_activations(
    shape: BlockShape, training: Training, tp: int, microbatch_size: int
) -> Activations:
    """Activation bytes of a transformer block and micro-batch on one rank.

    None, selective and full recompute of Korthikanti et al. 2022, equations 1 to 6: selective
    drops the attention core (which fused attention hardly keeps), full keeps the block's input,
    2 s b h in half precision, sharded by tp under sequence parallelism.
    """
    pieces = block_pieces(shape, training, tp, microbatch_size)
    kept = sum(pieces.values())
    core = sum(pieces.get(name, 0) for name in _CORE_PIECES)
    tokens = microbatch_size * training.sequence_length
    width = element_bytes(training.precision)
    full = boundary_bytes(shape.hidden, microbatch_size, training, tp)
    attention = attention_widths(shape, tp)
    # Gradients of the widest step. Fused attention accumulates dq in fp32; unfused attention
    # holds the scores (recomputed under selective) beside the gradients of both products.
    core_gradients = tokens * width * (attention.query + attention.key + attention.value)
    if training.flash_attention:
        core_gradients += tokens * 4 * attention.query
    else:
        keys = min(training.sequence_length, shape.window or training.sequence_length)
        core_gradients += core + 2 * tokens * width * attention.heads * keys
    hidden_gradients = pieces.get("expert hidden", pieces.get("feed-forward hidden", 0))
    if shape.moe is not None:
        hidden_gradients += pieces["expert inputs and outputs"] // 2
    # The gathered input and its whole gradient exist on every rank, sequence parallel or not.
    transient = max(core_gradients, hidden_gradients) + 2 * tokens * width * shape.hidden
    return Activations(kept, kept - core, full, transient, transient + kept, 0)


def embedding_activations(
    shape: EmbeddingShape, training: Training, tp: int, microbatch_size: int
) -> Activations:
    """Activation bytes of the embedding: 8-byte token ids and the dropout mask.

    Korthikanti et al. 2022, section 4.3 (input embedding); its output belongs to the first block.
    """
    tokens = microbatch_size * training.sequence_length
    shards = tp if training.sequence_parallel else 1
    kept = 8 * tokens + (-(-tokens * shape.hidden // shards) if shape.dropout else 0)
    transient = element_bytes(training.precision) * tokens * shape.hidden
    return Activations(kept, kept, kept, transient, transient, 0)


def head_activations(
    shape: HeadShape, training: Training, tp: int, microbatch_size: int
) -> Activations:
    """Activation bytes of the final norm, the output matrix and the loss.

    Inputs of norm and matrix 2 x 2 s b h, fp32 logits 4 s b V / t (Korthikanti et al. 2022,
    section 4.3), kept until the backward; their gradient, of the same size, is transient.
    """
    tokens = microbatch_size * training.sequence_length
    inputs = 2 * boundary_bytes(shape.hidden, microbatch_size, training, tp)
    logits = 4 * tokens * (padded_vocabulary(shape.vocab, tp) // tp)
    transient = logits + 2 * element_bytes(training.precision) * tokens * shape.hidden
    kept = inputs + logits
    return Activations(kept, kept, kept, transient, transient, logits)
