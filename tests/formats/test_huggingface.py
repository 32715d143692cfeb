"""config.json to layers: sizes of public models, families' quirks, and refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from planner.errors import ModelConfigError
from planner.formats.huggingface import known_families, read_config
from planner.specs import BlockShape, EmbeddingShape, HeadShape, Model, Precision


def parameters(model: Model, *, mtp: bool = False) -> int:
    """Parameters by the textbook, written independently of the planner's own count."""
    total = 0
    for layer in model.layers:
        shape = layer.shape
        if isinstance(shape, EmbeddingShape):
            total += (shape.vocab + shape.positions) * shape.hidden
        elif isinstance(shape, HeadShape):
            total += shape.hidden * (2 if shape.norm_bias else 1)
            total += 0 if shape.tied else shape.vocab * shape.hidden
        elif isinstance(shape, BlockShape) and (mtp or not shape.mtp):
            total += block_parameters(shape)
    return total


def block_parameters(shape: BlockShape) -> int:
    h = shape.hidden
    matrices = 3 if shape.gated else 2
    if shape.mla:
        mla = shape.mla
        wide = mla.qk_nope_head_dim + mla.qk_rope_head_dim
        q = mla.q_lora_rank
        total = q * (h + shape.heads * wide) if q else h * shape.heads * wide
        total += h * (mla.kv_lora_rank + mla.qk_rope_head_dim)
        total += mla.kv_lora_rank * shape.heads * (mla.qk_nope_head_dim + mla.v_head_dim)
        total += shape.heads * mla.v_head_dim * h
    else:
        total = 2 * h * (shape.heads + shape.kv_heads) * shape.head_dim
    if shape.moe:
        total += shape.moe.experts * (matrices * h * shape.moe.expert_ffn_hidden + h)
        total += matrices * h * shape.moe.shared_ffn_hidden
    else:
        total += matrices * h * shape.ffn_hidden
    if shape.qkv_bias:
        total += (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    if shape.linear_bias:
        total += 2 * h + shape.ffn_hidden
    if shape.mtp:
        total += 2 * h * h
    return total + shape.norms * h * (2 if shape.norm_bias else 1)


def gpt2(
    layers: int, hidden: int, heads: int, positions: int = 1024, **more: Any
) -> dict[str, Any]:
    return {
        "model_type": "gpt2", "n_layer": layers, "n_embd": hidden, "n_head": heads,
        "n_positions": positions, "vocab_size": 50257, **more,
    }  # fmt: skip


def llama(
    layers: int, hidden: int, ffn: int, heads: int, kv: int, vocab: int,
    model_type: str = "llama", **more: Any,
) -> dict[str, Any]:  # fmt: skip
    return {
        "model_type": model_type, "num_hidden_layers": layers, "hidden_size": hidden,
        "intermediate_size": ffn, "num_attention_heads": heads, "num_key_value_heads": kv,
        "vocab_size": vocab, "max_position_embeddings": 4096, "torch_dtype": "bfloat16", **more,
    }  # fmt: skip


def deepseek(model_type: str, layers: int, hidden: int, **more: Any) -> dict[str, Any]:
    return {
        "model_type": model_type, "num_hidden_layers": layers, "hidden_size": hidden,
        "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "max_position_embeddings": 163840, "moe_layer_freq": 1, **more,
    }  # fmt: skip


DEEPSEEK_V3 = deepseek(
    "deepseek_v3", 61, 7168, vocab_size=129280, intermediate_size=18432,
    moe_intermediate_size=2048, num_attention_heads=128, q_lora_rank=1536,
    first_k_dense_replace=3, n_routed_experts=256, n_shared_experts=1, num_experts_per_tok=8,
    num_nextn_predict_layers=1,
)  # fmt: skip

# Figures of the config.json files on the model pages, and the sizes those pages or the papers
# state: GPT-2 paper and model page; Llama 2 and 3 papers (exact sizes from their checkpoints);
# Mistral, Mixtral, Qwen, Gemma and DeepSeek reports; GPT-3 paper; BLOOM and GPT-NeoX papers.
PUBLIC = {
    "gpt2": (gpt2(12, 768, 12), 124.4e6),
    "gpt2-xl": (gpt2(48, 1600, 25), 1.558e9),
    "gpt3": (gpt2(96, 12288, 96, 2048), 174.6e9),
    "opt-6.7b": (
        {"model_type": "opt", "hidden_size": 4096, "num_hidden_layers": 32, "ffn_dim": 16384,
         "num_attention_heads": 32, "vocab_size": 50272, "max_position_embeddings": 2048,
         "word_embed_proj_dim": 4096, "dropout": 0.1}, 6.66e9),
    "bloom": (
        {"model_type": "bloom", "hidden_size": 14336, "n_layer": 70, "n_head": 112,
         "vocab_size": 250880}, 176.25e9),
    "gpt-neox-20b": (
        {"model_type": "gpt_neox", "hidden_size": 6144, "num_hidden_layers": 44,
         "num_attention_heads": 64, "intermediate_size": 24576, "vocab_size": 50432,
         "max_position_embeddings": 2048}, 20.55e9),
    "gpt-j-6b": (
        {"model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16, "vocab_size": 50400,
         "n_positions": 2048}, 6.05e9),
    "gpt-neo-2.7b": (
        {"model_type": "gpt_neo", "hidden_size": 2560, "num_layers": 32, "num_heads": 20,
         "vocab_size": 50257, "max_position_embeddings": 2048, "window_size": 256,
         "attention_types": [[["global", "local"], 16]]}, 2.651e9),
    "llama-2-7b": (llama(32, 4096, 11008, 32, 32, 32000), 6.738e9),
    "llama-3-8b": (llama(32, 4096, 14336, 32, 8, 128256), 8.030e9),
    "llama-3-70b": (llama(80, 8192, 28672, 64, 8, 128256), 70.55e9),
    "llama-3-405b": (llama(126, 16384, 53248, 128, 8, 128256), 405.85e9),
    "mistral-7b": (llama(32, 4096, 14336, 32, 8, 32000, "mistral", sliding_window=4096), 7.242e9),
    "qwen2-7b": (llama(28, 3584, 18944, 28, 4, 152064, "qwen2"), 7.616e9),
    "qwen3-32b": (llama(64, 5120, 25600, 64, 8, 151936, "qwen3", head_dim=128), 32.76e9),
    "qwen3-30b-a3b": (
        llama(48, 2048, 6144, 32, 4, 151936, "qwen3_moe", head_dim=128, num_experts=128,
              num_experts_per_tok=8, moe_intermediate_size=768), 30.53e9),
    "qwen1.5-moe-a2.7b": (
        llama(24, 2048, 5632, 16, 16, 151936, "qwen2_moe", num_experts=60, num_experts_per_tok=4,
              moe_intermediate_size=1408, shared_expert_intermediate_size=5632), 14.316e9),
    "gemma-7b": (llama(28, 3072, 24576, 16, 16, 256000, "gemma", head_dim=256), 8.538e9),
    "gemma-2-9b": (
        llama(42, 3584, 14336, 16, 8, 256000, "gemma2", head_dim=256, sliding_window=4096),
        9.242e9),
    "gemma-3-1b": (
        llama(26, 1152, 6912, 4, 1, 262144, "gemma3_text", head_dim=256, sliding_window=512),
        1.0e9),
    "phi-3-mini": (llama(32, 3072, 8192, 32, 32, 32064, "phi3", sliding_window=2047), 3.821e9),
    "mixtral-8x7b": (
        llama(32, 4096, 14336, 32, 8, 32000, "mixtral", num_local_experts=8,
              num_experts_per_tok=2), 46.70e9),
    "deepseek-v2-lite": (
        deepseek("deepseek_v2", 27, 2048, vocab_size=102400, intermediate_size=10944,
                 moe_intermediate_size=1408, num_attention_heads=16, q_lora_rank=None,
                 first_k_dense_replace=1, n_routed_experts=64, n_shared_experts=2,
                 num_experts_per_tok=6), 15.71e9),
    "deepseek-v3": (DEEPSEEK_V3, 671.0e9),
}  # fmt: skip


def read(config: dict[str, Any], **options: Any) -> Model:
    return read_config(json.dumps(config, indent=1), name="m", file="config.json", **options)


@pytest.mark.parametrize("name", PUBLIC)
def test_parameters_of_public_models(name: str) -> None:
    config, published = PUBLIC[name]
    assert parameters(read(config)) == pytest.approx(published, rel=0.005)


def test_every_family_has_a_public_model() -> None:
    assert {config["model_type"] for config, _ in PUBLIC.values()} == set(known_families())


def test_layers_form_a_chain() -> None:
    model = read(PUBLIC["llama-3-8b"][0])
    assert [layer.name for layer in model.layers][:2] == ["embedding", "block.0"]
    assert model.layers[-1].name == "head"
    assert len(model.layers) == 34
    assert model.layers[0].inputs == ()
    for before, layer in zip(model.layers, model.layers[1:], strict=False):
        assert layer.inputs == (before.name,)


def test_tied_embeddings_follow_the_file_then_the_family() -> None:
    tied = read(gpt2(2, 64, 2)).layers[-1]
    assert tied.tied_to == "embedding"
    assert isinstance(tied.shape, HeadShape)
    assert tied.shape.tied
    untied = read(gpt2(2, 64, 2, tie_word_embeddings=False)).layers[-1]
    assert untied.tied_to is None
    assert isinstance(untied.shape, HeadShape)
    assert not untied.shape.tied
    assert read(llama(2, 64, 128, 4, 4, 100)).layers[-1].tied_to is None
    assert read(llama(2, 64, 128, 4, 4, 100, tie_word_embeddings=True)).layers[-1].tied_to


def blocks(model: Model) -> list[BlockShape]:
    return [layer.shape for layer in model.layers if isinstance(layer.shape, BlockShape)]


def test_windows_by_family() -> None:
    assert [b.window for b in blocks(read(PUBLIC["mistral-7b"][0]))] == [4096] * 32
    gemma2 = [b.window for b in blocks(read(PUBLIC["gemma-2-9b"][0]))]
    assert gemma2[:4] == [4096, None, 4096, None]
    gemma3 = [b.window for b in blocks(read(PUBLIC["gemma-3-1b"][0]))]
    assert gemma3[:7] == [512] * 5 + [None, 512]
    neo = [b.window for b in blocks(read(PUBLIC["gpt-neo-2.7b"][0]))]
    assert neo[:3] == [None, 256, None]
    off = llama(4, 64, 128, 4, 4, 100, "qwen2", sliding_window=32, use_sliding_window=False)
    assert [b.window for b in blocks(read(off))] == [None] * 4
    on = {**off, "use_sliding_window": True, "max_window_layers": 3}
    assert [b.window for b in blocks(read(on))] == [None, None, None, 32]
    named = {**on, "layer_types": ["sliding_attention"] + ["full_attention"] * 3}
    assert [b.window for b in blocks(read(named))] == [32, None, None, None]


def test_experts_by_layer() -> None:
    v3 = read(DEEPSEEK_V3)
    kinds = [b.moe is not None for b in blocks(v3)]
    assert kinds == [False] * 3 + [True] * 58 + [True]
    assert [layer.name for layer in v3.layers[-2:]] == ["mtp.0", "head"]
    module = blocks(v3)[-1]
    assert module.mtp
    # The report counts 14B for the module with its copies of embedding and head, 1.85B of them.
    assert block_parameters(module) == pytest.approx(11.6e9, rel=0.01)
    sparse = {**PUBLIC["qwen3-30b-a3b"][0], "decoder_sparse_step": 2, "mlp_only_layers": [3]}
    assert [b.moe is not None for b in blocks(read(sparse))][:6] == [
        False, True, False, False, False, True,
    ]  # fmt: skip


def test_precision_and_sequence_length() -> None:
    silent = read(gpt2(2, 64, 2))
    assert silent.precision is Precision.BF16
    assert "bf16 is assumed" in silent.source
    old = read(gpt2(2, 64, 2, torch_dtype="float32"))
    assert old.precision is Precision.BF16
    assert "float32" in old.source
    half = read(gpt2(2, 64, 2, dtype="float16"))
    assert half.precision is Precision.FP16
    assert "assumed" not in half.source
    asked = read(gpt2(2, 64, 2), precision=Precision.FP32, sequence_length=77)
    assert asked.precision is Precision.FP32
    assert asked.sequence_length == 77
    assert silent.sequence_length == 1024


def test_dropout_follows_the_rates() -> None:
    assert blocks(read(gpt2(2, 64, 2, resid_pdrop=0.1)))[0].dropout
    assert not blocks(read(gpt2(2, 64, 2, resid_pdrop=0.0)))[0].dropout


def test_architecture_name_stands_in_for_the_model_type() -> None:
    config = {**DEEPSEEK_V3, "model_type": "derived", "architectures": ["DeepseekV3ForCausalLM"]}
    assert len(read(config).layers) == 64


def test_text_config_without_a_tower_is_read() -> None:
    inner = llama(2, 64, 128, 4, 4, 100, "gemma3_text", sliding_window=8)
    del inner["torch_dtype"]
    model = read({"model_type": "gemma3", "torch_dtype": "float16", "text_config": inner})
    assert len(blocks(model)) == 2
    assert model.precision is Precision.FP16


LLAMA = llama(2, 64, 128, 4, 2, 100)


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in LLAMA.items() if name != key}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "mamba"}, ["mamba", "does not know", "llama", "gpt2"]),
        ({"model_type": "qwen4"}, ["qwen4", "did you mean qwen"]),
        ({"hidden_size": 3}, ["no model_type"]),
        ({"model_type": 7}, ['"7"', "does not know"]),
        (without("num_hidden_layers"), ["num_hidden_layers", "is missing"]),
        ({**LLAMA, "hidden_size": -64}, ["hidden_size", '"-64"', "whole number from 1"]),
        ({**LLAMA, "hidden_size": 64.5}, ["hidden_size", '"64.5"']),
        ({**LLAMA, "hidden_size": "64"}, ["hidden_size", "whole number"]),
        ({**LLAMA, "hidden_size": True}, ["hidden_size", '"True"']),
        ({**LLAMA, "num_hidden_layers": 0}, ["num_hidden_layers", '"0"']),
        ({**LLAMA, "num_hidden_layers": 10**9}, ["num_hidden_layers", "to 10000"]),
        ({**LLAMA, "num_attention_heads": 5}, ["num_attention_heads", "hidden_size = 64"]),
        ({**LLAMA, "num_key_value_heads": 3}, ["num_key_value_heads", "divisor of 4"]),
        ({**LLAMA, "tie_word_embeddings": "yes"}, ["tie_word_embeddings", "true or false"]),
        ({**LLAMA, "torch_dtype": "int4"}, ["torch_dtype", "int4", "bfloat16"]),
        ({**LLAMA, "attention_dropout": 3}, ["attention_dropout", "0 to 1"]),
        ({**LLAMA, "architectures": ["LlamaForSequenceClassification"]}, ["Classification"]),
        ({**LLAMA, "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 8,
          "layer_types": ["full_attention"]}, ["layer_types", "each of 2 layers"]),
        ({**DEEPSEEK_V3, "num_experts_per_tok": 300}, ["num_experts_per_tok", "at most 256"]),
        ({**PUBLIC["opt-6.7b"][0], "word_embed_proj_dim": 512}, ["word_embed_proj_dim", "4096"]),
        ({"model_type": "llava", "vision_config": {}, "text_config": LLAMA},
         ["vision_config", "not supported yet", "text_config"]),
        ({**PUBLIC["gpt-neo-2.7b"][0], "attention_types": [["global", 3]]}, ["attention_types"]),
    ],
)  # fmt: skip
def test_bad_configs_are_refused_by_name(config: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ModelConfigError) as caught:
        read(config)
    message = str(caught.value)
    assert message.startswith("config.json")
    for word in words:
        assert word in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"model_type": "llama",\n "hidden_size" 64}', ["config.json:2", "not JSON", "column 16"]),
        ("", ["is empty"]),
        ("[1, 2]", ["holds a JSON list"]),
        ('{"a": 1, "a": 2}', ["key a", "given twice"]),
        ('{"a": NaN}', ["finite"]),
        ("[" * 200_000, ["nested too deeply"]),
        ('{"a": ' + "9" * 5000 + "}", ["too long"]),
        (" " * 2**21 + "{}", ["too large"]),
    ],
)
def test_texts_that_are_no_config(text: str, words: list[str]) -> None:
    with pytest.raises(ModelConfigError) as caught:
        read_config(text, name="m", file="config.json")
    for word in words:
        assert word in str(caught.value)


def test_the_line_of_a_bad_value_is_named() -> None:
    with pytest.raises(ModelConfigError) as caught:
        read({**LLAMA, "num_key_value_heads": 3})
    assert caught.value.line == 7
    assert caught.value.key == "num_key_value_heads"


def test_byte_order_mark_is_skipped() -> None:
    text = "\ufeff" + json.dumps(LLAMA)
    assert len(read_config(text, name="m", file="config.json").layers) == 4
