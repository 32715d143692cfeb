"""Names shipped with the planner: models, clusters and GPUs, each figure with its source.

The files live in ``profiles/`` of a checkout and in ``planner/_data`` of an installed wheel.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import planner.errors
from planner.errors import ClusterError, FileFormatError, NotInCatalogError
from planner.formats.cluster_schema import parse_cluster, parse_device
from planner.formats.documents import MAX_DOCUMENT_BYTES, parse_yaml, refuse_unknown_keys
from planner.formats.huggingface import model_from_mapping
from planner.formats.spelling import did_you_mean
from planner.formats.text_files import read_text
from planner.specs import Cluster, Device, Model, Precision

__all__ = [
    "CatalogEntry",
    "catalog_folder",
    "entry_text",
    "list_clusters",
    "list_devices",
    "list_models",
    "load_cluster",
    "load_device",
    "load_model",
]

_MODEL_KEYS = (
    "description", "source", "licence", "config", "profile", "precision", "sequence_length",
    "device", "sources",
)  # fmt: skip


class CatalogEntry(NamedTuple):
    """One shipped name."""

    name: str
    kind: str
    """model, profile (measured layers), cluster or gpu."""
    description: str
    source: str


@lru_cache(maxsize=1)
def catalog_folder() -> Path:
    """Where the shipped models, clusters and GPUs lie."""
    package = Path(planner.errors.__file__).resolve().parent
    for candidate in (package / "_data", package.parent / "profiles"):
        if (candidate / "models").is_dir():
            return candidate
    raise FileFormatError("is missing: the planner was installed without its catalog",
                          file=str(package / "_data"))  # fmt: skip


@lru_cache(maxsize=8)
def _names(folder: str) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (catalog_folder() / folder).glob("*.yaml")))


def _document(folder: str, name: str, what: str) -> tuple[dict[str, Any], str]:
    names = _names(folder)
    if name not in names:
        raise NotInCatalogError(
            f"is no {what} in the catalog",
            value=name,
            expected=f"one of {', '.join(names)}",
            fix=did_you_mean(name.lower(), names),
        )
    file = f"{name}.yaml"
    text = read_text(catalog_folder() / folder / file, limit=MAX_DOCUMENT_BYTES)
    return parse_yaml(text, file=f"{folder}/{file}", kind=FileFormatError), f"{folder}/{file}"


def entry_spec(name: str) -> Model | Cluster | Device:
    """A model, cluster (also ``name:nodes``) or GPU by name.

    Raises
    ------
    NotInCatalogError
        No entry of that name, or no such number of nodes.
    """
    try:
        return load_model(name)
    except NotInCatalogError:
        pass
    for load in (load_cluster, load_device):
        try:
            return load(name)
        except planner.errors.InputError:
            continue
    raise NotInCatalogError("is no model, cluster or GPU in the catalog", value=name)


def entry_text(name: str) -> str:
    """The shipped YAML of a model, cluster (also ``name:nodes``) or GPU, with its sources.

    The text of a cluster is a cluster file: written to a file, ``load_cluster`` of
    ``planner.formats.cluster_file`` reads it back.

    Raises
    ------
    NotInCatalogError
        No entry of that name.
    ClusterError
        The number of nodes is not a whole number >= 1.

    Examples
    --------
    >>> print(entry_text("dgx-a100-80gb:16").splitlines()[1])
    nodes: 16
    """
    for folder in ("models", "clusters", "hardware"):
        if name in _names(folder):
            return read_text(catalog_folder() / folder / f"{name}.yaml", limit=MAX_DOCUMENT_BYTES)
    base, colon, _ = name.partition(":")
    if not colon or base not in _names("clusters"):
        raise NotInCatalogError("is no model, cluster or GPU in the catalog", value=name)
    nodes = load_cluster(name).nodes
    text = read_text(catalog_folder() / "clusters" / f"{base}.yaml", limit=MAX_DOCUMENT_BYTES)
    return re.sub(r"^nodes: \d+$", f"nodes: {nodes}", text, count=1, flags=re.MULTILINE)


def load_model(name: str, *, precision: Precision | None = None) -> Model:
    """A model of the catalog.

    Parameters
    ----------
    name
        As ``list_models`` prints it.
    precision
        Format of the weights in training; default: the entry's.

    Raises
    ------
    NotInCatalogError
        With the nearest names.

    Examples
    --------
    >>> model = load_model("gpt3-175b")
    >>> len(model.layers), model.sequence_length
    (98, 2048)
    """
    document, file = _document("models", name, "model")
    refuse_unknown_keys(document, _MODEL_KEYS, file=file, kind=FileFormatError)
    own = document.get("precision")
    chosen = precision or (Precision(own) if own is not None else None)
    source = str(document["source"])
    if "config" in document:
        return model_from_mapping(
            document["config"],
            name=name,
            file=file,
            precision=chosen,
            sequence_length=document.get("sequence_length"),
            source=source,
        )
    from planner.formats.profile_csv import read_profile

    path = catalog_folder() / "models" / str(document["profile"])
    model, _warnings = read_profile(
        path, name=name, precision=Precision(own) if own is not None else Precision.BF16
    )
    return model.model_copy(update={"source": source})


def load_device(name: str) -> Device:
    """A GPU of the catalog.

    Examples
    --------
    >>> device = load_device("a100-80gb")
    >>> device.peak_flops["bf16"]
    312000000000000.0
    """
    document, file = _document("hardware", name, "GPU")
    return parse_device(document, file=file, name=name)


def load_cluster(name: str) -> Cluster:
    """A cluster of the catalog, as ``name`` or ``name:nodes``.

    Raises
    ------
    NotInCatalogError
        With the nearest names.
    ClusterError
        The number of nodes is not a whole number >= 1.

    Examples
    --------
    >>> cluster = load_cluster("dgx-a100-80gb:128")
    >>> cluster.num_gpus, cluster.name
    (1024, 'dgx-a100-80gb:128')
    """
    base, colon, count = name.partition(":")
    document, file = _document("clusters", base, "cluster")
    nodes = None
    if colon:
        digits = count.strip()
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 9 and int(digits) >= 1):
            raise ClusterError(
                "does not end in a number of nodes",
                value=name,
                expected=f"{base}:NODES with a whole number >= 1, as {base}:16",
            )
        nodes = int(digits)
    return parse_cluster(document, file=file, name=name, nodes=nodes, find_device=load_device)


def _list(folder: str, kind: str) -> tuple[CatalogEntry, ...]:
    entries = []
    for name in _names(folder):
        document, _file = _document(folder, name, kind)
        source = document.get("source")
        if source is None:
            source = "; ".join(dict.fromkeys(map(str, document.get("sources", {}).values())))
        entries.append(
            CatalogEntry(
                name=name,
                kind="profile" if "profile" in document else kind,
                description=str(document.get("description", "")),
                source=str(source),
            )
        )
    return tuple(entries)


def list_models() -> tuple[CatalogEntry, ...]:
    """Every model and measured profile, by name."""
    return _list("models", "model")


def list_clusters() -> tuple[CatalogEntry, ...]:
    """Every cluster, by name."""
    return _list("clusters", "cluster")


def list_devices() -> tuple[CatalogEntry, ...]:
    """Every GPU, by name."""
    return _list("hardware", "gpu")
