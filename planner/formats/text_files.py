"""Reading whole text files of bounded size, with one clear error for each way that fails."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from planner.errors import FileFormatError

__all__ = ["LARGEST_BYTES", "decode", "read_stream", "read_text"]

LARGEST_BYTES = 128 * 2**20
"""No model needs more: 200,000 rows of 600 characters."""


def decode(data: bytes, file: str) -> str:
    """UTF-8 text with or without a byte order mark.

    Raises
    ------
    FileFormatError
        Larger than ``LARGEST_BYTES``, NUL bytes, or not UTF-8; names the line.

    Examples
    --------
    >>> decode(b"\\xef\\xbb\\xbfname", "small.csv")
    'name'
    """
    if len(data) > LARGEST_BYTES:
        raise too_large(file)
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise FileFormatError("is UTF-16", file=file, expected="UTF-8 text", fix="save it as UTF-8")
    nul = data.find(b"\0")
    if nul >= 0:
        raise FileFormatError(
            "contains a NUL byte",
            file=file,
            line=data.count(b"\n", 0, nul) + 1,
            expected="UTF-8 text",
            fix="give a text file",
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        bad = data[error.start]
        raise FileFormatError(
            f"byte 0x{bad:02x} is not UTF-8",
            file=file,
            line=data.count(b"\n", 0, error.start) + 1,
            expected="UTF-8 text",
            fix="save it as UTF-8",
        ) from None


def too_large(file: str) -> FileFormatError:
    """The error for a file beyond the size limit."""
    return FileFormatError(
        "is too large",
        file=file,
        expected=f"at most {LARGEST_BYTES // 2**20} MiB",
        fix="give one row a layer, not one a sample or operation",
    )


def read_text(path: Path, *, limit: int = LARGEST_BYTES) -> str:
    """The text of a file of at most ``limit`` bytes.

    Raises
    ------
    FileFormatError
        Missing, a folder, unreadable, too large, NUL bytes, or not UTF-8.
    """
    file = str(path)
    try:
        with path.open("rb") as handle:
            # One byte more than allowed, so that devices and pipes of unknown size are bounded.
            data = handle.read(limit + 1)
    except FileNotFoundError:
        raise FileFormatError("no such file", file=file) from None
    except IsADirectoryError:
        raise FileFormatError("is a folder", file=file, expected="a file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FileFormatError(f"cannot be read: {reason}", file=file) from None
    if limit < len(data) <= LARGEST_BYTES:
        raise FileFormatError("is too large", file=file, expected=f"at most {limit} bytes")
    return decode(data, file)


def read_stream(stream: TextIO, file: str = "<stdin>") -> str:
    """The text of an open stream (standard input), decoded as UTF-8 whatever the locale.

    Raises
    ------
    FileFormatError
        As ``read_text``.
    """
    raw = getattr(stream, "buffer", None)
    if raw is not None:
        return decode(raw.read(LARGEST_BYTES + 1), file)
    return decode(stream.read(LARGEST_BYTES + 1).encode("utf-8", "surrogateescape"), file)
