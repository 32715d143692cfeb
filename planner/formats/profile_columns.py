"""Columns of a profile CSV: names with units, and cells turned into exact numbers.

Numbers go through ``decimal`` so that a unit is applied without rounding twice: 1234 us is the
double nearest 1.234, the one that prints as ``1.234``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal, InvalidOperation

from planner.errors import InputError, ProfileError
from planner.formats.spelling import nearest

__all__ = [
    "LABELS",
    "Columns",
    "Unit",
    "milliseconds",
    "parse_number",
    "read_header",
    "suggestions",
    "whole_bytes",
]

TIME_UNITS = {"ms": Decimal(1), "us": Decimal("0.001"), "s": Decimal(1000)}
SIZE_UNITS = {
    "bytes": Decimal(1),
    "kib": Decimal(2**10), "mib": Decimal(2**20), "gib": Decimal(2**30),
    "kb": Decimal(10**3), "mb": Decimal(10**6), "gb": Decimal(10**9),
}  # fmt: skip
TIMES = ("forward", "backward", "weight_gradient")
SIZES = ("parameter", "activation", "output", "gradient", "checkpoint", "workspace")
WORK = ("forward_flops", "backward_flops")
REQUIRED_SIZES = ("parameter", "activation", "output")
KEYS = ("tp", "microbatch_size", "sequence_length", "device")
LABELS = ("type", "inputs", "trainable", "tied_to", "pin_stage", "with")
"""Columns that say the same in every row of a layer."""
PLAIN = ("name", *LABELS, *KEYS, *WORK, "collectives_included", "origin")

# What people write when they mean one of our columns: refused, because the unit is a guess.
_UNITLESS: dict[str, tuple[str, ...]] = {
    "time": ("forward_ms", "backward_ms"),
    "memory": ("parameter_bytes", "activation_bytes"),
    "size": ("parameter_bytes", "activation_bytes", "output_bytes"),
    "flops": ("forward_flops",),
    "params": ("parameter_bytes",),
    "fwd": ("forward_ms",), "fwd_time": ("forward_ms",), "forward_time": ("forward_ms",),
    "bwd": ("backward_ms",), "bwd_time": ("backward_ms",), "backward_time": ("backward_ms",),
}  # fmt: skip
for _base in TIMES:
    _UNITLESS[_base] = (f"{_base}_ms",)
for _base in SIZES:
    for _written in (_base, f"{_base}s", f"{_base}_size", f"{_base}_memory"):
        _UNITLESS.setdefault(_written, (f"{_base}_bytes",))

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_EXACT = Context(prec=60)
_LARGEST_EXPONENT = 30
_LARGEST_BYTES = 2**50


@dataclass(frozen=True)
class Unit:
    """Where a quantity stands in a row, as which column, and what one unit of it is."""

    position: int
    column: str
    factor: Decimal


@dataclass(frozen=True)
class Columns:
    """The header, understood: positions of plain columns, units of quantities, the rest."""

    count: int
    plain: dict[str, int]
    quantities: dict[str, Unit]
    unknown: tuple[str, ...]


def _split_unit(column: str) -> tuple[str, str, Decimal] | None:
    base, _, suffix = column.rpartition("_")
    if base in TIMES and suffix in TIME_UNITS:
        return base, suffix, TIME_UNITS[suffix]
    if base in SIZES and suffix in SIZE_UNITS:
        return base, suffix, SIZE_UNITS[suffix]
    return None


def _known_names() -> list[str]:
    names = list(PLAIN)
    names += [f"{base}_{unit}" for base in TIMES for unit in TIME_UNITS]
    names += [f"{base}_{unit}" for base in SIZES for unit in SIZE_UNITS]
    return names


def _refuse_unit(column: str, file: str, line: int) -> None:
    """Raise where a column is one of ours without its unit, or with a unit that is not known."""
    lowered = column.lower()
    if lowered in _UNITLESS:
        names = _UNITLESS[lowered]
        endings = [f"_{unit}" for unit in (TIME_UNITS if "_ms" in names[0] else SIZE_UNITS)]
        expected = f"a column name that ends in its unit ({', '.join(endings)})"
        problem = "has no unit"
        if lowered == "flops":
            problem = "does not say of which pass"
            expected = "forward_flops, and backward_flops where it is not twice that"
        raise ProfileError(
            problem,
            file=file,
            line=line,
            column=column,
            expected=expected,
            fix=f"rename it, for example {' or '.join(names)}",
        )
    base, _, suffix = lowered.rpartition("_")
    units = TIME_UNITS if base in TIMES else SIZE_UNITS if base in SIZES else {}
    if units and suffix not in units and suffix != "flops":
        allowed = ", ".join(f"{base}_{unit}" for unit in units)
        raise ProfileError(
            "has an unknown unit",
            file=file,
            line=line,
            column=column,
            expected=f"one of {allowed}",
            fix=f"convert the column to {base}_{next(iter(units))}",
        )


def read_header(cells: Sequence[str], file: str, line: int) -> Columns:
    """Understand a header row.

    Raises
    ------
    ProfileError
        A column without a unit, twice, in two units, without a name, or a required one missing.

    Examples
    --------
    >>> header = ["name", "forward_us", "backward_us", "parameter_mib", "activation_mib",
    ...           "output_bytes", "colour"]
    >>> columns = read_header(header, "small.csv", 1)
    >>> columns.quantities["forward"].factor, columns.unknown
    (Decimal('0.001'), ('colour',))
    """
    names = [cell.strip() for cell in cells]
    if len(names) == 1:
        other = next((mark for mark in (";", "\t", "|") if mark in names[0]), None)
        if other is not None:
            raise ProfileError(
                "is one column",
                file=file,
                line=line,
                value=names[0],
                expected="columns separated by commas",
                fix=f"the file seems to be separated by {other!r}; save it with commas",
            )
    plain: dict[str, int] = {}
    quantities: dict[str, Unit] = {}
    unknown: list[str] = []
    for position, column in enumerate(names):
        if not column:
            raise ProfileError(
                f"column {position + 1} of the header has no name",
                file=file,
                line=line,
                expected="a name for every column",
                fix="name the column or remove it",
            )
        if column in names[:position]:
            raise ProfileError(
                "appears twice in the header",
                file=file,
                line=line,
                column=column,
                expected="each column once",
                fix="remove one of the two",
            )
        split = _split_unit(column)
        if split is not None:
            base, _, factor = split
            if base in quantities:
                raise ProfileError(
                    f"gives the same quantity as column {quantities[base].column}",
                    file=file,
                    line=line,
                    column=column,
                    expected="each quantity in one unit",
                    fix=f"remove {column} or {quantities[base].column}",
                )
            quantities[base] = Unit(position, column, factor)
        elif column in PLAIN:
            plain[column] = position
        else:
            _refuse_unit(column, file, line)
            unknown.append(column)
    columns = Columns(len(names), plain, quantities, tuple(unknown))
    _require(columns, file, line)
    return columns


def _require(columns: Columns, file: str, line: int) -> None:
    have = columns.quantities
    missing: list[str] = [] if "name" in columns.plain else ["name"]
    times = "forward" in have or "backward" in have
    if not times and "backward_flops" in columns.plain and "forward_flops" not in columns.plain:
        missing.append("forward_flops")
    elif not times and "forward_flops" not in columns.plain:
        missing += ["forward_ms", "backward_ms"]
    elif times and "forward_flops" not in columns.plain:
        missing += [f"{base}_ms" for base in ("forward", "backward") if base not in have]
    missing += [f"{base}_bytes" for base in REQUIRED_SIZES if base not in have]
    if not missing:
        return
    hints = []
    for name in missing:
        similar = nearest(name, columns.unknown) or nearest(
            name, [column.lower() for column in columns.unknown]
        )
        if similar is not None:
            written = next(c for c in columns.unknown if similar in (c, c.lower()))
            hints.append(f'"{written}" to {name}')
    expected = "a header with name, forward_ms and backward_ms (or forward_flops), "
    expected += "parameter_bytes, activation_bytes and output_bytes"
    raise ProfileError(
        f"the header lacks {' and '.join(missing)}"
        if len(missing) < 3
        else f"the header lacks {', '.join(missing[:-1])} and {missing[-1]}",
        file=file,
        line=line,
        column=missing[0],
        expected=expected,
        fix=f"did you mean to rename {', '.join(hints)}?"
        if hints
        else "add the column (0 where a layer has none)",
    )


def suggestions(columns: Columns) -> tuple[str, ...]:
    """One warning that names the unknown columns, with a likely spelling where there is one.

    Examples
    --------
    >>> suggestions(Columns(3, {}, {}, ("colour", "pin_stages")))
    ('unknown columns not used: colour, pin_stages (did you mean pin_stage?)',)
    """
    if not columns.unknown:
        return ()
    shown = []
    used = set(columns.plain) | {unit.column for unit in columns.quantities.values()}
    free = [name for name in _known_names() if name not in used]
    for column in columns.unknown[:20]:
        similar = nearest(column.lower(), free)
        shown.append(column if similar is None else f"{column} (did you mean {similar}?)")
    if len(columns.unknown) > 20:
        shown.append(f"and {len(columns.unknown) - 20} more")
    return (f"unknown columns not used: {', '.join(shown)}",)


Refuse = Callable[..., InputError]
"""Makes the error of one cell: ``refuse(problem, expected=..., fix=...)``."""


def parse_number(text: str, refuse: Refuse) -> Decimal:
    """A finite number >= 0, exactly as written.

    Raises
    ------
    ProfileError
        Made by ``refuse``: not a number, NaN, infinite, negative, or absurdly large or small.
    """
    if _NUMBER.fullmatch(text) is None:
        raise _not_a_number(text, refuse)
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise refuse("is out of range", expected="a number >= 0") from None
    if number.is_zero():
        return Decimal(0)
    if number < 0:
        raise refuse("is negative", expected="a number >= 0")
    if abs(number.adjusted()) > _LARGEST_EXPONENT:
        size = "large" if number.adjusted() > 0 else "small"
        raise refuse(
            f"is too {size}", expected="0 or a number between 1e-30 and 1e30", fix="check the unit"
        )
    return number


def _not_a_number(text: str, refuse: Refuse) -> InputError:
    lowered = text.lower().lstrip("+-")
    expected = "a number >= 0"
    if not text:
        return refuse("the cell is empty", expected=expected, fix="write 0 if there is none")
    if lowered in {"nan", "na", "n/a", "null", "none"}:
        return refuse("is not a number", expected=expected, fix="measure it, or write 0 for none")
    if lowered in {"inf", "infinity"}:
        return refuse("is infinite", expected=expected)
    if _NUMBER.fullmatch(text.replace(",", "").replace("_", "").replace(" ", "")):
        return refuse(
            "is not a number",
            expected=expected,
            fix="write it with a decimal point and no separators",
        )
    match = _NUMBER.match(text)
    if match is not None:
        return refuse(
            "is not a number",
            expected=expected,
            fix=f"write {match.group()} and name the unit in the column",
        )
    return refuse("is not a number", expected=expected)


def whole_bytes(number: Decimal, unit: Unit, refuse: Refuse) -> int:
    """Bytes of a size cell; a fraction left by a unit conversion is rounded up.

    A fraction of a byte in a column that counts bytes is refused: there it is no rounding.
    """
    exact = _EXACT.multiply(number, unit.factor)
    if exact > _LARGEST_BYTES:
        raise refuse("is too large", expected="at most 2^50 bytes (1 PiB)", fix="check the unit")
    whole = exact.to_integral_value(rounding=ROUND_CEILING)
    if unit.factor == 1 and whole != exact:
        raise refuse(
            "is not a whole number of bytes",
            expected="a whole number >= 0",
            fix=f"write {whole}, or use _kib, _mib or _gib in the column name",
        )
    return int(whole)


def milliseconds(number: Decimal, unit: Unit) -> float:
    """Milliseconds of a time cell, rounded once.

    Examples
    --------
    >>> milliseconds(Decimal("1234"), Unit(0, "forward_us", Decimal("0.001")))
    1.234
    """
    return float(_EXACT.multiply(number, unit.factor))
