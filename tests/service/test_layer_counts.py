"""The front counts layers, not spellings: as many as the reader of the format would make."""

from __future__ import annotations

import json

import pytest
from rpcs import CSV

from planner.messages.inputs import model_of
from planner.service import errors
from planner.service.canonical import check_limits
from planner.service.layer_counts import layers_sent
from planner.service.settings import ServiceSettings
from planner.v1 import inputs_pb2
from planner.v1 import planner_service_pb2 as pb

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 40, "vocab_size": 256,
    "num_attention_heads": 4, "intermediate_size": 128, "max_position_embeddings": 64,
}  # fmt: skip
DEEPSEEK = CONFIG | {
    "model_type": "deepseek_v3", "num_key_value_heads": 4, "q_lora_rank": 8, "kv_lora_rank": 8,
    "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_shared_experts": 1,
    "first_k_dense_replace": 1, "num_nextn_predict_layers": 3,
}  # fmt: skip
HEADER = CSV.partition("\n")[0]
TIMES = ("forward_compute_time=1, backward_compute_time=2, "
         "activation_size=4, parameter_size=4")  # fmt: skip


def model_json(count: int) -> str:
    layers = [
        {"name": f"l{i}", "costs": [{"forward_ms": 1, "backward_ms": 2}, {"tp": 2}]}
        for i in range(count)
    ]
    return json.dumps({"name": "m", "source": 'the "name": of it', "layers": layers})


def graph(count: int) -> str:
    nodes = [f"node{i} -- Linear(1, 2) -- {TIMES}" for i in range(count)]
    edges = [f"\tnode{i} -- node{i + 1}" for i in range(count - 1)]
    return "\n".join(nodes + edges)


def profile(count: int) -> str:
    """Two rows a layer, and a column before the name."""
    rows = [f"{m},l{i},1,2,4,4,4" for i in range(count) for m in (1, 2)]
    return "\n".join([f"microbatch_size,{HEADER}", *rows])


def respelled(text: str) -> dict[str, str]:
    return {
        "plain": text,
        "spaced": text.replace('"name":', '"name" :'),
        "broken": text.replace('"name":', '"name"\n\t:'),
        "escaped": text.replace('"name":', '"n\\u0061me":'),
        "some escaped": text.replace('"name":', '"n\\u0061me":', 20),
    }


def source(kind: int, text: str) -> inputs_pb2.ModelSource:
    return inputs_pb2.ModelSource(text=inputs_pb2.ModelText(format=kind, text=text, name="m"))  # type: ignore[arg-type]


CASES = {
    **{
        f"JSON, {name}": source(inputs_pb2.MODEL_FORMAT_MODEL_JSON, text)
        for name, text in respelled(model_json(40)).items()
    },
    "config": source(inputs_pb2.MODEL_FORMAT_CONFIG_JSON, json.dumps(CONFIG)),
    "config inside a wrapper": source(
        inputs_pb2.MODEL_FORMAT_CONFIG_JSON, json.dumps({"text_config": CONFIG})
    ),
    "config with prediction modules": source(
        inputs_pb2.MODEL_FORMAT_CONFIG_JSON, json.dumps(DEEPSEEK)
    ),
    "graph": source(inputs_pb2.MODEL_FORMAT_PIPEDREAM_GRAPH, graph(40)),
    "profile": source(inputs_pb2.MODEL_FORMAT_PROFILE_CSV, profile(40)),
    "profile of another system": source(
        inputs_pb2.MODEL_FORMAT_PROFILE_CSV, profile(40).replace("\n", "\r")
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_as_many_layers_are_counted_as_are_made(name: str) -> None:
    made = len(model_of(CASES[name])[0].layers)
    assert layers_sent(CASES[name], 39) >= 40
    request = pb.PutModelRequest(model=CASES[name])
    check_limits(request, ServiceSettings(max_layers=made))
    with pytest.raises(errors.ServiceError, match=f"max_layers of {made - 1}") as caught:
        check_limits(request, ServiceSettings(max_layers=made - 1))
    assert caught.value.failure.reason == "LIMIT_EXCEEDED"


def test_nine_thousand_blocks_are_no_thousand_layers() -> None:
    text = json.dumps(CONFIG | {"num_hidden_layers": 9000})
    request = pb.PutModelRequest(model=source(inputs_pb2.MODEL_FORMAT_CONFIG_JSON, text))
    with pytest.raises(errors.ServiceError, match="9002 is more than"):
        check_limits(request, ServiceSettings(max_layers=1000))


@pytest.mark.parametrize("kind", [0, 1, 2, 3, 4, 99])
@pytest.mark.parametrize("text", ["", "{", "[" * 10**5, '{"layers": 3}', "9" * 5000, "\\u00"])
def test_what_no_reader_takes_has_no_layers(kind: int, text: str) -> None:
    assert layers_sent(source(kind, text), 0) == 0


@pytest.mark.parametrize(
    ("kind", "text", "at_least"),
    [
        (inputs_pb2.MODEL_FORMAT_PROFILE_CSV, HEADER + "\n" + "x,1\n" * 10**6, 1),
        # Counting may end where it is too many.
        (inputs_pb2.MODEL_FORMAT_PROFILE_CSV, HEADER + "\n" + "x,1\ny,1\n" * (10**6 // 2), 20_001),
        (inputs_pb2.MODEL_FORMAT_MODEL_JSON, '{"name" : 1, "layers": ' + '{"name" :' * 10**6,
         10**6),
        (inputs_pb2.MODEL_FORMAT_MODEL_JSON, '{"n\\u0061me" : "m", "layers": ['
         + '{"n\\u0061me":{}},' * (10**6 // 2) + "{}]}", 10**6 // 2),
        (inputs_pb2.MODEL_FORMAT_PIPEDREAM_GRAPH, "node1 -- a -- b\n" * 10**6, 0),
    ],
)  # fmt: skip
def test_a_million_layers_are_counted(kind: int, text: str, at_least: int) -> None:
    assert layers_sent(source(kind, text), 20_000) >= at_least
