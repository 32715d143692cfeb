"""One exact time unit for a whole question, so that "optimal" is exact and scale changes nothing.

Times arrive as decimals (``1.234`` ms). The quantum is a power of ten of a millisecond that
represents each typed decimal exactly (15 significant digits, what a double is guaranteed to
carry), and is finer where derived times (bytes over bandwidth, FLOPs over rate) need it.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from planner.errors import InputError

__all__ = ["Quantum", "choose_quantum"]

_RELATIVE_DIGITS = 11
"""Derived times resolve 11 digits of the largest layer: 1 ns or finer up to 100-second layers."""
_TYPED = 12
"""Significant digits up to which a typed time is kept exactly."""
_LARGEST = Decimal(2) ** 61
_MOST = Decimal(2**63 - 1)
"""Quanta that 64 bits hold."""
_LONGEST_MS = 1e30
"""Of any time or sum: beyond it all is refused, long before decimals run out of digits."""


class Quantum:
    """A time unit of ``10**exponent`` milliseconds.

    Examples
    --------
    >>> unit = Quantum(-6)
    >>> unit.quanta(1.5), unit.ms(1_500_000), str(unit)
    (1500000, 1.5, '0.000001')
    """

    __slots__ = ("_scale", "exponent")

    def __init__(self, exponent: int) -> None:
        self.exponent = exponent
        self._scale = Decimal(1).scaleb(-exponent)

    def quanta(self, time_ms: float) -> int:
        """The nearest whole number of quanta; exact for decimals of up to 15 digits.

        Raises
        ------
        InputError
            More than 64-bit arithmetic holds.
        """
        if not abs(time_ms) <= _LONGEST_MS:
            raise _too_long(time_ms)
        found = Decimal(f"{time_ms:.15g}") * self._scale
        if abs(found) > _MOST:
            raise _too_long(time_ms)
        return int(found.to_integral_value())

    def array(self, times_ms: Iterable[float]) -> NDArray[np.int64]:
        """Many times at once, shape (N,)."""
        known: dict[float, int] = {}
        values = []
        for time_ms in times_ms:
            found = known.get(time_ms)
            if found is None:
                found = known[time_ms] = self.quanta(time_ms)
            values.append(found)
        return np.array(values, dtype=np.int64)

    def ms(self, quanta: int) -> float:
        """Milliseconds of a number of quanta, correctly rounded."""
        return float(Decimal(int(quanta)).scaleb(self.exponent))

    def __str__(self) -> str:
        return format(Decimal(1).scaleb(self.exponent), "f")


def choose_quantum(
    typed_ms: Iterable[float], derived_ms: Iterable[float], *, total_ms: float, repeats: int
) -> Quantum:
    """The time unit for a question.

    Parameters
    ----------
    typed_ms
        Times as the user wrote them, each represented exactly.
    derived_ms
        Times computed from formulas, rounded to the quantum.
    total_ms, repeats
        Sum of all times of one micro-batch, and how often it may be added up (micro-batches
        plus stages); four times their product must stay below 2**61 quanta.

    Raises
    ------
    InputError
        The typed times span more digits than 64-bit integers hold.

    Examples
    --------
    >>> str(choose_quantum([1.0, 5.0, 2.0], [], total_ms=8.0, repeats=8))
    '0.00000000001'
    >>> str(choose_quantum([1e-6, 5e-6, 2e-6], [], total_ms=8e-6, repeats=8))
    '0.00000000000000001'
    """
    typed_times, derived_times = set(typed_ms), set(derived_ms)
    for value in (*typed_times, *derived_times, total_ms):
        if not abs(value) <= _LONGEST_MS:
            raise _too_long(value)
    decimals = [Decimal(f"{value:.15g}") for value in typed_times if value]
    derived = [Decimal(f"{value:.15g}") for value in derived_times if value]
    # A measurement printed in full (5.1234567890123455) is no exact decimal to be kept: it is
    # rounded like a derived time.
    typed = [value for value in decimals if len(value.normalize().as_tuple().digits) <= _TYPED]
    derived += [value for value in decimals if len(value.normalize().as_tuple().digits) > _TYPED]
    if not typed and not derived:
        return Quantum(-6)
    largest = max([*typed, *derived])
    finest_typed = min((_exponent(value) for value in typed), default=18)
    wanted = min(finest_typed, largest.adjusted() - _RELATIVE_DIGITS)
    exponent = wanted
    budget = max(largest, Decimal(f"{total_ms:.15g}")) * 4 * max(repeats, 1)
    while budget.scaleb(-exponent) > _LARGEST:
        exponent += 1
    if exponent > finest_typed:
        raise InputError(
            "times span too many digits for exact 64-bit arithmetic",
            value=f"largest {largest:.3g} ms, finest digit 1e{finest_typed} ms, {repeats} repeats",
            expected="fewer digits",
            fix=f"round the times to 1e{exponent} ms",
        )
    return Quantum(exponent)


def _too_long(time_ms: float) -> InputError:
    return InputError(
        f"a time of {time_ms:.3g} ms is more than 64-bit arithmetic holds",
        fix="check the sizes, rates and micro-batch size",
    )


def _exponent(value: Decimal) -> int:
    exponent = value.normalize().as_tuple().exponent
    assert isinstance(exponent, int)  # finite by construction
    return exponent
