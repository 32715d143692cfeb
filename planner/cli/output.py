"""Reading arguments and printing answers."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from planner.cli.options import Format
from planner.errors import InputError
from planner.plans import Plan, Status
from planner.specs import Model, Precision

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

__all__ = ["finish", "print_view", "read_model_argument", "warn", "write_text"]

_EXIT = {Status.INFEASIBLE: 3, Status.UNKNOWN: 4}


def warn(note: str) -> None:
    """A warning line on stderr, so that standard output stays what was asked for."""
    print(f"warning: {note}", file=sys.stderr)


def read_model_argument(
    source: str, *, precision: Precision | None, sequence_length: int | None
) -> Model:
    """The model of a MODEL argument; warnings go to stderr."""
    from planner.formats.models import read_model

    model, notes = read_model(
        source, stdin=sys.stdin, precision=precision, sequence_length=sequence_length
    )
    for note in notes:
        warn(note)
    return model


def console() -> Console:
    """A console as wide as the terminal, or wide enough for a table where there is none."""
    from rich.console import Console

    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, width=int(os.environ.get("COLUMNS", "132")), soft_wrap=False)


def print_view(view: RenderableType) -> None:
    """A rich renderable on standard output."""
    console().print(view)


def write_text(path: str, text: str) -> None:
    """Write a whole file or nothing.

    Raises
    ------
    InputError
        The folder does not exist or cannot be written.
    """
    target = Path(path)
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=path) from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
            stream.write(text)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, target)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise InputError(f"cannot be written: {error.strerror}", file=path) from None


def finish(plan: Plan, format: Format, output: str | None) -> None:
    """Print a plan, write it where asked, and leave with its exit status."""
    if output == "-":
        format, output = Format.JSON, None
    if output is not None:
        write_text(output, plan.to_json())
    if format is Format.JSON:
        sys.stdout.write(plan.to_json())
    else:
        from planner.report.tables import plan_view

        print_view(plan_view(plan))
    status = _EXIT.get(plan.status, 0)
    if status:
        raise typer.Exit(status)
