from __future__ import annotations

import subprocess
import sys
import time
from itertools import combinations, pairwise
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import GraphError, InputError, PinError
from planner.formats.pipedream import read_graph
from planner.formats.topology import find_cycle, topological_order
from planner.graph import Chain, contract, layer_graph
from planner.specs import Layer, LayerCost, Model

COST = (LayerCost(forward_ms=1, backward_ms=2),)


def model(*inputs: str, **fields: str) -> Model:
    """Layers a, b, c, ...; each argument holds the letters of its inputs."""
    layers = tuple(
        Layer(name=chr(97 + index), inputs=tuple(letters), costs=COST)
        for index, letters in enumerate(inputs)
    )
    if fields:
        layers = (*layers[:-1], layers[-1].model_copy(update=fields))
    return Model(name="letters", layers=layers)


def half_frozen(frozen: int) -> Model:
    """Two tied layers of which one is frozen."""
    made = model("", "a", tied_to="a")
    layers = list(made.layers)
    layers[frozen] = layers[frozen].model_copy(update={"trainable": False})
    return made.model_copy(update={"layers": tuple(layers)})


def numbered(inputs: list[tuple[int, ...]]) -> Model:
    return Model(
        name="numbers",
        layers=tuple(
            Layer(name=f"n{index}", inputs=tuple(f"n{source}" for source in sources), costs=COST)
            for index, sources in enumerate(inputs)
        ),
    )


def letters(chain: Chain) -> list[str]:
    return ["".join(chr(97 + layer) for layer in block) for block in chain.blocks]


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize("use", [layer_graph, contract])
@pytest.mark.parametrize(
    ("refused", "kind", "words"),
    [
        (model("", "b"), GraphError, ['"b"', "reads itself"]),
        (model("", "aa"), GraphError, ['"a"', "input of layer b twice"]),
        (model("", "z"), GraphError, ['"z"', "input of layer b", "no layer has that name"]),
        (model("", "c", ""), GraphError, ["b is listed before its input c", "move b behind c"]),
        (model("", "ad", "b", "c"), GraphError, ["cycle: b -> c -> d -> b"]),
        (model("b", "a"), GraphError, ["cycle: a -> b -> a"]),
        (model("", "a", tied_to="q"), GraphError, ['"q"', "tied_to of layer b"]),
        (model("", "a", tied_to="b"), GraphError, ['"b"', "tied_to itself"]),
        (half_frozen(0), GraphError, ['"b" is trainable', "tied_to a, which is frozen"]),
        (half_frozen(1), GraphError, ['"b" is frozen', "tied_to a, which is trainable"]),
        (model("", "a", colocate_with="q"), PinError, ['"q"', "with of layer b"]),
        (model("", "a", colocate_with="b"), PinError, ['"b"', "with itself"]),
        (model("", "a", name="a"), GraphError, ['"a"', "layers 1 and 2 of letters"]),
    ],
)
def test_what_is_no_graph_is_refused_by_name(
    use: object, refused: Model, kind: type[InputError], words: list[str]
) -> None:
    with pytest.raises(InputError) as caught:
        use(refused)  # type: ignore[operator]
    assert type(caught.value) is kind
    for word in words:
        assert word in str(caught.value)


def test_a_dangling_input_comes_with_the_nearest_name() -> None:
    layers = (
        Layer(name="embedding", costs=COST),
        Layer(name="head", inputs=("embeding",), costs=COST),
    )
    with pytest.raises(GraphError, match=r"did you mean embedding\?"):
        contract(Model(name="m", layers=layers))


def test_a_long_cycle_is_shortened() -> None:
    size = 100
    with pytest.raises(GraphError, match=r"n0 -> n1 .* \.\.\. .* n99 -> n0") as caught:
        contract(numbered([((index - 1) % size,) for index in range(size)]))
    assert len(str(caught.value)) < 250


# --- contraction: worked examples --------------------------------------------------------------


def test_a_chain_is_its_own_contraction() -> None:
    chain = contract(model("", "a", "b", "c"))
    assert chain == Chain(
        blocks=((0,), (1,), (2,), (3,)),
        names=("a", "b", "c", "d"),
        crossing=((0,), (1,), (2,)),
        is_chain=True,
        splittable=(),
        notes=(),
    )


def test_one_layer() -> None:
    chain = contract(model(""))
    assert (chain.blocks, chain.crossing, chain.is_chain) == (((0,),), (), True)


def test_a_skip_connection_adds_bytes_and_no_block() -> None:
    chain = contract(model("", "a", "ab"))
    assert letters(chain) == ["a", "b", "c"]
    assert chain.crossing == ((0,), (0, 1))
    assert not chain.is_chain
    assert chain.splittable == ()
    assert chain.notes == ()


def test_a_diamond_is_one_block_between_its_ends() -> None:
    chain = contract(model("", "a", "a", "bc", "d"))
    assert letters(chain) == ["a", "bc", "d", "e"]
    assert chain.names[1] == "b..c (2 layers)"
    assert chain.crossing == ((0,), (1, 2), (3,))
    assert chain.splittable == (1,)
    (note,) = chain.notes
    assert "5 layers contracted at their cut points to a chain of 4 blocks" in note
    assert "could have been cut inside" in note
    assert "b..c (2 layers)" in note


def test_two_layers_that_feed_two_layers_are_cut_between() -> None:
    # {a, b} holds or is held by every other ideal although a and b are incomparable.
    chain = contract(model("", "", "ab", "ab"))
    assert letters(chain) == ["ab", "cd"]
    assert chain.crossing == ((0, 1),)


def test_two_sources_joined_later_and_two_sinks_are_said() -> None:
    chain = contract(model("", "", "ab", "c", "c"))
    assert letters(chain) == ["ab", "c", "de"]
    assert "2 sources: a, b" in chain.notes
    assert "2 sinks: d, e" in chain.notes


def test_several_components_form_one_block_and_are_said() -> None:
    chain = contract(model("", "a", "", "c"))
    assert letters(chain) == ["abcd"]
    assert chain.splittable == (0,)
    assert not chain.is_chain
    assert any(
        note.startswith("2 components") and "a (2 layers), c (2 layers)" in note
        for note in chain.notes
    )


def test_a_u_net_keeps_every_layer_a_block() -> None:
    depth = 8
    inputs: list[tuple[int, ...]] = [()]
    inputs += [(index - 1,) for index in range(1, depth)]
    inputs += [
        (index - 1, 2 * depth - 1 - index) if 2 * depth - 1 - index != index - 1 else (index - 1,)
        for index in range(depth, 2 * depth)
    ]
    chain = contract(numbered(inputs))
    assert len(chain.blocks) == 2 * depth
    assert chain.splittable == ()
    assert chain.crossing[depth - 1] == tuple(range(depth))


# --- contraction: against the definition -------------------------------------------------------


@st.composite
def dags(draw: st.DrawFn, largest: int) -> list[tuple[int, ...]]:
    """Random graphs from sparse to dense, often with series structure."""
    count = draw(st.integers(1, largest))
    inputs = []
    for layer in range(count):
        shape = draw(st.integers(0, 3))
        if shape == 0 and layer:
            sources: tuple[int, ...] = (layer - 1,)
        elif shape == 1:
            sources = tuple(range(max(0, layer - draw(st.integers(0, 3))), layer))
        else:
            sources = tuple(source for source in range(layer) if draw(st.booleans()))
        inputs.append(sources)
    return inputs


def ideals(inputs: list[tuple[int, ...]]) -> list[frozenset[int]]:
    layers = range(len(inputs))
    return [
        frozenset(chosen)
        for size in range(len(inputs) + 1)
        for chosen in combinations(layers, size)
        if all(set(inputs[layer]) <= set(chosen) for layer in chosen)
    ]


def comparable_ideals(inputs: list[tuple[int, ...]]) -> list[frozenset[int]]:
    found = ideals(inputs)
    return [one for one in found if all(one <= other or other <= one for other in found)]


def check_chain(inputs: list[tuple[int, ...]], chain: Chain) -> None:
    """What holds of every contraction, recomputed from the edges."""
    count = len(inputs)
    assert [layer for block in chain.blocks for layer in block] == list(range(count))
    assert len(chain.names) == len(chain.blocks)
    assert len(chain.crossing) == len(chain.blocks) - 1
    before: set[int] = set()
    for block, crossing in zip(chain.blocks, chain.crossing, strict=False):
        before |= set(block)
        behind = [layer for layer in range(count) if layer not in before]
        producers = {source for layer in behind for source in inputs[layer]} & before
        assert crossing == tuple(sorted(producers))
    assert chain.splittable == tuple(i for i, block in enumerate(chain.blocks) if len(block) > 1)
    assert chain.is_chain == (inputs == [(i - 1,) if i else () for i in range(count)])


@given(dags(largest=8))
def test_cut_points_are_the_ideals_comparable_with_every_ideal(
    inputs: list[tuple[int, ...]],
) -> None:
    chain = contract(numbered(inputs))
    prefixes: list[frozenset[int]] = [frozenset()]
    for block in chain.blocks:
        prefixes.append(prefixes[-1] | set(block))
    assert prefixes == sorted(comparable_ideals(inputs), key=len)
    check_chain(inputs, chain)


def cut_points_by_closure(inputs: list[tuple[int, ...]]) -> list[int]:
    """Positions with every layer before an ancestor of every layer behind (transitive closure)."""
    ancestors: list[int] = []
    for sources in inputs:
        mask = 0
        for source in sources:
            mask |= ancestors[source] | 1 << source
        ancestors.append(mask)
    return [
        position
        for position in range(1, len(inputs))
        if all(mask & ((1 << position) - 1) == (1 << position) - 1 for mask in ancestors[position:])
    ]


def borders(chain: Chain) -> list[int]:
    return [block[0] for block in chain.blocks[1:]]


@given(dags(largest=30))
def test_cut_points_equal_those_of_the_transitive_closure(inputs: list[tuple[int, ...]]) -> None:
    chain = contract(numbered(inputs))
    assert borders(chain) == cut_points_by_closure(inputs)
    check_chain(inputs, chain)


@given(dags(largest=12), st.data())
def test_another_topological_order_gives_the_same_blocks(
    inputs: list[tuple[int, ...]], data: st.DataObject
) -> None:
    count = len(inputs)
    order = topological_order(inputs, data.draw(st.permutations(range(count))))
    place = {layer: index for index, layer in enumerate(order)}
    moved = [tuple(sorted(place[source] for source in inputs[layer])) for layer in order]
    one, other = contract(numbered(inputs)), contract(numbered(moved))
    back = [tuple(sorted(order[layer] for layer in block)) for block in other.blocks]
    assert list(one.blocks) == back


def test_every_pipedream_graph(shared_dir: Path) -> None:
    files = sorted((shared_dir / "data" / "profiles").glob("pipedream__*graph.txt"))
    assert len(files) >= 10
    for file in files:
        read, _ = read_graph(file)
        place = {layer.name: index for index, layer in enumerate(read.layers)}
        inputs = [tuple(place[name] for name in layer.inputs) for layer in read.layers]
        chain = contract(read)
        assert borders(chain) == cut_points_by_closure(inputs), file.name
        check_chain(inputs, chain)


@pytest.mark.parametrize(
    ("name", "layers", "blocks"),
    # Layers counted in the files. AlexNet and VGG-16 keep every layer (skip edges around Size).
    [("alexnet", 23, 23), ("vgg16", 41, 41), ("resnet50", 177, 141), ("nasnetalarge", 1251, 4)],
)
def test_blocks_of_known_graphs(shared_dir: Path, name: str, layers: int, blocks: int) -> None:
    folder = shared_dir / "data" / "profiles"
    (file,) = folder.glob(f"pipedream__*classification_profiles_{name}_graph.txt")
    read, _ = read_graph(file)
    assert (len(read.layers), len(contract(read).blocks)) == (layers, blocks)


# --- scale and imports -------------------------------------------------------------------------


def test_twenty_thousand_layers_take_under_a_second() -> None:
    count = 20_000
    wide = [tuple({max(0, i - 1), max(0, i - 7)} - {i}) for i in range(count)]
    broken = [
        tuple(s for s in (index - 2, index - 3) if s >= 0) if index % 1000 else ((index - 1,))
        for index in range(count)
    ]
    broken[0] = ()
    for inputs in (wide, broken, [(i - 1,) if i else () for i in range(count)]):
        made = numbered([tuple(sources) for sources in inputs])
        start = time.process_time()
        chain = contract(made)
        assert time.process_time() - start < 1.0
        assert sum(map(len, chain.blocks)) == count


def test_contraction_imports_no_networkx() -> None:
    code = (
        "import sys\n"
        "from planner.graph import contract\n"
        "from planner.specs import Layer, LayerCost, Model\n"
        "cost = (LayerCost(forward_ms=1, backward_ms=2),)\n"
        "one = Layer(name='a', costs=cost)\n"
        "two = Layer(name='b', inputs=('a',), costs=cost)\n"
        "assert contract(Model(name='m', layers=(one, two))).is_chain\n"
        "print('networkx' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# --- the networkx graph and the order ----------------------------------------------------------


@given(dags(largest=12))
def test_the_layer_graph_has_the_models_edges(inputs: list[tuple[int, ...]]) -> None:
    graph = layer_graph(numbered(inputs))
    edges = {(f"n{s}", f"n{layer}") for layer, sources in enumerate(inputs) for s in sources}
    assert set(graph.edges) == edges
    assert [graph.nodes[name]["index"] for name in graph] == list(range(len(inputs)))
    assert nx.is_directed_acyclic_graph(graph)


@given(st.integers(1, 9), st.data())
def test_orders_and_cycles_agree_with_networkx(count: int, data: st.DataObject) -> None:
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    edges = data.draw(st.sets(pairs.filter(lambda pair: pair[0] != pair[1])))
    inputs = [sorted(s for s, target in edges if target == node) for node in range(count)]
    graph = nx.DiGraph(sorted(edges))
    graph.add_nodes_from(range(count))
    cycle = find_cycle(inputs)
    if nx.is_directed_acyclic_graph(graph):
        assert cycle == ()
        assert topological_order(inputs) == list(nx.lexicographical_topological_sort(graph))
    else:
        assert len(set(cycle)) == len(cycle) >= 2
        assert all(pair in edges for pair in pairwise((*cycle, cycle[0])))
