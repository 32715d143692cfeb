"""A Hugging Face ``config.json`` to a chain of layers: embedding, blocks, head.

Only the figures that decide cost and memory are read, by family (``huggingface_families``);
everything else in the file is ignored. Weights are never opened, and no other library is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from planner.errors import ModelConfigError
from planner.formats.documents import parse_json
from planner.formats.huggingface_families import FAMILIES
from planner.formats.huggingface_reader import Architecture, ConfigReader
from planner.formats.plan_file import plain_problem
from planner.formats.spelling import did_you_mean
from planner.specs import EmbeddingShape, HeadShape, Layer, Model, Precision

__all__ = ["count_layers", "known_families", "model_from_mapping", "read_config"]

_PRECISION_OF_DTYPE = {
    "bfloat16": Precision.BF16,
    "float16": Precision.FP16,
    "half": Precision.FP16,
}
_OTHER_DTYPES = ("float32", "float", "float64", "auto", "float8_e4m3fn", "float8_e5m2")
_OTHER_HEADS = (
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMultipleChoice",
    "ForImageClassification",
)
_TOWERS = ("vision_config", "audio_config", "vision_tower", "mm_vision_tower", "visual")


def known_families() -> tuple[str, ...]:
    """Every ``model_type`` that can be read, sorted."""
    return tuple(sorted(FAMILIES))


def read_config(
    text: str,
    *,
    name: str,
    file: str,
    precision: Precision | None = None,
    sequence_length: int | None = None,
) -> Model:
    """Layers of the model a config.json describes.

    Parameters
    ----------
    text
        Content of the file.
    name
        Name of the model in reports.
    file
        Where the text came from, for error messages.
    precision
        Format of the weights in training; by default the file's, with bf16 where the file says
        float32 or nothing.
    sequence_length
        Overrides the context length of the file.

    Raises
    ------
    ModelConfigError
        Not JSON, no model, an unknown architecture, or figures that are missing or contradict.

    Examples
    --------
    >>> config = '''{"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12,
    ...              "vocab_size": 50257, "n_positions": 1024}'''
    >>> model = read_config(config, name="gpt2", file="config.json")
    >>> len(model.layers), model.layers[1].name, model.sequence_length
    (14, 'block.0', 1024)
    """
    document = parse_json(text, file=file, kind=ModelConfigError)
    return model_from_mapping(
        document,
        name=name,
        file=file,
        text=text,
        precision=precision,
        sequence_length=sequence_length,
    )


def model_from_mapping(
    document: dict[str, object],
    *,
    name: str,
    file: str,
    text: str = "",
    precision: Precision | None = None,
    sequence_length: int | None = None,
    source: str = "",
) -> Model:
    """As ``read_config``, from the parsed keys; ``text`` only serves to find line numbers."""
    document = _language_model(document, file)
    family = _family(document, file)
    config = ConfigReader(document, file=file, text=text)
    with _sizes_of(file):
        architecture = FAMILIES[family](config)
        if sequence_length is None:
            sequence_length = architecture.positions
        chosen, note = _precision(config, precision)
        described = source or f"architecture of {file} ({family})"
        return Model(
            name=name,
            layers=_chain(architecture),
            precision=chosen,
            sequence_length=sequence_length,
            source=f"{described}{note}",
        )


def count_layers(text: str) -> int:
    """How many layers ``read_config`` makes of a text, without making them.

    Raises
    ------
    ModelConfigError
        As ``read_config``.

    Examples
    --------
    >>> count_layers('{"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, '
    ...              '"vocab_size": 50257, "n_positions": 1024}')
    14
    """
    file = "config.json"
    document = _language_model(parse_json(text, file=file, kind=ModelConfigError), file)
    family = _family(document, file)
    with _sizes_of(file):
        architecture = FAMILIES[family](ConfigReader(document, file=file))
    return len(architecture.blocks) + len(architecture.prediction_modules) + 2


@contextmanager
def _sizes_of(file: str) -> Iterator[None]:
    """Sizes that no layer takes are errors of the file that gives them."""
    try:
        yield
    except ValidationError as error:
        raise ModelConfigError(
            f"gives sizes that no layer has: {plain_problem(error)}", file=file
        ) from None


def _language_model(document: dict[str, object], file: str) -> dict[str, object]:
    """The keys of the language model, which a wrapper holds as ``text_config``."""
    inner = document.get("text_config")
    if isinstance(inner, dict):
        for tower in _TOWERS:
            if document.get(tower) is not None:
                raise ModelConfigError(
                    "describes a model with a tower beside the language model, "
                    "which is not supported yet",
                    file=file,
                    key=tower,
                    fix="give its text_config as a file of its own to plan the language model",
                )
        # The wrapper's own values (dtype, tying) hold where the inner part says nothing.
        shared_keys = ("torch_dtype", "dtype", "tie_word_embeddings")
        wrapper: dict[str, object] = {key: document[key] for key in shared_keys if key in document}
        return {**wrapper, **inner}
    return document


def _family(document: dict[str, object], file: str) -> str:
    model_type = document.get("model_type")
    architectures = document.get("architectures")
    names = [str(entry) for entry in architectures] if isinstance(architectures, list) else []
    for entry in names:
        if entry.endswith(_OTHER_HEADS):
            raise ModelConfigError(
                "is not a language model's head",
                file=file,
                key="architectures",
                value=entry,
                expected="a causal language model, such as LlamaForCausalLM",
            )
    if isinstance(model_type, str) and model_type in FAMILIES:
        return model_type
    for entry in names:
        if entry in _FAMILY_OF_ARCHITECTURE:
            return _FAMILY_OF_ARCHITECTURE[entry]
    if model_type is None and not names:
        raise ModelConfigError(
            "has no model_type and no architectures, so it is not a model's config.json",
            file=file,
            expected=f"a model_type of {', '.join(known_families())}",
        )
    value = str(model_type) if model_type is not None else names[0]
    raise ModelConfigError(
        "is an architecture that the planner does not know",
        file=file,
        key="model_type" if model_type is not None else "architectures",
        value=value,
        expected=f"one of {', '.join(known_families())}",
        fix=did_you_mean(value, FAMILIES) or "or a profile CSV of its layers",
    )


_FAMILY_OF_ARCHITECTURE = {
    "GPT2LMHeadModel": "gpt2",
    "GPTNeoForCausalLM": "gpt_neo",
    "GPTNeoXForCausalLM": "gpt_neox",
    "GPTJForCausalLM": "gptj",
    "OPTForCausalLM": "opt",
    "BloomForCausalLM": "bloom",
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "MixtralForCausalLM": "mixtral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen2MoeForCausalLM": "qwen2_moe",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "GemmaForCausalLM": "gemma",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3_text",
    "Phi3ForCausalLM": "phi3",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
}


def _precision(config: ConfigReader, asked: Precision | None) -> tuple[Precision, str]:
    value = config.first("torch_dtype", "dtype")
    stored = str(value).removeprefix("torch.") if value is not None else None
    if stored is not None and stored not in _PRECISION_OF_DTYPE and stored not in _OTHER_DTYPES:
        known = [*_PRECISION_OF_DTYPE, *_OTHER_DTYPES]
        raise config.error(
            "torch_dtype" if "torch_dtype" in config.document else "dtype",
            "is not a known number format",
            expected=f"one of {', '.join(known)}",
        )
    if asked is not None:
        return asked, ""
    found = _PRECISION_OF_DTYPE.get(stored or "")
    if found is not None:
        return found, ""
    why = f"the file stores {stored}" if stored else "the file names no number format"
    return Precision.BF16, f"; {why}, training in bf16 is assumed"


def _chain(architecture: Architecture) -> tuple[Layer, ...]:
    """Embedding, blocks, prediction modules and head, each fed by the layer before it."""
    layers = [
        Layer(
            name="embedding",
            type="embedding",
            shape=EmbeddingShape(
                vocab=architecture.vocab,
                hidden=architecture.hidden,
                positions=architecture.learned_positions,
                dropout=architecture.dropout,
            ),
        )
    ]
    for index, block in enumerate(architecture.blocks):
        layers.append(
            Layer(name=f"block.{index}", type="block", inputs=(layers[-1].name,), shape=block)
        )
    for index, module in enumerate(architecture.prediction_modules):
        layers.append(
            Layer(name=f"mtp.{index}", type="block", inputs=(layers[-1].name,), shape=module)
        )
    layers.append(
        Layer(
            name="head",
            type="head",
            inputs=(layers[-1].name,),
            tied_to="embedding" if architecture.tied else None,
            shape=HeadShape(
                vocab=architecture.vocab,
                hidden=architecture.hidden,
                norm_bias=architecture.norm_bias,
                tied=architecture.tied,
            ),
        )
    )
    return tuple(layers)
