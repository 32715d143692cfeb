"""Names shipped with the planner: all load, all state their sources, wrong ones are helped."""

from __future__ import annotations

import csv
import time
from pathlib import Path

import pytest
import yaml

from planner.errors import ClusterError, NotInCatalogError
from planner.formats import catalog
from planner.specs import Layer, Precision, Tier

ROOT = catalog.catalog_folder()
MODELS = [entry.name for entry in catalog.list_models()]
CLUSTERS = [entry.name for entry in catalog.list_clusters()]
DEVICES = [entry.name for entry in catalog.list_devices()]

WANTED_MODELS = {
    "gpt2-xl", "gpt3-175b", "mt-nlg-530b", "gpt-1t", "llama3-8b", "llama3-70b", "llama3-405b",
    "mistral-7b", "qwen3-32b", "gemma2-9b", "mixtral-8x7b", "deepseek-v3",
    "gpt-1.3b-v100-measured",
}  # fmt: skip
WANTED_CLUSTERS = {
    "dgx-v100-32gb", "dgx-a100-40gb", "dgx-a100-80gb", "dgx-h100", "dgx-h200", "dgx-b200",
    "gb200-nvl72", "l4-pcie-8",
}  # fmt: skip


def test_the_promised_names_are_there() -> None:
    assert set(MODELS) >= WANTED_MODELS
    assert set(CLUSTERS) >= WANTED_CLUSTERS


@pytest.mark.parametrize("name", MODELS)
def test_models_load_and_name_their_source(name: str) -> None:
    model = catalog.load_model(name)
    assert model.name == name
    assert len(model.source) > 20
    assert model.sequence_length
    assert model.layers[0].name == "embedding"
    assert model.layers[-1].name == "head"


@pytest.mark.parametrize("entries", ["list_models", "list_clusters", "list_devices"])
def test_listings_describe_every_entry(entries: str) -> None:
    listed = getattr(catalog, entries)()
    assert [entry.name for entry in listed] == sorted(entry.name for entry in listed)
    for entry in listed:
        assert len(entry.description) > 10
        assert len(entry.source) > 20


def test_sizes_in_names_are_those_of_papers() -> None:
    shapes = {
        "gpt3-175b": (96, 12288), "mt-nlg-530b": (105, 20480), "gpt-1t": (128, 25600),
        "llama3-405b": (126, 16384),
    }  # fmt: skip
    for name, (layers, hidden) in shapes.items():
        model = catalog.load_model(name)
        assert len(model.layers) == layers + 2
        shape = model.layers[1].shape
        assert shape is not None
        assert shape.hidden == hidden


def figures(document: dict[str, object], prefix: str = "") -> set[str]:
    """Dotted keys of everything that is a figure and needs a source."""
    found = set()
    for key, value in document.items():
        if key in ("name", "description", "sources", "gpu"):
            continue
        if key == "links" or prefix:
            assert isinstance(value, dict)
            for inner, entry in value.items():
                if isinstance(entry, dict):
                    found |= {f"{key}.{inner}.{leaf}" for leaf in entry}
                else:
                    found.add(f"{key}.{inner}")
        else:
            found.add(key)
    return found


@pytest.mark.parametrize("folder", ["clusters", "hardware"])
def test_every_figure_has_its_source(folder: str) -> None:
    files = sorted((ROOT / folder).glob("*.yaml"))
    assert len(files) >= 7
    for path in files:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert figures(document) == set(document["sources"]), path.name
        assert all(len(text) > 15 for text in document["sources"].values()), path.name


@pytest.mark.parametrize("name", DEVICES)
def test_devices_are_sane(name: str) -> None:
    device = catalog.load_device(name)
    assert device.name == name
    # Names state the marketing size in GB; what a process sees is a little under it in GiB.
    size = int(name.rsplit("-", 1)[1].removesuffix("gb"))
    assert 0.9 * size * 1e9 < device.memory_bytes < size * 2**30
    peak = device.peak(Precision.BF16)
    assert peak is not None
    assert peak > device.peak_flops[Precision.FP32]
    if Precision.FP8 in device.peak_flops:
        assert device.peak_flops[Precision.FP8] == pytest.approx(2 * peak, rel=0.01)
    assert device.calibration.source != "typical values; no run of this GPU was fitted"


@pytest.mark.parametrize("name", CLUSTERS)
def test_clusters_are_sane(name: str) -> None:
    cluster = catalog.load_cluster(name)
    assert cluster.name == name
    assert 0.9 < cluster.budget_bytes / cluster.gpu.memory_bytes < 0.99
    domain = cluster.link(Tier.DOMAIN).bandwidth_bytes_per_s
    assert domain > cluster.link(Tier.CLUSTER).bandwidth_bytes_per_s
    several = catalog.load_cluster(f"{name}:3")
    assert several.nodes == 3
    assert several.gpus_per_node == cluster.gpus_per_node


def test_published_rates() -> None:
    a100 = catalog.load_cluster("dgx-a100-80gb:128")
    assert a100.num_gpus == 1024
    assert a100.gpu.peak(Precision.BF16) == 312e12
    assert a100.link(Tier.DOMAIN).bandwidth_bytes_per_s == 300e9
    assert a100.link(Tier.CLUSTER).bandwidth_bytes_per_s == 25e9
    rack = catalog.load_cluster("gb200-nvl72")
    assert (rack.num_gpus, rack.nvlink_domain, rack.nodes_per_rack) == (72, 72, 18)


@pytest.mark.parametrize(
    ("load", "name", "hint"),
    [
        (catalog.load_model, "gpt3-157b", "gpt3-175b"),
        (catalog.load_model, "Llama3-8B", "llama3-8b"),
        (catalog.load_model, "../models/gpt2", None),
        (catalog.load_model, "", None),
        (catalog.load_cluster, "dgx-a100-80g:4", "dgx-a100-80gb"),
        (catalog.load_device, "h100", "h100-80gb"),
    ],
)
def test_unknown_names_get_suggestions(load, name: str, hint: str | None) -> None:
    with pytest.raises(NotInCatalogError) as caught:
        load(name)
    assert caught.value.expected
    if hint is not None:
        assert hint in (caught.value.fix or "")


@pytest.mark.parametrize("count", ["0", "-1", "x", "", "1.5", "4:4", "9" * 30, "²"])
def test_bad_node_counts(count: str) -> None:
    with pytest.raises(ClusterError, match="NODES"):
        catalog.load_cluster(f"dgx-h100:{count}")


def test_loading_is_quick() -> None:
    start = time.process_time()
    for _ in range(5):
        catalog.load_model("llama3-405b")
        catalog.load_cluster("dgx-h100:2048")
    assert time.process_time() - start < 1.0


# --- the measured profile ----------------------------------------------------------------------


def measured() -> dict[str, Layer]:
    return {layer.name: layer for layer in catalog.load_model("gpt-1.3b-v100-measured").layers}


def test_measured_profile_covers_degrees_and_microbatches() -> None:
    layers = measured()
    assert len(layers) == 26
    for layer in layers.values():
        keys = [(cost.tp, cost.microbatch_size) for cost in layer.costs]
        assert keys == [(tp, size) for tp in (1, 2, 4) for size in (1, 2, 4, 8)]
        assert all(cost.collectives_included == (cost.tp > 1) for cost in layer.costs)
    assert layers["head"].tied_to == "embedding"
    assert catalog.load_model("gpt-1.3b-v100-measured").precision is Precision.FP16
    # 1.3 billion parameters, the tied head counted once.
    total = sum(layer.costs[0].parameter_bytes for layer in layers.values()) / 2
    assert total - layers["head"].costs[0].parameter_bytes / 2 == pytest.approx(1.317e9, rel=0.01)


def test_measured_profile_adds_up_the_published_operators(shared_dir: Path) -> None:
    layers = measured()
    for row in range(12):
        tp, size = (1, 2, 4)[row // 4], (1, 2, 4, 8)[row % 4]
        path = (
            shared_dir / "data" / "profiles" / (f"SuperScaler__gpt_1_3B_mbs{size}_tp{tp}_algo0.csv")
        )
        with path.open(newline="", encoding="utf-8") as stream:
            operators = list(csv.DictReader(stream))
        parts = {"embedding": operators[:1], "block.7": operators[1:-2], "head": operators[-2:]}
        for name, part in parts.items():
            cost = layers[name].costs[row]
            assert (cost.tp, cost.microbatch_size) == (tp, size)
            total = {key: sum(float(entry[key]) for entry in part) for key in (
                "forward-compute", "backward-compute", "weights", "activations")}  # fmt: skip
            assert cost.forward_ms == pytest.approx(total["forward-compute"] / 1000)
            assert cost.backward_ms == pytest.approx(total["backward-compute"] / 1000)
            assert cost.parameter_bytes == pytest.approx(total["weights"] * 2**20)
            assert cost.activation_bytes == pytest.approx(total["activations"] * 2**20, abs=1)
            sent = 0 if name == "head" else size * 2048 * 2048 * 2
            assert cost.output_bytes == sent
