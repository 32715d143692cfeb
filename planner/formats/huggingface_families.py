"""How each model family spells its figures in config.json.

Key names, defaults and layer patterns are those of the families' configuration classes in
Hugging Face transformers (``configuration_*.py``); a key that those classes default is
optional here with the same default where the default is a rule (tied embeddings, head size),
and required where it is a size (a forgotten size must not become another model's).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from planner.formats.huggingface_reader import MAX_LAYERS, Architecture, ConfigReader
from planner.specs import BlockShape, MlaShape, MoeShape

__all__ = ["FAMILIES"]

# --- GPT-2 and its contemporaries -------------------------------------------------------------


def _gpt2(config: ConfigReader) -> Architecture:
    hidden = config.whole("n_embd", "hidden_size")
    heads_key = "n_head" if "n_head" in config.document else "num_attention_heads"
    heads, head_dim = config.head_split(
        hidden, hidden_key="n_embd", heads_key=heads_key, explicit=False
    )
    positions = config.whole("n_positions", "n_ctx", "max_position_embeddings")
    dropout = config.any_positive("resid_pdrop", "attn_pdrop", "embd_pdrop")
    block = BlockShape(
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        ffn_hidden=config.whole("n_inner", default=4 * hidden),
        gated=False,
        linear_bias=True,
        qkv_bias=True,
        norm_bias=True,
        dropout=dropout,
    )
    return Architecture(
        vocab=config.whole("vocab_size"),
        hidden=hidden,
        blocks=(block,) * config.num_layers("n_layer", "num_hidden_layers"),
        positions=positions,
        tied=config.flag("tie_word_embeddings", True),
        norm_bias=True,
        learned_positions=positions,
        dropout=dropout,
    )


def _gpt_neo(config: ConfigReader) -> Architecture:
    hidden = config.whole("hidden_size")
    heads, head_dim = config.head_split(
        hidden, hidden_key="hidden_size", heads_key="num_heads", explicit=False
    )
    positions = config.whole("max_position_embeddings")
    count = config.num_layers("num_layers")
    dropout = config.any_positive("resid_dropout", "attention_dropout", "embed_dropout")
    window = config.whole("window_size", default=256)
    # Local and global attention alternate; "attention_types" is [[[kinds...], repeats], ...].
    kinds: list[str] = []
    for entry in config.document.get("attention_types") or [[["global", "local"], -(-count // 2)]]:
        if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], list)
                and type(entry[1]) is int and 0 <= entry[1] <= MAX_LAYERS):  # fmt: skip
            raise config.error(
                "attention_types", "has an unknown form", expected='[[["global", "local"], 12]]'
            )
        kinds += [str(kind) for kind in entry[0]] * entry[1]
    if len(kinds) < count or any(kind not in ("global", "local") for kind in kinds):
        raise config.error(
            "attention_types",
            f"does not name global or local for each of {count} layers",
            expected='[[["global", "local"], 12]]',
        )
    blocks = tuple(
        BlockShape(
            hidden=hidden,
            heads=heads,
            kv_heads=heads,
            head_dim=head_dim,
            ffn_hidden=config.whole("intermediate_size", default=4 * hidden),
            gated=False,
            linear_bias=True,
            norm_bias=True,
            window=window if kind == "local" else None,
            dropout=dropout,
        )
        for kind in kinds[:count]
    )
    return Architecture(
        vocab=config.whole("vocab_size"),
        hidden=hidden,
        blocks=blocks,
        positions=positions,
        tied=config.flag("tie_word_embeddings", True),
        norm_bias=True,
        learned_positions=positions,
        dropout=dropout,
    )


def _gpt_neox(config: ConfigReader) -> Architecture:
    hidden = config.whole("hidden_size")
    heads, head_dim = config.head_split(
        hidden, hidden_key="hidden_size", heads_key="num_attention_heads", explicit=False
    )
    bias = config.flag("attention_bias", True)
    block = BlockShape(
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        ffn_hidden=config.whole("intermediate_size"),
        gated=False,
        linear_bias=True,
        qkv_bias=bias,
        norm_bias=True,
        dropout=config.any_positive("hidden_dropout", "attention_dropout"),
    )
    return Architecture(
        vocab=config.whole("vocab_size"),
        hidden=hidden,
        blocks=(block,) * config.num_layers("num_hidden_layers"),
        positions=config.whole("max_position_embeddings"),
        tied=config.flag("tie_word_embeddings", False),
        norm_bias=True,
    )


def _gptj(config: ConfigReader) -> Architecture:
    hidden = config.whole("n_embd")
    heads, head_dim = config.head_split(
        hidden, hidden_key="n_embd", heads_key="n_head", explicit=False
    )
    dropout = config.any_positive("resid_pdrop", "attn_pdrop", "embd_pdrop")
    block = BlockShape(
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        ffn_hidden=config.whole("n_inner", default=4 * hidden),
        gated=False,
        linear_bias=True,
        norm_bias=True,
        norms=1,  # attention and feed-forward read the same norm, in parallel
        dropout=dropout,
    )
    return Architecture(
        vocab=config.whole("vocab_size"),
        hidden=hidden,
        blocks=(block,) * config.num_layers("n_layer"),
        positions=config.whole("n_positions"),
        tied=config.flag("tie_word_embeddings", False),
        norm_bias=True,
        dropout=dropout,
    )


def _opt(config: ConfigReader) -> Architecture:
    hidden = config.whole("hidden_size")
    if config.whole("word_embed_proj_dim", default=hidden) != hidden:
        raise config.error(
            "word_embed_proj_dim",
            "differs from hidden_size; embeddings of another width are not supported yet",
            expected=str(hidden),
        )
    heads, head_dim = config.head_split(
        hidden, hidden_key="hidden_size", heads_key="num_attention_heads", explicit=False
    )
    bias = config.flag("enable_bias", True)
    positions = config.whole("max_position_embeddings")
    dropout = config.any_positive("dropout", "attention_dropout")
    block = BlockShape(
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        ffn_hidden=config.whole("ffn_dim"),
        gated=False,
        linear_bias=bias,
        qkv_bias=bias,
        norm_bias=True,
        dropout=dropout,
    )
    return Architecture(
        vocab=config.whole("vocab_size"),
        hidden=hidden,
        blocks=(block,) * config.num_layers("num_hidden_layers"),
        positions=positions,
        tied=config.flag("tie_word_embeddings", True),
        norm_bias=True,
        learned_positions=positions + 2,  # the table is offset by two rows
        dropout=dropout,
    )


def _bloom(config: ConfigReader) -> Architecture:
    hidden = config.whole("hidden_size", "n_embed")
    heads_key = "n_head" if "n_head" in config.document else "num_attention_heads"
    heads, head_dim = config.head_split(
        hidden, hidden_key="hidden_size", heads_key=heads_key, explicit=False
    )
    block = BlockShape(
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        ffn_hidden=4 * hidden,
        gated=False,
        linear_bias=True,
        qkv_bias=True,
        norm_bias=True,
        dropout=config.any_positive("hidden_dropout", "attention_dropout"),
    )
    return Architecture(
        vocab=config.whole("vocab_size"),
        hidden=hidden,
        blocks=(block,) * config.num_layers("n_layer", "num_hidden_layers"),
        positions=config.whole("seq_length", default=2048),
        tied=config.flag("tie_word_embeddings", True),
        norm_bias=True,
    )


# --- Llama and its descendants ----------------------------------------------------------------


@dataclass(frozen=True)
class _LlamaRules:
    """What sets a descendant of Llama apart."""

    tied: bool = False
    norms: int = 2
    qk_norm: bool = False
    qkv_bias: bool = False
    window: Callable[[ConfigReader, int], tuple[int | None, ...]] | None = None
    moe: Callable[[ConfigReader, int], tuple[MoeShape | None, ...]] | None = None


def _llama_like(rules: _LlamaRules) -> Callable[[ConfigReader], Architecture]:
    def read(config: ConfigReader) -> Architecture:
        hidden = config.whole("hidden_size")
        heads, head_dim = config.head_split(
            hidden, hidden_key="hidden_size", heads_key="num_attention_heads", explicit=True
        )
        count = config.num_layers("num_hidden_layers")
        windows = rules.window(config, count) if rules.window else (None,) * count
        experts = rules.moe(config, count) if rules.moe else (None,) * count
        base = BlockShape(
            hidden=hidden,
            heads=heads,
            kv_heads=config.kv_heads(heads),
            head_dim=head_dim,
            ffn_hidden=config.whole(
                "intermediate_size",
                *(["moe_intermediate_size"] if all(experts) else []),
            ),
            gated=True,
            linear_bias=config.flag("mlp_bias", False),
            qkv_bias=rules.qkv_bias or config.flag("attention_bias", False),
            norms=rules.norms,
            qk_norm=rules.qk_norm,
            dropout=config.any_positive("attention_dropout", "resid_pdrop", "embd_pdrop"),
        )
        return Architecture(
            vocab=config.whole("vocab_size"),
            hidden=hidden,
            blocks=_blocks(base, windows, experts),
            positions=config.whole("max_position_embeddings"),
            tied=config.flag("tie_word_embeddings", rules.tied),
            norm_bias=False,
        )

    return read


def _blocks(
    base: BlockShape,
    windows: tuple[int | None, ...],
    experts: tuple[MoeShape | None, ...],
) -> tuple[BlockShape, ...]:
    """One shape per layer; equal layers share one object, so 10,000 of them cost nothing."""
    made: dict[tuple[int | None, MoeShape | None], BlockShape] = {}
    blocks = []
    for key in zip(windows, experts, strict=True):
        if key not in made:
            made[key] = base.model_copy(update={"window": key[0], "moe": key[1]})
        blocks.append(made[key])
    return tuple(blocks)


def _layer_types(config: ConfigReader, count: int) -> list[bool] | None:
    """Whether each layer slides, from "layer_types" where the file has it."""
    kinds = config.document.get("layer_types")
    if kinds is None:
        return None
    good = isinstance(kinds, list) and len(kinds) == count
    if not good or any(kind not in ("full_attention", "sliding_attention") for kind in kinds):
        raise config.error(
            "layer_types",
            f"does not name full_attention or sliding_attention for each of {count} layers",
        )
    return [kind == "sliding_attention" for kind in kinds]


def _window_everywhere(config: ConfigReader, count: int) -> tuple[int | None, ...]:
    window = config.whole("sliding_window", default=0) or None
    return (window,) * count


def _window_qwen(config: ConfigReader, count: int) -> tuple[int | None, ...]:
    if not config.flag("use_sliding_window", False):
        return (None,) * count
    window = config.whole("sliding_window")
    slides = _layer_types(config, count)
    if slides is None:
        first = config.whole("max_window_layers", default=count, least=0)
        slides = [index >= first for index in range(count)]
    return tuple(window if slide else None for slide in slides)


def _window_gemma(pattern: int) -> Callable[[ConfigReader, int], tuple[int | None, ...]]:
    """Every ``pattern``-th layer attends to everything, the others slide."""

    def windows(config: ConfigReader, count: int) -> tuple[int | None, ...]:
        window = config.whole("sliding_window")
        slides = _layer_types(config, count)
        if slides is None:
            every = config.whole("sliding_window_pattern", default=pattern)
            slides = [(index + 1) % every != 0 for index in range(count)]
        return tuple(window if slide else None for slide in slides)

    return windows


def _experts_per_token(config: ConfigReader, experts: int) -> int:
    chosen = config.whole("num_experts_per_tok")
    if chosen > experts:
        raise config.error(
            "num_experts_per_tok",
            "is more than there are experts",
            expected=f"at most {experts}",
        )
    return chosen


def _moe_mixtral(config: ConfigReader, count: int) -> tuple[MoeShape | None, ...]:
    experts = config.whole("num_local_experts")
    shape = MoeShape(
        experts=experts,
        experts_per_token=_experts_per_token(config, experts),
        expert_ffn_hidden=config.whole("intermediate_size"),
    )
    return (shape,) * count


def _moe_qwen(config: ConfigReader, count: int) -> tuple[MoeShape | None, ...]:
    experts = config.whole("num_experts")
    shared = config.whole("shared_expert_intermediate_size", default=0, least=0)
    shape = MoeShape(
        experts=experts,
        experts_per_token=_experts_per_token(config, experts),
        expert_ffn_hidden=config.whole("moe_intermediate_size"),
        shared_experts=1 if shared else 0,
        shared_ffn_hidden=shared,
    )
    step = config.whole("decoder_sparse_step", default=1)
    dense = config.indices("mlp_only_layers")
    return tuple(
        shape if index not in dense and (index + 1) % step == 0 else None for index in range(count)
    )


# --- DeepSeek ---------------------------------------------------------------------------------


def _deepseek(config: ConfigReader) -> Architecture:
    hidden = config.whole("hidden_size")
    heads = config.whole("num_attention_heads")
    count = config.num_layers("num_hidden_layers")
    mla = MlaShape(
        q_lora_rank=config.whole("q_lora_rank", default=0, least=0),
        kv_lora_rank=config.whole("kv_lora_rank"),
        qk_nope_head_dim=config.whole("qk_nope_head_dim"),
        qk_rope_head_dim=config.whole("qk_rope_head_dim"),
        v_head_dim=config.whole("v_head_dim"),
    )
    moe = _moe_deepseek(config)
    dense_first = config.whole("first_k_dense_replace", default=0, least=0)
    every = config.whole("moe_layer_freq", default=1)
    experts = tuple(
        moe if index >= dense_first and index % every == 0 else None for index in range(count)
    )
    base = BlockShape(
        hidden=hidden,
        heads=heads,
        kv_heads=heads,  # the latent is expanded to every head in training
        head_dim=mla.qk_nope_head_dim + mla.qk_rope_head_dim,
        ffn_hidden=config.whole("intermediate_size"),
        gated=True,
        qkv_bias=config.flag("attention_bias", False),
        mla=mla,
        dropout=config.any_positive("attention_dropout"),
    )
    modules = config.whole("num_nextn_predict_layers", default=0, least=0, most=64)
    return Architecture(
        vocab=config.whole("vocab_size"),
        hidden=hidden,
        blocks=_blocks(base, (None,) * count, experts),
        positions=config.whole("max_position_embeddings"),
        tied=config.flag("tie_word_embeddings", False),
        norm_bias=False,
        prediction_modules=(base.model_copy(update={"moe": moe, "mtp": True}),) * modules,
    )


def _moe_deepseek(config: ConfigReader) -> MoeShape | None:
    experts = config.whole("n_routed_experts", default=0, least=0)
    if not experts:
        return None
    width = config.whole("moe_intermediate_size")
    shared = config.whole("n_shared_experts", default=0, least=0)
    return MoeShape(
        experts=experts,
        experts_per_token=_experts_per_token(config, experts),
        expert_ffn_hidden=width,
        shared_experts=shared,
        shared_ffn_hidden=shared * width,
    )


FAMILIES: dict[str, Callable[[ConfigReader], Architecture]] = {
    "gpt2": _gpt2,
    "gpt_neo": _gpt_neo,
    "gpt_neox": _gpt_neox,
    "gptj": _gptj,
    "opt": _opt,
    "bloom": _bloom,
    "llama": _llama_like(_LlamaRules()),
    "mistral": _llama_like(_LlamaRules(window=_window_everywhere)),
    "mixtral": _llama_like(_LlamaRules(window=_window_everywhere, moe=_moe_mixtral)),
    "phi3": _llama_like(_LlamaRules(window=_window_everywhere)),
    "qwen2": _llama_like(_LlamaRules(qkv_bias=True, window=_window_qwen)),
    "qwen2_moe": _llama_like(_LlamaRules(qkv_bias=True, window=_window_qwen, moe=_moe_qwen)),
    "qwen3": _llama_like(_LlamaRules(qk_norm=True, window=_window_qwen)),
    "qwen3_moe": _llama_like(_LlamaRules(qk_norm=True, window=_window_qwen, moe=_moe_qwen)),
    "gemma": _llama_like(_LlamaRules(tied=True)),
    "gemma2": _llama_like(_LlamaRules(tied=True, norms=4, window=_window_gemma(2))),
    "gemma3_text": _llama_like(
        _LlamaRules(tied=True, norms=4, qk_norm=True, window=_window_gemma(6))
    ),
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
}
