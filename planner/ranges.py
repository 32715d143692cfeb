"""What figures of an input may be: ranges that no machine leaves and no formula overflows in.

They are generous by orders of magnitude: a figure outside is a typing error or a wrong unit. JSON
and YAML hold numbers up to 1e308, whose products no arithmetic holds.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

__all__ = [
    "MOST_MICROBATCHES",
    "Amount",
    "Bytes",
    "Count",
    "Efficiency",
    "Factor",
    "Milliseconds",
    "PeakFlops",
    "Positive",
    "PositiveBytes",
    "Price",
    "Rate",
    "StatedRate",
]

Count = Annotated[int, Field(ge=0)]
MOST_MICROBATCHES = 10**5
"""Micro-batches a step; simulation visits each of them where no period sets in."""
Positive = Annotated[int, Field(ge=1, le=10**9)]
"""Counts beyond a billion are typing errors, and would not fit exact 64-bit arithmetic."""
Bytes = Annotated[int, Field(ge=0, le=2**50)]
"""Sizes beyond a pebibyte are typing errors too."""
PositiveBytes = Annotated[int, Field(ge=1, le=2**60)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Milliseconds = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
"""A cost that is paid once a layer, message or step: at most 1000 s."""
Rate = Annotated[float, Field(ge=1, le=1e18, allow_inf_nan=False)]
"""Bytes a second, of memory or of a link."""
StatedRate = Annotated[float, Field(ge=1e-6, le=1e18, allow_inf_nan=False)]
"""Bytes a second in whatever unit of time a profile is written; sums are checked where they are
made."""
PeakFlops = Annotated[float, Field(ge=1, le=1e24, allow_inf_nan=False)]
"""FLOP a second of one GPU."""
Efficiency = Annotated[float, Field(ge=1e-6, le=1)]
"""Share of a peak that is reached."""
Factor = Annotated[float, Field(ge=0, le=1e6)]
"""A width or a number of rows, or how often something is shared."""
Price = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
"""Of a GPU and hour, in any currency."""
