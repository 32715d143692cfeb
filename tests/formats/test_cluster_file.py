"""Cluster files: what they accept, and one clear message for each way they go wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from planner.errors import ClusterError, NotInCatalogError
from planner.formats.cluster_file import parse_cluster_text, read_cluster
from planner.specs import Origin, Precision, Tier

GPU = {
    "memory": "40GB", "memory_bandwidth": "1TB/s", "peak_flops": {"bf16": "100TFLOPS"},
}  # fmt: skip
GOOD: dict[str, Any] = {
    "name": "two-boxes",
    "nodes": 2,
    "gpus_per_node": 8,
    "gpu": "a100-80gb",
    "reserved_memory": "2GiB",
    "links": {
        "domain": {"bandwidth": "300GB/s", "latency": "3us"},
        "cluster": {"bandwidth": "200Gbit/s", "latency": "5us", "oversubscription": 2},
    },
    "price_per_gpu_hour": 1.5,
}


def parse(document: dict[str, Any]):
    return parse_cluster_text(yaml.safe_dump(document), file="mine.yaml")


def changed(**more: Any) -> dict[str, Any]:
    return {**GOOD, **more}


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in GOOD.items() if name != key}


def test_a_good_file() -> None:
    cluster = parse(GOOD)
    assert cluster.name == "two-boxes"
    assert cluster.num_gpus == 16
    assert cluster.nvlink_domain == 8
    assert cluster.reserved_bytes == 2 * 2**30
    assert cluster.price_per_gpu_hour == 1.5
    link = cluster.link(Tier.CLUSTER)
    assert link.bandwidth_bytes_per_s == 25e9
    assert link.latency_s == pytest.approx(5e-6)
    assert link.oversubscription == 2
    assert cluster.gpu.peak(Precision.BF16) == 312e12


def test_a_gpu_of_ones_own() -> None:
    gpu = {**GPU, "name": "mine", "calibration": {"gemm_efficiency": 0.5, "origin": "calibrated"}}
    device = parse(changed(gpu=gpu)).gpu
    assert device.name == "mine"
    assert device.memory_bytes == 40 * 10**9
    assert device.peak_flops == {Precision.BF16: 1e14}
    assert device.calibration.gemm_efficiency == 0.5
    assert device.calibration.origin is Origin.CALIBRATED


def test_files_by_path(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(yaml.safe_dump(without("name")), encoding="utf-8")
    assert read_cluster(str(path)).name == "lab"
    other = tmp_path / "lab.json"
    other.write_text(json.dumps(GOOD), encoding="utf-8")
    assert read_cluster(str(other)).digest() == read_cluster(str(path)).digest()


def test_names() -> None:
    assert read_cluster("dgx-a100-80gb:4").num_gpus == 32
    with pytest.raises(NotInCatalogError, match="did you mean"):
        read_cluster("dgx-a100-80gbb")


def test_domains_smaller_and_larger_than_a_node() -> None:
    assert parse(changed(nvlink_domain=2)).nvlink_domain == 2
    assert parse(changed(nvlink_domain=16)).nvlink_domain == 16


def test_only_the_wires_that_are_needed() -> None:
    domain = {"domain": GOOD["links"]["domain"]}
    assert parse(changed(nodes=1, links=domain)).num_gpus == 8
    assert parse(changed(nvlink_domain=16, links=domain)).num_gpus == 16
    racks = {"rack": GOOD["links"]["cluster"]}
    assert parse(changed(nodes_per_rack=2, links=racks)).num_gpus == 16
    with pytest.raises(ClusterError, match=r"links\.cluster is missing|key links\.cluster"):
        parse(changed(nodes_per_rack=1, links=racks))


@pytest.mark.parametrize(
    ("document", "key", "words"),
    [
        (changed(node=3), "node", ["not a known key", "did you mean node"]),
        (changed(gpus_per_nod=3), "gpus_per_nod", ["did you mean gpus_per_node"]),
        (without("nodes"), "nodes", ["is missing"]),
        (without("gpus_per_node"), "gpus_per_node", ["is missing"]),
        (without("gpu"), "gpu", ["is missing", "a100-80gb"]),
        (without("links"), "links", ["is missing"]),
        (changed(nodes=0), "nodes", ['"0"', "from 1"]),
        (changed(nodes=-4), "nodes", ['"-4"']),
        (changed(nodes=2.5), "nodes", ['"2.5"', "whole number"]),
        (changed(nodes="two"), "nodes", ['"two"']),
        (changed(nodes=True), "nodes", ['"True"']),
        (changed(nodes=10**12), "nodes", ["10000000"]),
        (changed(nodes=10**7), "nodes", ["80000000 GPUs"]),
        (changed(nvlink_domain=3), "nvlink_domain", ["gpus_per_node = 8"]),
        (changed(reserved_memory=4), "reserved_memory", ["no unit", "GiB"]),
        (changed(reserved_memory="4 gigs"), "reserved_memory", ["unknown unit"]),
        (changed(reserved_memory="80GiB"), "reserved_memory", ["leaves nothing", "79.15 GiB"]),
        (changed(reserved_memory=[1]), "reserved_memory", ["not a quantity"]),
        (changed(price_per_gpu_hour=-1), "price_per_gpu_hour", ['"-1"']),
        (changed(price_per_gpu_hour=float("nan")), "price_per_gpu_hour", ["nan"]),
        (changed(links={"domain": {"bandwidth": 300}}), "links.domain.bandwidth", ["no unit"]),
        (changed(links={"domain": {"bandwidth": "0GB/s"}}), "links.domain.bandwidth", ["zero"]),
        (changed(links={"domain": {"latency": "3us"}}), "links.domain.bandwidth", ["is missing"]),
        (changed(links={"domain": {"bandwidth": "3GB/s", "latency": 5}}), "links.domain.latency",
         ["no unit of time"]),
        (changed(links={"domain": {"bandwith": "3GB/s"}}), "links.domain.bandwith",
         ["did you mean bandwidth"]),
        (changed(links={"infiniband": {}}), "links.infiniband", ["one of domain"]),
        (changed(links={}), "links", ["is missing"]),
        (changed(links="fast"), "links", ["not a mapping"]),
        (changed(links={"domain": GOOD["links"]["domain"]}), "links.cluster", ["is missing"]),
        (changed(links={"cluster": {"bandwidth": "3GB/s", "oversubscription": 0.5}}),
         "links.cluster.oversubscription", ["number >= 1"]),
        (changed(gpu="a100-80g"), "gpu", ["a100-80gb", "did you mean"]),
        (changed(gpu=3), "gpu", ["catalog name"]),
        (changed(gpu={**GPU, "memory": 40}), "gpu.memory", ["no unit"]),
        (changed(gpu={**GPU, "memory": "0GiB"}), "gpu.memory", ["no memory"]),
        (changed(gpu={**GPU, "peak_flops": {"bf16": 312}}), "gpu.peak_flops.bf16", ["no unit"]),
        (changed(gpu={**GPU, "peak_flops": {"int8": "1TFLOPS"}}), "gpu.peak_flops.int8", ["fp32"]),
        (changed(gpu={**GPU, "peak_flops": {}}), "gpu.peak_flops", ["is missing"]),
        (changed(gpu={"memory": "1GiB"}), "gpu.memory_bandwidth", ["is missing"]),
        (changed(gpu={**GPU, "calibration": {"gemm_efficiency": 2}}),
         "gpu.calibration.gemm_efficiency", ["less than or equal to 1"]),
        (changed(gpu={**GPU, "calibration": {"gem_efficiency": 1}}),
         "gpu.calibration.gem_efficiency", ["did you mean gemm_efficiency"]),
        (changed(node_groups=[]), "node_groups", ["several groups", "not supported for now"]),
        (changed(sources=["x"]), "sources", ["not a mapping"]),
        (changed(name=""), "name", ["not text"]),
    ],
)  # fmt: skip
def test_bad_documents(document: dict[str, Any], key: str, words: list[str]) -> None:
    with pytest.raises(ClusterError) as caught:
        parse(document)
    message = str(caught.value)
    assert caught.value.key == key
    assert message.startswith(f"mine.yaml key {key}")
    for word in words:
        assert word in message
    assert "\n" not in message


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["is empty"]),
        ("# nothing here\n", ["is empty"]),
        ("just words", ["single str"]),
        ("- 1\n- 2\n", ["single list"]),
        ("nodes: 1\nnodes: 2\n", ["mine.yaml:2", "key nodes", "given twice"]),
        ("nodes: [1\n", ["mine.yaml:2", "not YAML"]),
        ("nodes: 1\n\tgpu: x\n", ["mine.yaml:2", "not YAML"]),
        ("1: 2\n", ["not a word"]),
        ("? [1, 2]\n: 3\n", ["not a word"]),
        ("nodes: !!python/object/apply:os.system ['true']\n", ["not YAML", "tag"]),
        ("nodes: 1\n---\nnodes: 2\n", ["not YAML"]),
        (BOMB, ["alias"]),
        ("a: &a\n  b: *a\n", ["alias"]),
        ("x: " + "[" * 50_000, ["mine.yaml"]),
        ("nodes: 1 # " + "x" * 2**20, ["too large"]),
        ("nodes: \x00", ["not YAML"]),
    ],
)
def test_bad_texts(text: str, words: list[str]) -> None:
    with pytest.raises(ClusterError) as caught:
        parse_cluster_text(text, file="mine.yaml")
    message = str(caught.value)
    assert message.startswith("mine.yaml")
    for word in words:
        assert word in message
    assert "\n" not in message


def test_bad_paths(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="no such file"):
        read_cluster(str(tmp_path / "gone.yaml"))
    with pytest.raises(ClusterError, match="is a folder"):
        read_cluster(f"{tmp_path}/")
    big = tmp_path / "big.yaml"
    big.write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(ClusterError, match="too large"):
        read_cluster(str(big))
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"name: caf\xe9\n")
    with pytest.raises(ClusterError, match="UTF-8"):
        read_cluster(str(latin))
    odd = tmp_path / "cluster.txt"
    odd.write_text("nodes: 1\n", encoding="utf-8")
    with pytest.raises(ClusterError):
        read_cluster(str(odd))


def test_a_file_without_a_known_ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mycluster").write_text("nodes: 1\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ClusterError, match=r"\.yaml or \.json"):
        read_cluster("mycluster")
