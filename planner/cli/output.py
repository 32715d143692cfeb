"""Reading arguments and printing answers."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
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
    "emit_shown",
    "emit_text",
    "finish",
    "line_width",
    "naming",
    "print_view",
    "read_model_argument",
    "shown_name",
    "warn",
    "warnings_on_stderr",
    "write_text",
]

_EXIT = {Status.INFEASIBLE: 3, Status.UNKNOWN: 4}
_WIDTH_OF_FILES = 132
_NARROWEST, _WIDEST = 60, 1000


def warn(note: str) -> None:
    """A warning line on stderr, so that standard output stays what was asked for."""
    with suppress(OSError):
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
    if shown_name(model.name) != model.name:
        return model.model_copy(update={"name": shown_name(model.name)})
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
        console.print(view(console.width) if callable(view) else view, crop=False)
    lines = captured.get().split("\n")
    emit_shown("\n".join(line.rstrip() for line in lines))


def line_width() -> int:
    """Characters of a line of standard output."""
    from rich.console import Console

    return Console(width=_width()).width


def emit_shown(text: str) -> None:
    """Print text for people, in the terminal's encoding."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    # A name that the terminal cannot show is no reason to fail.
    shown = text.encode(encoding, "replace").decode(encoding)
    with _reader_may_leave():
        sys.stdout.write(shown)
        sys.stdout.flush()


def emit_text(text: str) -> None:
    """Print JSON, YAML or CSV as UTF-8, whatever the locale."""
    raw = getattr(sys.stdout, "buffer", None)
    if raw is None:
        emit_shown(text)
        return
    with _reader_may_leave():
        sys.stdout.flush()
        raw.write(text.encode())
        raw.flush()


@contextmanager
def _reader_may_leave() -> Iterator[None]:
    """The reader of our output (head, less) may close the pipe early: not an error."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# --- files -------------------------------------------------------------------------------------


def check_output(path: str | None, inputs: Sequence[str | None] = ()) -> None:
    """Refuse an output file that cannot be written before hours of solving, not after.

    Parameters
    ----------
    path
        The file to write; None and ``-`` are none.
    inputs
        What is read: names of files among others, none of which may be overwritten.

    Raises
    ------
    InputError
        The folder does not exist or is none, the path is a folder or an input, or the system
        refuses the name.
    """
    if path is None or path == "-":
        return
    if not path:
        raise InputError("the name of a file to write is empty", fix="name the file")
    found = _stat(path)
    if found is not None and stat.S_ISDIR(found.st_mode):
        raise InputError("is a folder", file=path, expected="a file to write", fix="name the file")
    if _in_place(path, found):
        return
    for name in inputs:
        if name is not None and name != "-" and _same_file(path, name):
            raise InputError("is an input as well", file=path, fix="write to another file")
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise InputError(
            "cannot be written: its folder does not exist",
            file=path,
            fix=f"make the folder {Path(path).parent} first",
        )
    if not os.access(folder, os.W_OK):
        raise InputError("cannot be written: its folder is read-only", file=path)


def _stat(path: str) -> os.stat_result | None:
    """What is known about an output file; None where there is none yet."""
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=path) from None
    except ValueError:
        raise InputError("is no file name", value=path) from None


def _in_place(path: str, found: os.stat_result | None) -> bool:
    """Whether a path is written to as it is: a device or a pipe cannot be replaced."""
    if found is None:
        return False
    return not stat.S_ISREG(found.st_mode) or path.startswith(("/dev/", "/proc/"))


def _same_file(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return False  # one of them does not exist, or is a catalog name


def write_text(path: str, text: str) -> None:
    """Write a whole file or nothing; a link is followed, the mode of an existing file kept.

    Raises
    ------
    InputError
        The folder does not exist or cannot be written.
    """
    check_output(path)
    found = _stat(path)
    try:
        if _in_place(path, found):
            with open(path, "w", encoding="utf-8", newline="") as device:
                device.write(text)
        else:
            _replace(os.path.realpath(path), text, None if found is None else found.st_mode)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=path) from None


def _replace(target: str, text: str, mode: int | None) -> None:
    if mode is None:
        mask = os.umask(0)
        os.umask(mask)
        mode = 0o666 & ~mask
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(target), prefix=".planner.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
            stream.write(text)
        os.chmod(temporary, stat.S_IMODE(mode))
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def shown_name(name: str) -> str:
    r"""A file name as text that can be written, whatever bytes it is made of.

    Examples
    --------
    >>> print(shown_name("caf\udce9.csv"))
    caf\udce9.csv
    """
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


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
