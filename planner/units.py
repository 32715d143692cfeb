"""Quantities with units: parsed at the edges, plain numbers with a unit in the name inside.

GiB = 2**30 and GB = 10**9; both are accepted, and always printed with their unit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation

from planner.errors import UnitError

__all__ = [
    "format_bytes",
    "format_count",
    "format_ms",
    "format_ranges",
    "parse_bandwidth",
    "parse_bytes",
    "parse_flops",
    "parse_ms",
]

_BYTES: dict[str, int] = {
    "b": 1, "bytes": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_BITS: dict[str, Decimal] = {
    "bit": Decimal(1) / 8,
    "kbit": Decimal(10**3) / 8,
    "mbit": Decimal(10**6) / 8,
    "gbit": Decimal(10**9) / 8,
    "tbit": Decimal(10**12) / 8,
}
_MS: dict[str, Decimal] = {
    "ns": Decimal("1e-6"), "us": Decimal("1e-3"), "µs": Decimal("1e-3"), "μs": Decimal("1e-3"),
    "ms": Decimal(1), "s": Decimal(1000), "min": Decimal(60_000), "h": Decimal(3_600_000),
}  # fmt: skip
_FLOPS: dict[str, int] = {
    "gflops": 10**9, "tflops": 10**12, "pflops": 10**15,
    "gflop/s": 10**9, "tflop/s": 10**12, "pflop/s": 10**15,
}  # fmt: skip
_QUANTITY = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([^\d\s].*?)?\s*")


def _split(text: str, kind: str, example: str) -> tuple[Decimal, str]:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise UnitError(
            f"is not a {kind}", value=text, expected=f"a number and a unit, as {example}"
        )
    try:
        number = Decimal(match.group(1))
    except InvalidOperation as error:  # pragma: no cover - the pattern admits no such text
        raise UnitError(f"is not a {kind}", value=text) from error
    if number < 0:
        raise UnitError("is negative", value=text, expected=f"a {kind} >= 0")
    return number, (match.group(2) or "")


def parse_bytes(text: str) -> int:
    """Bytes of a size such as ``80GiB``, ``40 GB`` or ``512MiB``.

    Raises
    ------
    UnitError
        No unit, an unknown unit, or a negative number.

    Examples
    --------
    >>> parse_bytes("80GiB"), parse_bytes("1.5 GB"), parse_bytes("1B")
    (85899345920, 1500000000, 1)
    """
    number, unit = _split(text, "memory size", "80GiB")
    factor = _BYTES.get(unit.lower())
    if factor is None:
        raise UnitError(
            "has no unit of memory" if not unit else "has an unknown unit of memory",
            value=text,
            expected="B, KiB, MiB, GiB, TiB (powers of 1024) or KB, MB, GB, TB (powers of 1000)",
            fix=None if unit else f"did you mean {text.strip()}GiB?",
        )
    return int(number * factor)


def parse_bandwidth(text: str) -> float:
    """Bytes per second of a rate such as ``25GB/s``, ``900 GB/s`` or ``400Gbit/s``.

    Examples
    --------
    >>> parse_bandwidth("25GB/s"), parse_bandwidth("400Gbit/s")
    (25000000000.0, 50000000000.0)
    """
    number, unit = _split(text, "bandwidth", "25GB/s")
    expected = "bytes per second as 25GB/s or 25GiB/s, or bits per second as 400Gbit/s"
    base, slash, per = unit.partition("/")
    if not unit or slash != "/" or per.strip().lower() not in {"s", "sec", "second"}:
        problem = "has no unit of bandwidth" if not unit else "has an unknown unit of bandwidth"
        raise UnitError(problem, value=text, expected=expected)
    name = base.strip().lower()
    if name in _BITS:
        rate = number * _BITS[name]
    elif name in _BYTES:
        rate = number * _BYTES[name]
    else:
        raise UnitError("has an unknown unit of bandwidth", value=text, expected=expected)
    if rate == 0:
        raise UnitError("is zero", value=text, expected="a bandwidth > 0")
    return float(rate)


def parse_ms(text: str) -> float:
    """Milliseconds of a duration such as ``5us``, ``3.2ms`` or ``1.5s``.

    Examples
    --------
    >>> parse_ms("5us"), parse_ms("3.2ms"), parse_ms("0.25 s"), parse_ms("0")
    (0.005, 3.2, 250.0, 0.0)
    """
    number, unit = _split(text, "duration", "5us")
    if not unit and number == 0:
        return 0.0
    factor = _MS.get(unit.lower())
    if factor is None:
        problem = "has no unit of time" if not unit else "has an unknown unit of time"
        raise UnitError(problem, value=text, expected="ns, us, ms, s, min or h")
    return float(number * factor)


def parse_flops(text: str) -> float:
    """FLOP/s of a rate such as ``312TFLOPS`` or ``2.25 PFLOP/s``.

    Examples
    --------
    >>> parse_flops("312TFLOPS"), parse_flops("2.25 PFLOP/s")
    (312000000000000.0, 2250000000000000.0)
    """
    number, unit = _split(text, "compute rate", "312TFLOPS")
    factor = _FLOPS.get(unit.lower())
    if factor is None:
        problem = "has no unit of compute" if not unit else "has an unknown unit of compute"
        raise UnitError(problem, value=text, expected="GFLOPS, TFLOPS or PFLOPS")
    if number == 0:
        raise UnitError("is zero", value=text, expected="a compute rate > 0")
    return float(number * factor)


def format_bytes(value: float) -> str:
    """A size in binary units.

    Examples
    --------
    >>> format_bytes(85899345920), format_bytes(512), format_bytes(-3 * 2**20)
    ('80.00 GiB', '512 B', '-3.00 MiB')
    """
    size = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{int(size)} B" if unit == "B" else f"{size:.2f} {unit}"
        size /= 1024
    return f"{size:.2f} TiB"


def format_ms(value: float) -> str:
    """A duration with three to four significant digits.

    Examples
    --------
    >>> format_ms(0.0032), format_ms(3.2), format_ms(12345.6)
    ('3.20 us', '3.20 ms', '12.35 s')
    """
    if value == 0:
        return "0 ms"
    size = abs(value)
    if size < 1e-3:
        return f"{value * 1e6:.3g} ns"
    if size < 1:
        return f"{value * 1e3:.2f} us"
    if size < 1000:
        return f"{value:.2f} ms" if size < 100 else f"{value:.1f} ms"
    return f"{value / 1000:.2f} s"


def format_count(value: float) -> str:
    """A large count in thousands, millions, billions or trillions.

    Examples
    --------
    >>> format_count(174_600_000_000), format_count(1536)
    ('174.6B', '1.5K')
    """
    size = float(value)
    for unit in ("", "K", "M", "B"):
        if abs(size) < 1000:
            return f"{size:.0f}" if not unit else f"{size:.1f}{unit}"
        size /= 1000
    return f"{size:.2f}T"


def format_ranges(numbers: Iterable[int]) -> str:
    """Ranks, or other whole numbers, with runs written as ranges.

    Examples
    --------
    >>> format_ranges([1, 2, 3, 7, 9, 10]), format_ranges([4])
    ('1-3, 7, 9, 10', '4')
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    # A run of two is no shorter as a range.
    return ", ".join(
        f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs
    )
