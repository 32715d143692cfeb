"""The time unit: exact for typed decimals, fine enough for derived times, never overflowing."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.quantum import Quantum, choose_quantum
from planner.errors import InputError

TYPED = st.decimals(min_value="0.001", max_value="9999", places=4, allow_nan=False)


@given(st.lists(TYPED, min_size=1, max_size=6), st.integers(1, 5000))
def test_typed_decimals_are_exact(values, repeats):
    typed = [float(value) for value in values]
    unit = choose_quantum(typed, [], total_ms=sum(typed), repeats=repeats)
    length = Fraction(Decimal(str(unit)))
    for text, value in zip(values, typed, strict=True):
        assert unit.quanta(value) * length == Fraction(Decimal(text))
        assert unit.ms(unit.quanta(value)) == value
    # All micro-batches of all layers, four times over, fit in 64 bits.
    assert 4 * repeats * sum(unit.quanta(value) for value in typed) <= 2**61


@given(st.lists(TYPED, min_size=1, max_size=6), st.integers(-9, 9))
def test_scaling_by_a_power_of_ten_scales_the_unit(values, power):
    factor = Decimal(1).scaleb(power)
    one = [float(value) for value in values]
    other = [float(value * factor) for value in values]
    unit = choose_quantum(one, [], total_ms=sum(one), repeats=100)
    scaled = choose_quantum(other, [], total_ms=sum(other), repeats=100)
    assert scaled.exponent - unit.exponent == power
    assert [unit.quanta(value) for value in one] == [scaled.quanta(value) for value in other]


def test_derived_times_resolve_eleven_digits_of_the_largest():
    unit = choose_quantum([], [1 / 3, 1e-7], total_ms=1.0, repeats=10)
    assert unit.quanta(1 / 3) == 333_333_333_333
    assert unit.quanta(1e-7) == 100_000
    # A nanosecond or finer at millisecond inputs.
    assert Decimal(str(unit)) <= Decimal("1e-6")


def test_a_long_run_gets_a_coarser_unit_for_derived_times_alone():
    short = choose_quantum([], [100.0], total_ms=1e4, repeats=100)
    long = choose_quantum([], [100.0], total_ms=1e4, repeats=10**9)
    assert long.exponent > short.exponent
    assert 4 * 10**9 * long.quanta(1e4) <= 2**61


def test_typed_times_that_would_be_rounded_are_refused():
    with pytest.raises(InputError, match="too many digits") as caught:
        choose_quantum([1e9, 1.23456789e-9], [], total_ms=1e9, repeats=1000)
    assert "round the times to" in str(caught.value)


def test_nothing_to_measure_has_a_nanosecond():
    assert str(choose_quantum([], [], total_ms=0.0, repeats=1)) == "0.000001"
    assert str(choose_quantum([0.0], [0.0], total_ms=0.0, repeats=1)) == "0.000001"


def test_arrays_equal_single_values():
    unit = Quantum(-4)
    values = [0.5, 0.25, 0.5, 3.0, 0.00005]
    assert unit.array(values).tolist() == [unit.quanta(value) for value in values]
    assert unit.array([]).dtype == np.int64


def test_milliseconds_are_correctly_rounded():
    assert Quantum(-11).ms(10_000_000_000_000_001) == 100_000.00000000001
    assert Quantum(3).ms(2) == 2000.0
    assert Quantum(-3).quanta(0.0005) == 0  # ties to even
    assert Quantum(-3).quanta(0.0015) == 2


@pytest.mark.parametrize("time_ms", [1e19, -1e19, 1e31, 1e308, float("inf"), float("nan")])
def test_a_time_beyond_64_bits_is_refused_not_an_error_of_decimals(time_ms):
    unit = Quantum(-9)
    for read in (unit.quanta, lambda value: unit.array([1.0, value])):
        with pytest.raises(InputError, match="64-bit"):
            read(time_ms)


@pytest.mark.parametrize("time_ms", [1e31, 1e308, float("inf"), float("nan")])
def test_no_unit_is_made_for_times_beyond_reason(time_ms):
    for typed, derived, total in (
        ([1.0, time_ms], [], 1.0),
        ([], [1.0, time_ms], 1.0),
        ([1.0], [], time_ms),
    ):
        with pytest.raises(InputError, match="64-bit"):
            choose_quantum(typed, derived, total_ms=total, repeats=8)
