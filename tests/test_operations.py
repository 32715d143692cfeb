"""Cells that are no operations."""

import pytest

from planner.errors import OrderError
from planner.operations import order_from_lists


@pytest.mark.parametrize(
    "cell",
    ["0X1", "F0", "0F", "-1F0", "0F0B0", "٠F٠", "0F9999999999", "(0F1;0F2)OVERLAP_F_B",
     "(0B1;0B2)OVERLAP_F_B", "(0F1)OVERLAP_F_B"],
)  # fmt: skip
def test_cells_that_are_no_operation(cell):
    with pytest.raises(OrderError, match="rank 0 operation 1"):
        order_from_lists("order", [["0F0", cell]])


def test_an_order_without_operations():
    with pytest.raises(OrderError, match="no operation"):
        order_from_lists("order", [[], []])
