"""``planner catalog`` and ``planner schema``."""

from __future__ import annotations

import json
from typing import Literal

from planner.cli.backend import backend
from planner.cli.options import Format
from planner.cli.output import emit_text, print_view
from planner.errors import InputError, NotInCatalogError

__all__ = ["catalog_command", "schema_command"]


def catalog_command(name: str | None, format: Format) -> None:
    """List the catalog, or show one entry with the sources of its figures."""
    if name is not None:
        _show(name, format)
        return
    sections = backend().catalog()
    if format is Format.JSON:
        document = {kind: [entry._asdict() for entry in rows] for kind, rows in sections.items()}
        emit_text(json.dumps(document, indent=2) + "\n")
        return
    from rich import box
    from rich.table import Table

    for kind, rows in sections.items():
        table = Table(title=kind, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("name", no_wrap=True)
        table.add_column("what", overflow="fold")
        for entry in rows:
            table.add_row(entry.name, entry.description)
        print_view(table)


def _show(name: str, format: Format) -> None:
    try:
        if format is Format.JSON:
            emit_text(backend().catalog_json(name) + "\n")
        else:
            emit_text(backend().catalog_text(name))
    except NotInCatalogError:
        raise _unknown(name) from None


def _unknown(name: str) -> InputError:
    from difflib import get_close_matches

    names = [entry.name for rows in backend().catalog().values() for entry in rows]
    near = get_close_matches(name.lower(), names, n=3)
    return NotInCatalogError(
        "is no model, cluster or GPU in the catalog",
        value=name,
        fix=f"did you mean {' or '.join(near)}?" if near else "planner catalog lists them",
    )


def schema_command(what: str) -> None:
    """Print a JSON schema."""
    from pydantic import BaseModel

    from planner.plans import Plan
    from planner.specs import Cluster, Model, Training

    kinds: dict[str, type[BaseModel]] = {
        "plan": Plan,
        "model": Model,
        "cluster": Cluster,
        "training": Training,
    }
    kind = kinds.get(what)
    if kind is None:
        raise InputError("has no schema", value=what, expected=", ".join(kinds))
    mode: Literal["validation", "serialization"]
    mode = "serialization" if what == "plan" else "validation"
    emit_text(json.dumps(kind.model_json_schema(mode=mode), indent=2) + "\n")
