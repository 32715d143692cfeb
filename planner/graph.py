"""The layer graph: checks, and contraction at its cut points to a chain of blocks.

A pipeline cut must leave an ideal before it: a set of layers that holds the inputs of its
members. A *cut point* is an ideal that contains or is contained in every other ideal, so that it
is a place every pipeline could cut whatever it does elsewhere; it is a prefix of any topological
order. Between two cut points lies a block. Skip connections leave a chain as it is: they add no
ideals (only bytes to the cuts they cross).

A prefix is a cut point exactly when each of its layers precedes each layer after it; that is,
when every layer of the prefix without a consumer inside it feeds every later layer without an
input after the cut. Counting these edges makes contraction linear in layers and edges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from planner.errors import GraphError, InputError, PinError
from planner.formats.spelling import nearest
from planner.formats.topology import find_cycle
from planner.specs import Model

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["Chain", "check_layers", "contract", "layer_graph", "linearise"]


@dataclass(frozen=True)
class Chain:
    """A model as a chain of blocks, with the way back to its layers."""

    blocks: tuple[tuple[int, ...], ...]
    """Indices of the layers of each block, in topological order."""
    names: tuple[str, ...]
    """A printable name for each block: ``node3``, or ``node5..node12 (8 layers)``."""
    crossing: tuple[tuple[int, ...], ...]
    """For cut position p = 1..B-1 (index p-1): layers before it with a consumer behind it."""
    is_chain: bool
    """Every block is one layer, and each cut is crossed by the layer before it alone."""
    splittable: tuple[int, ...]
    """Blocks of several layers: a cut inside is possible, and not considered on the chain."""
    notes: tuple[str, ...]
    """Components, sources, sinks and contraction, said aloud."""
    linearised: bool = False
    """Cut in the order of the file (``linearise``); other orders have other cuts."""

    @property
    def covers_all_cuts(self) -> bool:
        """Whether every way to cut the graph into convex stages is a way to cut this chain."""
        return not self.splittable and not self.linearised


def check_layers(model: Model) -> list[tuple[int, ...]]:
    """Indices of the inputs of each layer, after refusing what is no graph in order.

    Raises
    ------
    GraphError
        A duplicate name, a layer that reads itself or reads one twice, an unknown input or tied
        layer, a trainable layer tied to a frozen one, a cycle, a layer listed before its input.
    PinError
        ``colocate_with`` names no other layer.

    Examples
    --------
    >>> from planner.specs import Layer, LayerCost
    >>> cost = LayerCost(forward_ms=1, backward_ms=2)
    >>> layers = (Layer(name="a", costs=(cost,)), Layer(name="b", inputs=("a",), costs=(cost,)))
    >>> check_layers(Model(name="two", layers=layers))
    [(), (0,)]
    """
    position: dict[str, int] = {}
    for index, layer in enumerate(model.layers):
        if layer.name in position:
            raise GraphError(
                f"is the name of layers {position[layer.name] + 1} and {index + 1} of {model.name}",
                value=layer.name,
                expected="unique layer names",
                fix="rename one of them",
            )
        position[layer.name] = index
    inputs: list[tuple[int, ...]] = []
    late: tuple[int, int] | None = None
    for index, layer in enumerate(model.layers):
        sources = []
        for name in layer.inputs:
            source = position.get(name)
            if source is None:
                raise _unknown(name, f"an input of layer {layer.name}", position, GraphError)
            if source == index:
                raise GraphError(
                    "reads itself", value=name, fix="remove the name from the layer's inputs"
                )
            if source in sources:
                raise GraphError(
                    f"is an input of layer {layer.name} twice", value=name, fix="name it once"
                )
            if source > index and late is None:
                late = (source, index)
            sources.append(source)
        inputs.append(tuple(sources))
        _check_reference(layer.tied_to, layer.name, "tied_to", position, GraphError)
        _check_reference(layer.colocate_with, layer.name, "with", position, PinError)
        if layer.tied_to and model.layers[position[layer.tied_to]].trainable != layer.trainable:
            raise _half_frozen(layer.name, layer.tied_to, layer.trainable)
    if late is not None:
        raise _out_of_order(model, inputs, late)
    return inputs


def _check_reference(
    name: str | None,
    layer: str,
    field: str,
    position: dict[str, int],
    kind: type[InputError],
) -> None:
    if name is None:
        return
    if name == layer:
        raise kind(f"is {field} itself", value=name, expected="another layer")
    if name not in position:
        raise _unknown(name, f"named by {field} of layer {layer}", position, kind)


def _half_frozen(layer: str, other: str, trainable: bool) -> GraphError:
    mine, theirs = ("trainable", "frozen") if trainable else ("frozen", "trainable")
    return GraphError(
        f"is {mine}, and tied_to {other}, which is {theirs}",
        value=layer,
        expected="tied layers that are both trainable or both frozen",
        fix=f"make both {theirs}, or remove tied_to",
    )


def _unknown(name: str, role: str, position: dict[str, int], kind: type[InputError]) -> InputError:
    similar = nearest(name, position)
    return kind(
        f"is {role}, and no layer has that name",
        value=name,
        expected="the name of a layer",
        fix=f"did you mean {similar}?" if similar else None,
    )


def _out_of_order(
    model: Model, inputs: Sequence[tuple[int, ...]], late: tuple[int, int]
) -> GraphError:
    names = [layer.name for layer in model.layers]
    cycle = find_cycle(inputs)
    if cycle:
        shown = [names[node] for node in (*cycle, cycle[0])]
        if len(shown) > 12:
            shown = [*shown[:6], "...", *shown[-5:]]
        return GraphError(
            f"the inputs form a cycle: {' -> '.join(shown)}",
            expected="a graph without cycles",
            fix="remove one of these inputs",
        )
    source, consumer = (names[index] for index in late)
    return GraphError(
        f"layer {consumer} is listed before its input {source}",
        expected="layers in topological order",
        fix=f"move {consumer} behind {source}",
    )


def layer_graph(model: Model) -> nx.DiGraph[str]:
    """The layers as a networkx graph: nodes by name with their ``index``, edges as data flows.

    Raises
    ------
    GraphError, PinError
        As ``check_layers``.
    """
    import networkx as nx

    check_layers(model)
    graph: nx.DiGraph[str] = nx.DiGraph(name=model.name)
    for index, layer in enumerate(model.layers):
        graph.add_node(layer.name, index=index)
    for layer in model.layers:
        graph.add_edges_from((source, layer.name) for source in layer.inputs)
    return graph


def contract(model: Model) -> Chain:
    """Cut the layer graph at all its cut points; O(layers + edges) beside the output.

    Raises
    ------
    GraphError, PinError
        As ``check_layers``.

    Examples
    --------
    >>> from planner.specs import Layer, LayerCost
    >>> cost = (LayerCost(forward_ms=1, backward_ms=2),)
    >>> def layer(name, *inputs): return Layer(name=name, inputs=inputs, costs=cost)
    >>> diamond = (layer("a"), layer("b", "a"), layer("c", "a"), layer("d", "b", "c"))
    >>> chain = contract(Model(name="diamond", layers=diamond))
    >>> chain.names, chain.crossing
    (('a', 'b..c (2 layers)', 'd'), ((0,), (1, 2)))
    """
    inputs = check_layers(model)
    names = [layer.name for layer in model.layers]
    count = len(names)
    if all(sources == ((index - 1,) if index else ()) for index, sources in enumerate(inputs)):
        return Chain(
            blocks=tuple((index,) for index in range(count)),
            names=tuple(names),
            crossing=tuple((index,) for index in range(count - 1)),
            is_chain=True,
            splittable=(),
            notes=(),
        )
    positions = _cut_points(inputs)
    borders = [0, *positions, count]
    blocks = tuple(tuple(range(start, end)) for start, end in pairwise(borders))
    block_names = tuple(_block_name(names, block) for block in blocks)
    crossing = _crossing(inputs, positions)
    splittable = tuple(index for index, block in enumerate(blocks) if len(block) > 1)
    return Chain(
        blocks=blocks,
        names=block_names,
        crossing=crossing,
        is_chain=not splittable
        and all(layers == (index,) for index, layers in enumerate(crossing)),
        splittable=splittable,
        notes=_notes(names, inputs, blocks, block_names, splittable),
    )


def linearise(model: Model) -> Chain:
    """The layers in the order of the file, to be cut anywhere.

    Every prefix of a topological order is an ideal, so each cut is legal, also inside the blocks
    that ``contract`` keeps whole. Cuts that interleave parallel branches differently are not
    seen: what is best here is a plan of the graph, not proven best.

    Raises
    ------
    GraphError, PinError
        As ``check_layers``.
    """
    inputs = check_layers(model)
    names = [layer.name for layer in model.layers]
    contracted = contract(model)
    if contracted.covers_all_cuts:
        return contracted
    return Chain(
        blocks=tuple((index,) for index in range(len(names))),
        names=tuple(names),
        crossing=_crossing(inputs, list(range(1, len(names)))),
        is_chain=False,
        splittable=(),
        notes=_notes(names, inputs, (), (), ()),
        linearised=True,
    )


def _block_name(names: Sequence[str], block: tuple[int, ...]) -> str:
    if len(block) == 1:
        return names[block[0]]
    return f"{names[block[0]]}..{names[block[-1]]} ({len(block)} layers)"


def _first_and_last_use(inputs: Sequence[tuple[int, ...]]) -> tuple[list[int], list[int]]:
    """First and last consumer of each layer; (count, -1) where it has none."""
    count = len(inputs)
    first, last = [count] * count, [-1] * count
    for layer, sources in enumerate(inputs):
        for source in sources:
            first[source] = min(first[source], layer)
            last[source] = layer
    return first, last


def _cut_points(inputs: Sequence[tuple[int, ...]]) -> list[int]:
    """Positions p with every layer before p an ancestor of every layer from p on.

    At p, an *end* is a layer u < p with no consumer before p, and a *start* is a layer w >= p
    with no input from p on. A path from an end to a start is one edge, so p is a cut point
    exactly when there are ends x starts edges between them. Each layer is an end, and each
    edge counts, for one interval of p: all three counts come from difference sums.
    """
    count = len(inputs)
    first_use, _ = _first_and_last_use(inputs)
    ends, starts, edges = ([0] * (count + 2) for _ in range(3))

    def add(change: list[int], low: int, high: int) -> None:
        """Count one for low <= p <= high."""
        if low <= high:
            change[low] += 1
            change[high + 1] -= 1

    for layer, sources in enumerate(inputs):
        last_input = max(sources, default=-1)
        add(ends, layer + 1, first_use[layer])
        add(starts, last_input + 1, layer)
        for source in sources:
            add(edges, last_input + 1, first_use[source])
    found = []
    num_ends = num_starts = num_edges = 0
    for position in range(count):
        num_ends += ends[position]
        num_starts += starts[position]
        num_edges += edges[position]
        if position and num_edges == num_ends * num_starts:
            found.append(position)
    return found


def _crossing(
    inputs: Sequence[tuple[int, ...]], positions: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
    _, last_use = _first_and_last_use(inputs)
    crossing = []
    alive: list[int] = []
    start = 0
    for position in positions:
        alive = [
            layer for layer in (*alive, *range(start, position)) if last_use[layer] >= position
        ]
        start = position
        crossing.append(tuple(alive))
    return tuple(crossing)


def _some(names: Sequence[str]) -> str:
    return (
        ", ".join(names) if len(names) <= 5 else f"{', '.join(names[:4])} and {len(names) - 4} more"
    )


def _components(inputs: Sequence[tuple[int, ...]]) -> Counter[int]:
    """Size of each weakly connected component, keyed by its first layer."""
    parent = list(range(len(inputs)))

    def root(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for layer, sources in enumerate(inputs):
        for source in sources:
            one, other = root(layer), root(source)
            parent[max(one, other)] = min(one, other)
    return Counter(root(layer) for layer in range(len(inputs)))


def _notes(
    names: Sequence[str],
    inputs: Sequence[tuple[int, ...]],
    blocks: Sequence[tuple[int, ...]],
    block_names: Sequence[str],
    splittable: Sequence[int],
) -> tuple[str, ...]:
    notes = []
    components = _components(inputs)
    if len(components) > 1:
        shown = [
            f"{names[first]} ({size} layer{'s' * (size > 1)})"
            for first, size in sorted(components.items())
        ]
        notes.append(
            f"{len(components)} components that exchange nothing, beginning at {_some(shown)}: "
            "no cut point lies between them, so they form one block"
        )
    _, last_use = _first_and_last_use(inputs)
    ends: list[tuple[str, Callable[[int], bool]]] = [
        ("sources", lambda layer: not inputs[layer]),
        ("sinks", lambda layer: last_use[layer] < 0),
    ]
    for kind, is_end in ends:
        found = [names[layer] for layer in range(len(names)) if is_end(layer)]
        if len(found) > 1:
            notes.append(f"{len(found)} {kind}: {_some(found)}")
    if splittable:
        largest = max(splittable, key=lambda index: len(blocks[index]))
        several = len(splittable) > 1
        notes.append(
            f"{len(names)} layers contracted at their cut points to a chain of {len(blocks)} "
            f"block{'s' * (len(blocks) > 1)}; {len(splittable)} block{'s' * several} "
            f"of several layers could have been cut inside (largest {block_names[largest]}): "
            "optimal means optimal over cuts between blocks"
        )
    return tuple(notes)
