"""Any model a caller may name: a file of a known kind, standard input, a folder, a catalog name."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from typing import TextIO

from planner.errors import FileFormatError, NotInCatalogError
from planner.formats.spelling import nearest
from planner.formats.text_files import read_stream, read_text
from planner.specs import Model, Precision

__all__ = ["parse_model", "read_model", "sniff"]

_LOOKS_LIKE_A_FILE = re.compile(r"[/\\]|\.[A-Za-z]{1,6}$|^[~.]")
_KINDS = {".csv": "profile", ".json": "config"}


def sniff(text: str) -> str:
    """Kind of a text by its first characters: ``config``, ``pipedream`` or ``profile``.

    Examples
    --------
    >>> sniff('{"model_type": "llama"}'), sniff("node1 -- Input -- "), sniff("name,type")
    ('config', 'pipedream', 'profile')
    """
    start = text[:4096].lstrip("\ufeff \t\r\n")
    if start.startswith(("{", "[")):
        return "config"
    return "pipedream" if re.match(r"node\d+ -- ", start) else "profile"


def read_model(
    source: str,
    *,
    stdin: TextIO | None = None,
    precision: Precision | None = None,
    sequence_length: int | None = None,
) -> tuple[Model, tuple[str, ...]]:
    """Read a model from wherever ``source`` points.

    Parameters
    ----------
    source
        ``-`` for standard input; a profile CSV, a Hugging Face ``config.json`` or a folder that
        holds one, a PipeDream ``graph.txt``; else the name of a catalog model.
    stdin
        The stream that ``-`` reads.
    precision
        Format of the weights (default: the model's own; bf16 for a profile CSV, fp32 for
        PipeDream files).
    sequence_length
        Replaces the context length of a model priced by formulas; profiles keep their own.

    Returns
    -------
    model, warnings

    Raises
    ------
    FileFormatError
        No such file, a folder without config.json, unreadable, empty, of no known kind.
    NotInCatalogError
        Neither a file nor a catalog name; names the nearest.
    ProfileError, GraphError, ModelConfigError
        What the reader of the file's kind refuses.
    """
    if source == "-":
        if stdin is None:
            raise FileFormatError("standard input is not connected", file="<stdin>")
        text = read_stream(stdin)
        return _read_text(text, None, sniff(text), precision, sequence_length)
    if not source.strip():
        raise FileFormatError("no model is given", expected="a file, or a name of the catalog")
    path = Path(source)
    if _is_folder(path):
        config = path / "config.json"
        if config.exists():
            return _read_text(
                read_text(config), config, "config", precision, sequence_length, path.resolve().name
            )
        try:
            # A folder that happens to be called like a catalog model does not hide it.
            return _from_catalog(source, precision, sequence_length)
        except NotInCatalogError:
            raise FileFormatError(
                "is a folder without config.json",
                file=source,
                expected="a folder with config.json, a file, or a name of the catalog",
                fix="name the file inside it",
            ) from None
    if _exists(path):
        text = read_text(path)
        suffix = path.suffix.lower()
        kind = _KINDS.get(suffix) or sniff(text)
        if suffix == ".txt" and kind == "profile" and "," not in text.split("\n", 1)[0]:
            raise FileFormatError(
                "is of no known kind",
                file=source,
                line=1,
                expected="a profile CSV, a config.json, or a PipeDream graph.txt whose lines "
                'begin with "node"',
            )
        return _read_text(text, path, kind, precision, sequence_length)
    try:
        return _from_catalog(source, precision, sequence_length)
    except NotInCatalogError:
        if not _LOOKS_LIKE_A_FILE.search(source):
            raise
        similar = _similar_file(path)
        raise FileFormatError(
            "no such file", file=source, fix=f"did you mean {similar}?" if similar else None
        ) from None


def parse_model(
    text: str,
    *,
    kind: str,
    name: str,
    precision: Precision | None = None,
    sequence_length: int | None = None,
) -> tuple[Model, tuple[str, ...]]:
    """A model from a text of a known kind (``profile``, ``config`` or ``pipedream``).

    Parameters
    ----------
    name
        What the model is called; errors name it as the file.
    precision, sequence_length
        As in :func:`read_model`, which says what is raised.

    Examples
    --------
    >>> text = "name,forward_ms,backward_ms,parameter_bytes,activation_bytes,output_bytes\\n"
    >>> model, notes = parse_model(text + "a,1,2,4,4,4\\n", kind="profile", name="mine")
    >>> model.name, len(model.layers)
    ('mine', 1)
    """
    suffix = {"config": ".json", "pipedream": ".txt"}.get(kind, ".csv")
    path = Path(name if name.endswith(suffix) else name + suffix)
    return _read_text(text, path, kind, precision, sequence_length, path.stem)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _similar_file(path: Path) -> str | None:
    try:
        siblings = [entry.name for entry in islice(path.parent.iterdir(), 500)]
    except (OSError, ValueError):
        return None
    similar = nearest(path.name, sorted(siblings))
    return str(path.with_name(similar)) if similar else None


def _from_catalog(
    name: str, precision: Precision | None, sequence_length: int | None
) -> tuple[Model, tuple[str, ...]]:
    from planner.formats.catalog import load_model

    model = load_model(name, precision=precision)
    if sequence_length is not None and model.is_analytic:
        model = model.model_copy(update={"sequence_length": sequence_length})
    return model, ()


def _read_text(
    text: str,
    path: Path | None,
    kind: str,
    precision: Precision | None,
    sequence_length: int | None,
    name: str | None = None,
) -> tuple[Model, tuple[str, ...]]:
    file = "<stdin>" if path is None else str(path)
    if not text.strip():
        raise FileFormatError(
            "is empty",
            file=file,
            expected="a profile CSV, a config.json or a PipeDream graph.txt",
        )
    if kind == "config":
        from planner.formats.huggingface import read_config

        if name is None:
            name = "model" if path is None else _config_name(path)
        model = read_config(
            text, name=name, file=file, precision=precision, sequence_length=sequence_length
        )
        return model, ()
    if kind == "pipedream":
        from planner.formats.pipedream import read_graph

        model, warnings = read_graph(path, text)
        if precision is not None:
            model = model.model_copy(update={"precision": precision})
        return model, warnings
    from planner.formats.profile_csv import read_profile

    return read_profile(path, text, precision=precision or Precision.BF16)


def _config_name(path: Path) -> str:
    if path.name == "config.json":
        return path.resolve().parent.name or "model"
    return path.stem
