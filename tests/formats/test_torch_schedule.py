"""Orders from torch's schedule CSV and from JSON, where they are wrong, and back to CSV."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import FileFormatError, OrderError
from planner.formats import torch_schedule
from planner.formats.torch_schedule import read_order, write_torch_csv
from planner.operations import Order, order_from_lists
from planner.schedules.validate import validate_order

GPIPE = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1F1", "1B0", "1B1"]]
# One way to write it: torch's idle cells, spaces, a lowered file's actions.
LOWERED = (
    "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,,,0RECV_B0,0B0,0RECV_B1, 0B1 ,0REDUCE_GRAD,0RESHARD\r\n"
    "1UNSHARD,,1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1,REDUCE_GRAD,1RESHARD\r\n"
)


def _write(folder: Path, text: str | bytes, name: str = "order.csv") -> str:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def _lists(order: Order) -> list[list[str]]:
    return order.rank_lists()


def test_a_lowered_file_keeps_its_operations(tmp_path: Path) -> None:
    found = read_order(_write(tmp_path, LOWERED))
    assert _lists(found.order) == GPIPE
    assert (found.order.num_ranks, found.order.num_stages, found.order.num_microbatches) == (
        2,
        2,
        2,
    )
    # 8 sends and receives, 2 UNSHARD, 2 RESHARD, 2 REDUCE_GRAD.
    assert sum(found.left_out.values()) == 14
    assert found.left_out["SEND_F"] == 2
    (note,) = found.notes
    assert "14 communication and sharding actions were left out" in note
    assert "REDUCE_GRAD 2" in note


@pytest.mark.parametrize(
    "text",
    [
        "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1",
        "\ufeff0F0,0F1,0B0,0B1\r\n1F0,1F1,1B0,1B1\r\n\r\n,,\r\n",
        json.dumps(GPIPE),
        json.dumps({"schedule": "gpipe", "ranks": GPIPE}),
        json.dumps([[None, "0F0", "", "0F1", "0B0", "0B1"], GPIPE[1]]),
    ],
)
def test_ways_to_write_an_order(tmp_path: Path, text: str) -> None:
    found = read_order(_write(tmp_path, text))
    assert _lists(found.order) == GPIPE
    assert found.notes == ()
    again = read_order("-", stdin=io.StringIO(text))
    assert _lists(again.order) == GPIPE
    assert again.file == "<stdin>"


def test_pairs_stand_in_one_cell(tmp_path: Path) -> None:
    text = "0F0,,(0F1;0B0)OVERLAP_F_B,0B1\n"
    found = read_order(_write(tmp_path, text))
    assert found.order.has_pairs
    assert write_torch_csv(found.order) == "0F0,(0F1;0B0)OVERLAP_F_B,0B1\r\n"
    # The second of the pair, and what follows it, are found in their cells.
    error = found.located(OrderError("odd", file="rank 0 operation 2", value="0B0"))
    assert str(error).endswith('order.csv:1 column 3: "0B0" odd')
    error = found.located(OrderError("odd", file="rank 0 operation 3"))
    assert "column 4" in str(error)


def test_errors_are_found_in_json_too(tmp_path: Path) -> None:
    found = read_order(_write(tmp_path, json.dumps({"ranks": [["0F0", None, "0B0"]]})))
    error = found.located(OrderError("odd", file="rank 0 operation 1"))
    assert "key ranks[0][2]: odd" in str(error)
    error = found.located(OrderError("the order deadlocks"))
    assert str(error).endswith("order.csv: the order deadlocks")


BAD: dict[str, tuple[str | bytes, list[str]]] = {
    "empty": ("", ["order.csv", "is empty", "one row a rank"]),
    "blank": (" \n\n,,\n", ["order.csv", "no operation"]),
    "binary": (bytes(range(256)), ["order.csv:1", "NUL"]),
    "UTF-16": ("0F0,0B0\n".encode("utf-16"), ["UTF-16"]),
    "Latin-1": (b"0F0,\xe9\n", ["order.csv:1", "not UTF-8"]),
    "a header": ("rank,ops\n0F0,0B0\n", ["order.csv:1 column 1", '"rank"', "no header"]),
    "a word": ("0F0,0B0\n1F0,,1X0\n", ["order.csv:2 column 3", '"1X0"', "2F4"]),
    "a broken pair": ("0F0,(0F1;0B0)OVERLAP\n", ["order.csv:1 column 2", "OVERLAP_F_B"]),
    "lower case": ("0f0\n", ["column 1", '"0f0"']),
    "a number too long": ("0F0,0B0\n1F9999999999\n", ["order.csv:2 column 1"]),
    "an empty row": ("0F0,0B0\n\n1F0,1B0\n", ["order.csv:2", "rank 1 has no operation"]),
    "only moves": ("0SEND_F0,0RECV_B0\n", ["order.csv:1", "rank 0 has no operation"]),
    "broken JSON": ('[["0F0",]]', ["order.csv:1", "not JSON"]),
    "a number": ("[[1, 2]]", ["key [0][0]", '"1"', "no operation"]),
    "text": ('["0F0"]', ["key [0]", "list of operations"]),
    "no ranks": ('{"schedule": "1f1b"}', ["holds no order", "ranks"]),
    "empty ranks": ('{"ranks": []}', ["key ranks", "holds no order"]),
    "a plan": ('{"layout": {"pp": 2}}', ["holds no order", "without --order"]),
    "several": ('[{"ranks": [["0F0"]]}, {"ranks": []}]', ["holds 2 orders"]),
    "a comparison": ('{"comparison": []}', ["one entry of its comparison"]),
    "a collection": ('{"source": "x", "orders": []}', ["one entry of its orders"]),
    "deep": ("[" * 100_000, ["nested too deeply"]),
    "digits": ("[" + "9" * 5000 + "]", ["number that is too long"]),
    "a bad cell in JSON": ('{"ranks": [["0F0", "0G0"]]}', ["key ranks[0][1]", '"0G0"']),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files(tmp_path: Path, case: str) -> None:
    text, expected = BAD[case]
    with pytest.raises((OrderError, FileFormatError)) as caught:
        read_order(_write(tmp_path, text))
    message = str(caught.value)
    assert "\n" not in message
    for word in ("order.csv", *expected):
        assert word in message


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="no such file"):
        read_order(str(tmp_path / "nothing.csv"))
    with pytest.raises(FileFormatError, match="folder"):
        read_order(str(tmp_path))


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(f"{rank}F0,{rank}B0\n" for rank in range(8))
    monkeypatch.setattr(torch_schedule, "MOST_OPERATIONS", 15)
    with pytest.raises(OrderError, match="too many operations; expected at most 15"):
        read_order(_write(tmp_path, text))
    monkeypatch.setattr(torch_schedule, "MOST_RANKS", 7)
    for written in (text, json.dumps([row.split(",") for row in text.split()])):
        with pytest.raises(OrderError, match="expected at most 7"):
            read_order(_write(tmp_path, written))


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.integers(0, 9), st.sampled_from("FBIW"), st.integers(0, 99), st.booleans()
            ),
            min_size=1,
            max_size=6,
        ),
        min_size=1,
        max_size=4,
    )
)
def test_what_is_written_is_read_back(rows: list[list[tuple[int, str, int, bool]]]) -> None:
    cells = [
        [
            f"({s}F{m};{s}{k}{m})OVERLAP_F_B" if paired and k != "F" else f"{s}{k}{m}"
            for s, k, m, paired in row
        ]
        for row in rows
    ]
    text = write_torch_csv(order_from_lists("order", cells))
    assert _lists(read_order("-", stdin=io.StringIO(text)).order) == cells


# --- torch's own files -------------------------------------------------------------------------


def test_torchs_files_hold_the_same_order_in_both_forms(shared_dir: Path) -> None:
    folder = shared_dir / "data" / "schedules"
    lowered = sorted(folder.glob("torch_csv_*_compute_comms.csv"))
    assert len(lowered) == 5
    for path in lowered:
        plain = str(path).replace("compute_comms", "compute_only")
        found, other = read_order(str(path)), read_order(plain)
        assert _lists(found.order) == _lists(other.order)
        assert found.left_out
        assert not other.left_out
        validate_order(found.order)
        # What is written is torch's compute-only file less its idle cells, byte for byte.
        rows = Path(plain).read_bytes().decode().split("\r\n")
        without_idle = "\r\n".join(",".join(c for c in row.split(",") if c) for row in rows)
        assert write_torch_csv(other.order) == without_idle
