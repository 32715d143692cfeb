from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import FileFormatError, GraphError, InputError
from planner.formats.pipedream import read_graph
from planner.specs import Precision


def node(
    number: int,
    description: str = "ReLU(inplace)",
    forward: str = "1.500",
    backward: str = "2.500",
    activation: str = "64.000",
    parameter: str = "8.000",
    tail: str = "",
) -> str:
    return (
        f"node{number} -- {description} -- forward_compute_time={forward}, "
        f"backward_compute_time={backward}, activation_size={activation}, "
        f"parameter_size={parameter}{tail}"
    )


def edge(source: int, target: int) -> str:
    return f"\tnode{source} -- node{target}"


def text(*lines: str) -> str:
    return "\n".join(lines) + "\n"


def refuse(content: str, kind: type[InputError]) -> InputError:
    with pytest.raises(InputError) as caught:
        read_graph(None, content)
    assert type(caught.value) is kind
    assert caught.value.file == "<stdin>"
    return caught.value


def test_values_types_and_edges() -> None:
    content = text(
        node(1, "Input0", "0.000", "0.000", "4.0", "0.000"),
        node(2, "Conv2d(3, 64, kernel_size=(11, 11), bias=False)"),
        node(3, "EmuBidirLSTM(  (bidir): LSTM(1, 2)  (layer1): LSTM(1, 2))"),
        node(4, "__getitem__(0)", activation="[64.0; 32.0; 4.0]"),
        edge(1, 2),
        edge(2, 3),
        edge(3, 4),
        edge(1, 4),
    )
    model, warnings = read_graph(None, content, name="small")
    assert warnings == ()
    assert (model.name, model.precision) == ("small", Precision.FP32)
    assert [layer.type for layer in model.layers] == [
        "input",
        "conv2d",
        "emubidirlstm",
        "__getitem__",
    ]
    assert [layer.inputs for layer in model.layers] == [
        (),
        ("node1",),
        ("node2",),
        ("node1", "node3"),
    ]
    cost = model.layers[1].costs[0]
    assert (cost.forward_ms, cost.backward_ms) == (1.5, 2.5)
    assert (cost.parameter_bytes, cost.activation_bytes, cost.output_bytes) == (8, 64, 64)
    assert model.layers[3].costs[0].output_bytes == 100


def test_order_is_topological_with_the_least_number_first() -> None:
    content = text(
        *(node(number) for number in (10, 9, 2, 30, 1)),
        edge(30, 2),
        edge(10, 9),
        edge(1, 10),
        edge(1, 30),
    )
    model, _ = read_graph(None, content)
    assert [layer.name for layer in model.layers] == ["node1", "node10", "node9", "node30", "node2"]


def test_stage_numbers_are_not_used_and_loading_time_is_said() -> None:
    content = text(
        node(1, "Input", "635.902", "0.000", tail=" -- stage_id=0"),
        node(2, tail=" -- stage_id=1"),
        edge(1, 2),
    )
    model, warnings = read_graph(None, content)
    assert model.layers[1].pin_stage is None
    assert warnings[0].startswith("stage_id of 2 nodes not used")
    assert "node1 (Input) takes 635.9 ms" in warnings[1]
    assert model.layers[0].costs[0].forward_ms == 635.902


def test_crlf_a_byte_order_mark_and_blank_lines_change_nothing() -> None:
    content = text(node(1), node(2), edge(1, 2))
    dressed = "\ufeff" + content.replace("\n", "\r\n") + "\r\n"
    assert read_graph(None, dressed)[0].layers == read_graph(None, content)[0].layers


@pytest.mark.parametrize(
    ("lines", "kind", "line", "words"),
    [
        ((node(1), "nonsense"), FileFormatError, 2, "is neither a node nor an edge"),
        ((node(1), "a -- b"), FileFormatError, 2, "is neither a node nor an edge"),
        ((node(1, forward="fast"),), FileFormatError, 1, "column forward_compute_time"),
        ((node(1, forward="-1"),), FileFormatError, 1, "is negative"),
        ((node(1, backward="nan"),), FileFormatError, 1, "is not a number"),
        ((node(1, parameter="inf"),), FileFormatError, 1, "is infinite"),
        ((node(1, parameter=""),), FileFormatError, 1, "the cell is empty"),
        ((node(1, activation="[1.0; x]"),), FileFormatError, 1, "is not a number"),
        ((node(1, activation="[1.0; -2.0]"),), FileFormatError, 1, "is negative"),
        ((node(1, activation="1.5"),), FileFormatError, 1, "is not a whole number of bytes"),
        (
            ("node1 -- ReLU -- forward_compute_time=1.0, activation_size=1.0",),
            FileFormatError,
            1,
            "lacks backward_compute_time",
        ),
        ((node(1, tail=", ]x["),), FileFormatError, 1, "has unreadable fields"),
        ((node(1), node(1)), GraphError, 2, "is the node at line 1 too"),
        ((node(1), node(2), edge(1, 2), edge(1, 2)), GraphError, 4, "is the edge at line 3 too"),
        ((node(1), edge(1, 1)), GraphError, 2, "reads itself"),
        ((node(1), node(2), edge(1, 3)), GraphError, 3, "is no node of this file"),
        (
            (node(1), node(2), node(3), edge(1, 2), edge(2, 3), edge(3, 2)),
            GraphError,
            6,
            "cycle: node2 -> node3 -> node2",
        ),
        ((edge(1, 2),), FileFormatError, None, "has no nodes"),
        (("",), FileFormatError, None, "has no nodes"),
    ],
)
def test_refusals(lines: tuple[str, ...], kind: type[InputError], line: int, words: str) -> None:
    error = refuse(text(*lines), kind)
    assert error.line == line
    assert words in str(error)


def test_too_many_lines_are_refused_before_they_are_parsed() -> None:
    assert "200,000 lines" in str(refuse("x\n" * 200_001, FileFormatError))


def test_names_come_from_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "vgg16"
    folder.mkdir()
    for file, name in ((folder / "graph.txt", "vgg16"), (tmp_path / "gnmt_graph.txt", "gnmt")):
        file.write_text(text(node(1)))
        assert read_graph(file)[0].name == name
    with pytest.raises(FileFormatError, match="no such file"):
        read_graph(tmp_path / "none.txt")


def test_every_published_graph_parses_completely(shared_dir: Path) -> None:
    files = sorted((shared_dir / "data" / "profiles").glob("pipedream__*graph.txt"))
    assert len(files) >= 10
    for file in files:
        lines = file.read_text().splitlines()
        edges = sum(line.startswith("\t") for line in lines)
        model, _ = read_graph(file)
        assert len(model.layers) == sum(line.startswith("node") for line in lines)
        assert sum(len(layer.inputs) for layer in model.layers) == edges
        seen: set[str] = set()
        for layer in model.layers:
            assert seen.issuperset(layer.inputs)
            seen.add(layer.name)


def test_vgg16_has_the_published_number_of_parameters(shared_dir: Path) -> None:
    folder = shared_dir / "data" / "profiles"
    (file,) = folder.glob("pipedream__*_vgg16_graph.txt")
    model, _ = read_graph(file)
    # 138,357,544 fp32 parameters (Simonyan and Zisserman 2015, table 2, column D: 138 million;
    # exactly sum of k^2 c_in c_out + c_out over its 13 convolutions and 3 linear layers).
    total = sum(layer.costs[0].parameter_bytes for layer in model.layers)
    assert total == 4 * 138_357_544
