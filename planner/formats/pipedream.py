"""PipeDream ``graph.txt``: nodes with times and sizes, then edges.

A node line is ``nodeN -- description -- forward_compute_time=MS, backward_compute_time=MS,
activation_size=BYTES, parameter_size=BYTES`` with ``-- stage_id=K`` where an optimizer wrote the
file; an edge line is a tab and ``nodeA -- nodeB``. Sizes may be lists ``[a; b]`` (several
tensors), which add up. Format: msr-fiddle/pipedream, ``graph/graph.py`` (Narayanan et al.,
SOSP 2019); weights are fp32 and values are of the whole micro-batch on one GPU.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import partial
from pathlib import Path

from planner.errors import FileFormatError, GraphError, InputError
from planner.formats.profile_columns import Unit, milliseconds, parse_number, whole_bytes
from planner.formats.spelling import nearest
from planner.formats.text_files import read_text
from planner.formats.topology import find_cycle, topological_order
from planner.specs import Layer, LayerCost, Model, Precision
from planner.units import format_ms

__all__ = ["MAX_NODES", "read_graph"]

MAX_NODES = 200_000
"""Nodes and edges a file may have; larger files are refused before they are parsed."""

_NODE = re.compile(
    r"(?P<name>node(?P<number>[0-9]{1,9})) -- (?P<description>.*?) -- (?P<fields>.*)"
)
_EDGE = re.compile(r"(node[0-9]{1,9}) -- (node[0-9]{1,9})")
_FIELD = re.compile(r"([a-z_]+)=(\[[^\]]*\]|[^,\[\]]*?)(?:, | -- |$)")
_FIELDS = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")
_CLASS_NAME = re.compile(r"\w+")
_MS = Unit(0, "ms", Decimal(1))
_BYTES = Unit(0, "bytes", Decimal(1))


def read_graph(
    path: Path | None, text: str | None = None, *, name: str | None = None
) -> tuple[Model, tuple[str, ...]]:
    """Read a PipeDream profile.

    Layers are named ``nodeN``, typed by the class of their description in lower case (conv2d,
    relu, ...) and ordered topologically, the least number first among ready nodes. The
    activation size is both what is kept for the backward and what a cut sends.

    Parameters
    ----------
    path
        The file; None where ``text`` comes from standard input.
    text
        Its content, where the caller already has it.
    name
        Name of the model (default: the file's name without ``graph.txt``).

    Returns
    -------
    model, warnings
        Warnings are sentences for people: stage numbers not used, time of data loading.

    Raises
    ------
    FileFormatError
        A line that is neither a node nor an edge, a bad number, no nodes; with line and value.
    GraphError
        A node twice, an edge twice, to itself or to an unknown node, a cycle.

    Examples
    --------
    >>> sizes = "activation_size=[4.0; 4.0], parameter_size=8.000"
    >>> model, _ = read_graph(None, f'''node1 -- Input -- forward_compute_time=0.000, \\
    ... backward_compute_time=0.000, {sizes}
    ... node2 -- Linear(1, 2) -- forward_compute_time=1.500, backward_compute_time=3.000, {sizes}
    ... \\tnode1 -- node2
    ... ''')
    >>> model.layers[1].type, model.layers[1].inputs, model.layers[1].costs[0].output_bytes
    ('linear', ('node1',), 8)
    """
    file = "<stdin>" if path is None else str(path)
    if text is None:
        if path is None:
            raise FileFormatError("neither a path nor text was given")
        text = read_text(path)
    if text.count("\n") > MAX_NODES:
        raise FileFormatError(
            f"has more than {MAX_NODES:,} lines", file=file, expected="one line a node or edge"
        )
    nodes, edges = _parse(text.removeprefix("\ufeff"), file)
    names = list(nodes)
    inputs = _inputs(names, edges, file)
    numbers = [int(node.removeprefix("node")) for node in names]
    order = topological_order(inputs, numbers)
    if len(order) < len(names):
        cycle = [names[index] for index in find_cycle(inputs)]
        shown = [*cycle, cycle[0]] if len(cycle) <= 12 else [*cycle[:6], "...", cycle[0]]
        raise GraphError(
            f"the edges form a cycle: {' -> '.join(shown)}",
            file=file,
            line=edges[(cycle[-1], cycle[0])],
            expected="a graph without cycles",
            fix="remove one of these edges",
        )
    layers = []
    for index in order:
        kind, cost, _ = nodes[names[index]]
        sources = sorted(inputs[index], key=numbers.__getitem__)
        layers.append(
            Layer(
                name=names[index],
                type=kind,
                inputs=tuple(names[source] for source in sources),
                costs=(cost,),
            )
        )
    model = Model(
        name=name or _model_name(path),
        layers=tuple(layers),
        precision=Precision.FP32,
        source=f"PipeDream profile {'standard input' if path is None else path.name}",
    )
    return model, _warnings(model, sum(staged for _, _, staged in nodes.values()))


def _model_name(path: Path | None) -> str:
    if path is None:
        return "profile"
    stem = path.stem.removesuffix("graph").rstrip("_.-")
    return stem or path.resolve().parent.name or "profile"


def _warnings(model: Model, staged: int) -> tuple[str, ...]:
    warnings = []
    if staged:
        warnings.append(f"stage_id of {staged} nodes not used: stages are planned anew")
    for layer in model.layers:
        time_ms = (layer.costs[0].forward_ms or 0.0) + (layer.costs[0].backward_ms or 0.0)
        if layer.type == "input" and not layer.inputs and time_ms > 0:
            warnings.append(
                f"{layer.name} (Input) takes {format_ms(time_ms)}, the time of loading data; "
                "it counts as compute, write 0.000 where loading is overlapped"
            )
    return tuple(warnings)


def _parse(
    text: str, file: str
) -> tuple[dict[str, tuple[str, LayerCost, bool]], dict[tuple[str, str], int]]:
    """Nodes as (type, cost, has a stage_id) and edges with their line."""
    nodes: dict[str, tuple[str, LayerCost, bool]] = {}
    lines: dict[str, int] = {}
    edges: dict[tuple[str, str], int] = {}
    for line, raw in enumerate(text.split("\n"), 1):
        record = raw.rstrip("\r").rstrip(" ")
        if not record.strip():
            continue
        edge = _EDGE.fullmatch(record.strip())
        if edge is not None:
            pair = (edge.group(1), edge.group(2))
            if pair in edges:
                raise GraphError(
                    f"is the edge at line {edges[pair]} too",
                    file=file,
                    line=line,
                    value=record.strip(),
                    expected="each edge once",
                )
            edges[pair] = line
            continue
        node = _NODE.fullmatch(record)
        if node is None:
            raise FileFormatError(
                "is neither a node nor an edge",
                file=file,
                line=line,
                value=record.strip(),
                expected='"nodeN -- description -- forward_compute_time=..., '
                'backward_compute_time=..., activation_size=..., parameter_size=..." '
                'or a tab and "nodeA -- nodeB"',
            )
        name = node.group("name")
        if name in nodes:
            raise GraphError(
                f"is the node at line {lines[name]} too",
                file=file,
                line=line,
                value=name,
                expected="each node once",
                fix="give one of the two another number",
            )
        nodes[name] = _node(node, file, line)
        lines[name] = line
    if not nodes:
        raise FileFormatError("has no nodes", file=file, expected='lines that begin with "node"')
    return nodes, edges


def _node(match: re.Match[str], file: str, line: int) -> tuple[str, LayerCost, bool]:
    text = match.group("fields")
    fields: dict[str, str] = {}
    end = 0
    for field in _FIELD.finditer(text):
        if field.start() != end:
            break
        end = field.end()
        fields[field.group(1)] = field.group(2).strip()
    missing = [name for name in _FIELDS if name not in fields]
    if end != len(text) or missing:
        problem = f"lacks {missing[0]}" if missing else "has unreadable fields"
        raise FileFormatError(
            problem,
            file=file,
            line=line,
            value=match.group("name"),
            expected=f"{', '.join(f'{name}=...' for name in _FIELDS)}",
        )

    def numbers(column: str) -> Decimal:
        written = fields[column]
        refuse = partial(_refusal, file=file, line=line, column=column, value=written or None)
        listed = written.startswith("[")
        parts = written.strip("[]").split(";") if listed else [written]
        return sum((parse_number(part.strip(), refuse) for part in parts), Decimal(0))

    def size(column: str) -> int:
        refuse = partial(_refusal, file=file, line=line, column=column, value=fields[column])
        return whole_bytes(numbers(column), _BYTES, refuse)

    activation_bytes = size("activation_size")
    cost = LayerCost(
        forward_ms=milliseconds(numbers("forward_compute_time"), _MS),
        backward_ms=milliseconds(numbers("backward_compute_time"), _MS),
        parameter_bytes=size("parameter_size"),
        activation_bytes=activation_bytes,
        output_bytes=activation_bytes,
    )
    found = _CLASS_NAME.search(match.group("description"))
    kind = found.group().lower() if found else "layer"
    if re.fullmatch(r"input[0-9]+", kind):
        kind = "input"
    return kind, cost, "stage_id" in fields


def _refusal(problem: str, **details: object) -> InputError:
    return FileFormatError(problem, **details)  # type: ignore[arg-type]


def _inputs(names: list[str], edges: dict[tuple[str, str], int], file: str) -> list[list[int]]:
    position = {name: index for index, name in enumerate(names)}
    inputs: list[list[int]] = [[] for _ in names]
    for (source, target), line in edges.items():
        if source == target:
            raise GraphError(
                "reads itself", file=file, line=line, value=source, fix="remove the edge"
            )
        for node in (source, target):
            if node not in position:
                similar = nearest(node, position)
                raise GraphError(
                    "is no node of this file",
                    file=file,
                    line=line,
                    value=node,
                    expected="edges between the nodes above",
                    fix=f"did you mean {similar}?" if similar else None,
                )
        inputs[position[target]].append(position[source])
    return inputs
