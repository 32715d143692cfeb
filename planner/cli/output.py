"""Reading arguments and printing answers."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from planner.cli.options import Format
from planner.errors import GraphError, InputError, PinError, ProfileError
from planner.plans import Plan, Status
from planner.specs import Model, Precision

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = [
    "check_output",
    "emit_text",
    "finish",
    "naming",
    "print_view",
    "read_model_argument",
    "warn",
    "warnings_on_stderr",
    "write_text",
]

_EXIT = {Status.INFEASIBLE: 3, Status.UNKNOWN: 4}
_WIDTH_OF_FILES = 132
_NARROWEST, _WIDEST = 60, 1000


def warn(note: str) -> None:
    """A warning line on stderr, so that standard output stays what was asked for."""
    print(f"warning: {note}", file=sys.stderr)


@contextmanager
def warnings_on_stderr() -> Iterator[None]:
    """Input warnings of the library as warning lines."""
    from planner.api import InputWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", InputWarning)
        yield
    # A file that is read twice is warned about once.
    notes = [str(note.message) for note in caught if issubclass(note.category, InputWarning)]
    for text in dict.fromkeys(notes):
        warn(text)
    for note in caught:
        if not issubclass(note.category, InputWarning):
            warnings.warn_explicit(note.message, note.category, note.filename, note.lineno)


@contextmanager
def naming(source: str) -> Iterator[None]:
    """Errors about a file's graph, pins or rows that were found after reading name the file."""
    try:
        yield
    except (PinError, GraphError, ProfileError) as error:
        if error.file is not None or not Path(source).is_file():
            raise
        raise type(error)(
            error.problem,
            file=source,
            line=error.line,
            column=error.column or _pin_column(error),
            key=error.key,
            value=error.value,
            expected=error.expected,
            fix=error.fix,
        ) from None


def _pin_column(error: InputError) -> str | None:
    if not isinstance(error, PinError):
        return None
    return "pin_stage" if "pinned" in error.problem else "with"


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


# --- standard output -----------------------------------------------------------------------------


def _width() -> int | None:
    """Characters of a line: COLUMNS, else the terminal's own (None), else room for a table."""
    given = os.environ.get("COLUMNS", "")
    if given.isdigit() and int(given) > 0:
        return max(_NARROWEST, min(int(given), _WIDEST))
    return None if sys.stdout.isatty() else _WIDTH_OF_FILES


def print_view(view: RenderableType | Callable[[int], RenderableType]) -> None:
    """Print a rich renderable, or what a function makes of the width of a line."""
    from rich.console import Console

    console = Console(highlight=False, width=_width())
    with console.capture() as captured:
        console.print(view(console.width) if callable(view) else view)
    lines = captured.get().split("\n")
    _emit("\n".join(line.rstrip() for line in lines))


def emit_text(text: str) -> None:
    """Print JSON, YAML or CSV as UTF-8, whatever the locale."""
    raw = getattr(sys.stdout, "buffer", None)
    if raw is None:
        _emit(text)
        return
    with _reader_may_leave():
        sys.stdout.flush()
        raw.write(text.encode())
        raw.flush()


def _emit(text: str) -> None:
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    # A name that the terminal cannot show is no reason to fail.
    shown = text.encode(encoding, "replace").decode(encoding)
    with _reader_may_leave():
        sys.stdout.write(shown)
        sys.stdout.flush()


@contextmanager
def _reader_may_leave() -> Iterator[None]:
    """The reader of our output (head, less) may close the pipe early: not an error."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# --- files -------------------------------------------------------------------------------------


def check_output(path: str | None) -> None:
    """Refuse an output file that cannot be written before hours of solving, not after.

    Raises
    ------
    InputError
        The folder does not exist or is none, or the path is a folder.
    """
    if path is None or path == "-":
        return
    target = Path(path)
    if target.is_dir():
        raise InputError("is a folder", file=path, expected="a file to write", fix="name the file")
    if not target.parent.is_dir():
        raise InputError(
            "cannot be written: its folder does not exist",
            file=path,
            fix=f"make the folder {target.parent} first",
        )
    if not os.access(target.parent, os.W_OK):
        raise InputError("cannot be written: its folder is read-only", file=path)


def write_text(path: str, text: str) -> None:
    """Write a whole file or nothing.

    Raises
    ------
    InputError
        The folder does not exist or cannot be written.
    """
    check_output(path)
    target = Path(path)
    if target.exists() and not target.is_file():
        # A device or a pipe is written to, not replaced.
        try:
            target.write_text(text, encoding="utf-8", newline="")
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", file=path) from None
        return
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}.")
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
        emit_text(plan.to_json())
    else:
        from planner.report.tables import plan_view

        print_view(lambda width: plan_view(plan, width))
    status = _EXIT.get(plan.status, 0)
    if status:
        raise typer.Exit(status)
