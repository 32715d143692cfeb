"""What ``-o`` writes to, and what it refuses before anything is solved."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cli_command import Command, profile_text

from planner.cli import output

CUT = ("--stages", "2", "--bandwidth", "1GB/s")


def test_inputs_are_not_overwritten(planner: Command) -> None:
    profile = planner.write("in.csv", profile_text())
    os.symlink(profile, planner.folder / "link.csv")
    os.link(profile, planner.folder / "hard.csv")
    for name in (profile, "in.csv", "./in.csv", "link.csv", "hard.csv"):
        line = planner.refuses("partition", "in.csv", *CUT, "-o", name)
        assert line == f"error: {name}: is an input as well; write to another file"
    assert Path(profile).read_text() == profile_text()


def test_a_cluster_file_is_not_overwritten(planner: Command) -> None:
    cluster = planner.write("cluster.yaml", "anything: at all\n")
    options = ("--global-batch", "8", "--seq-len", "4096", "-o", "cluster.yaml")
    line = planner.refuses("plan", "llama3-8b", "--cluster", cluster, *options)
    assert "is an input as well" in line


def test_catalog_names_are_no_files(planner: Command) -> None:
    planner.write("in.csv", profile_text())
    output.check_output("llama3-8b", inputs=("llama3-8b", None, "-"))


@pytest.mark.parametrize(
    ("name", "said"), [("x" * 300, "File name too long"), ("loop", "levels of symbolic links")]
)
def test_names_that_the_system_refuses(planner: Command, name: str, said: str) -> None:
    planner.write("in.csv", profile_text())
    os.symlink("loop", planner.folder / "loop")
    assert said in planner.refuses("partition", "in.csv", *CUT, "-o", name)


def test_a_name_as_long_as_allowed(planner: Command) -> None:
    planner.write("in.csv", profile_text())
    name = "é" * 120 + ".json"
    assert planner("partition", "in.csv", *CUT, "-o", name).status == 0
    assert sorted(os.listdir()) == ["in.csv", name]


def test_mode_and_link_are_kept(planner: Command) -> None:
    planner.write("in.csv", profile_text())
    planner.write("plan.json", "old")
    os.chmod("plan.json", 0o640)
    os.mkdir("elsewhere")
    os.symlink("../plan.json", "elsewhere/link.json")
    assert planner("partition", "in.csv", *CUT, "-o", "elsewhere/link.json").status == 0
    assert os.path.islink("elsewhere/link.json")
    assert os.listdir("elsewhere") == ["link.json"]
    assert Path("plan.json").read_text().startswith("{")
    assert os.stat("plan.json").st_mode & 0o777 == 0o640


def test_a_new_file_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        output.write_text(str(tmp_path / "new.json"), "{}")
    finally:
        os.umask(before)
    assert os.stat(tmp_path / "new.json").st_mode & 0o777 == 0o640


def test_a_link_to_nothing_makes_its_target(tmp_path: Path) -> None:
    os.symlink("target.json", tmp_path / "link.json")
    output.write_text(str(tmp_path / "link.json"), "{}")
    assert (tmp_path / "target.json").read_text() == "{}"
    assert os.path.islink(tmp_path / "link.json")


def test_devices_are_written_to(tmp_path: Path) -> None:
    output.write_text(os.devnull, "{}")
    assert not os.path.isfile(os.devnull)


def test_an_interrupted_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plan.json").write_text("old")

    def interrupted(source: str, target: str) -> None:
        raise SystemExit(143)

    monkeypatch.setattr(output.os, "replace", interrupted)
    with pytest.raises(SystemExit):
        output.write_text(str(tmp_path / "plan.json"), "new")
    assert os.listdir(tmp_path) == ["plan.json"]
    assert (tmp_path / "plan.json").read_text() == "old"
