from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import UnitError
from planner.units import (
    format_bytes,
    format_count,
    format_ms,
    parse_bandwidth,
    parse_bytes,
    parse_ms,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("80GiB", 80 * 2**30),
        ("80 gib", 80 * 2**30),
        ("40GB", 40 * 10**9),
        ("1.5KiB", 1536),
        ("0.1GB", 100_000_000),
        ("1e3 MB", 10**9),
        ("2TiB", 2**41),
        ("3TB", 3 * 10**12),
        ("7B", 7),
        ("7 bytes", 7),
        ("0MiB", 0),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("25GB/s", 25e9),
        ("25 GiB/s", 25 * 2.0**30),
        ("400Gbit/s", 50e9),
        ("1.5 MB/sec", 1.5e6),
        ("8bit/s", 1.0),
    ],
)
def test_bandwidths(text: str, rate: float) -> None:
    assert parse_bandwidth(text) == rate


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("5us", 0.005),
        ("5 µs", 0.005),
        ("1234us", 1.234),
        ("100ns", 0.0001),
        ("1.5s", 1500.0),
        ("2min", 120_000.0),
        ("1h", 3_600_000.0),
        ("0", 0.0),
    ],
)
def test_durations(text: str, time_ms: float) -> None:
    assert parse_ms(text) == time_ms


@pytest.mark.parametrize("parse", [parse_bytes, parse_bandwidth, parse_ms])
@pytest.mark.parametrize("text", ["", "fast", "GiB", "1..2GiB", "nan", "inf GB", "80gigs", "12"])
def test_what_is_no_quantity_is_refused_with_its_text(
    parse: Callable[[str], float], text: str
) -> None:
    with pytest.raises(UnitError) as caught:
        parse(text)
    assert caught.value.value == text
    assert caught.value.exit_status == 2
    assert caught.value.expected


@pytest.mark.parametrize(
    ("parse", "text"), [(parse_bytes, "-1GiB"), (parse_bandwidth, "-1GB/s"), (parse_ms, "-1ms")]
)
def test_negative_quantities(parse: Callable[[str], float], text: str) -> None:
    with pytest.raises(UnitError, match="is negative"):
        parse(text)


def test_a_bare_number_of_memory_comes_with_the_likely_unit() -> None:
    with pytest.raises(UnitError, match="did you mean 80GiB") as caught:
        parse_bytes("80")
    assert "has no unit of memory" in str(caught.value)


@pytest.mark.parametrize(("text", "words"), [("25GB", "unit"), ("0GB/s", "is zero")])
def test_bandwidths_that_are_none(text: str, words: str) -> None:
    with pytest.raises(UnitError, match=words):
        parse_bandwidth(text)


@given(st.integers(0, 2**50))
def test_whole_bytes_survive(size: int) -> None:
    assert parse_bytes(f"{size}B") == size
    assert parse_bytes(f"{size} KiB") == size * 1024


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (format_bytes(0), "0 B"),
        (format_bytes(1023), "1023 B"),
        (format_bytes(1024), "1.00 KiB"),
        (format_bytes(5 * 2**40), "5.00 TiB"),
        (format_ms(0), "0 ms"),
        (format_ms(1e-5), "10 ns"),
        (format_ms(120), "120.0 ms"),
        (format_ms(61_000), "61.00 s"),
        (format_count(7), "7"),
        (format_count(2.5e15), "2500.00T"),
    ],
)
def test_printed_quantities_carry_their_unit(shown: str, text: str) -> None:
    assert shown == text
