from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from planner.errors import FileFormatError, InputError, ModelConfigError, NotInCatalogError
from planner.formats.models import read_model
from planner.specs import Precision

PROFILE = "name,forward_ms,backward_ms,parameter_bytes,activation_bytes,output_bytes\na,1,2,3,4,5\n"
GRAPH = (
    "node1 -- ReLU() -- forward_compute_time=1.0, backward_compute_time=2.0, "
    "activation_size=3.0, parameter_size=4.0\n"
)
# The smallest published GPT-2, https://huggingface.co/openai-community/gpt2
CONFIG = json.dumps(
    {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": 768,
        "n_head": 12,
        "n_layer": 12,
        "n_positions": 1024,
        "n_ctx": 1024,
        "vocab_size": 50257,
    }
)


@pytest.mark.parametrize(
    ("file", "content", "layers", "precision"),
    [
        ("model.csv", PROFILE, ["a"], Precision.BF16),
        ("model.tsv.bak", PROFILE, ["a"], Precision.BF16),
        ("graph.txt", GRAPH, ["node1"], Precision.FP32),
        ("profile", GRAPH, ["node1"], Precision.FP32),
    ],
)
def test_files_are_told_apart(
    tmp_path: Path, file: str, content: str, layers: list[str], precision: Precision
) -> None:
    path = tmp_path / file
    path.write_text(content)
    model, warnings = read_model(str(path))
    assert [layer.name for layer in model.layers] == layers
    assert (model.precision, warnings) == (precision, ())
    asked, _ = read_model(str(path), precision=Precision.FP16)
    assert asked.precision is Precision.FP16


def test_a_config_and_the_folder_that_holds_one(tmp_path: Path) -> None:
    folder = tmp_path / "my-gpt"
    folder.mkdir()
    (folder / "config.json").write_text(CONFIG)
    for source in (folder, folder / "config.json"):
        model, _ = read_model(str(source), sequence_length=512)
        assert model.name == "my-gpt"
        assert len(model.layers) == 14
        assert model.sequence_length == 512
    (tmp_path / "small.json").write_text(CONFIG)
    assert read_model(str(tmp_path / "small.json"))[0].name == "small"


@pytest.mark.parametrize(
    ("content", "layers"), [(PROFILE, 1), (GRAPH, 1), ("\ufeff" + PROFILE, 1), (CONFIG, 14)]
)
def test_standard_input_is_told_apart_by_its_content(content: str, layers: int) -> None:
    for stream in (io.StringIO(content), io.TextIOWrapper(io.BytesIO(content.encode()), "ascii")):
        model, _ = read_model("-", stdin=stream)
        assert len(model.layers) == layers


def test_errors_of_standard_input_name_it() -> None:
    with pytest.raises(InputError, match=r"^<stdin>:2 column forward_ms: \"x\" is not a number"):
        read_model("-", stdin=io.StringIO(PROFILE.replace("a,1", "a,x")))
    with pytest.raises(FileFormatError, match=r"^<stdin>: is empty"):
        read_model("-", stdin=io.StringIO(""))
    with pytest.raises(FileFormatError, match="byte 0xff is not UTF-8"):
        read_model("-", stdin=io.TextIOWrapper(io.BytesIO(b"name\n\xff\n")))
    with pytest.raises(FileFormatError, match="standard input is not connected"):
        read_model("-")


def test_catalog_names() -> None:
    model, _ = read_model("gpt2-xl", precision=Precision.FP16, sequence_length=256)
    assert (model.precision, model.sequence_length) == (Precision.FP16, 256)
    with pytest.raises(NotInCatalogError, match="gpt3-175b"):
        read_model("gpt3-175")
    with pytest.raises(InputError):
        read_model("a\0b")
    with pytest.raises(InputError):
        read_model("x" * 5000)
    with pytest.raises(FileFormatError, match="no model is given"):
        read_model(" ")


def test_a_folder_named_like_a_catalog_model_does_not_hide_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gpt2-xl").mkdir()
    monkeypatch.chdir(tmp_path)
    assert len(read_model("gpt2-xl")[0].layers) == 50


def test_a_missing_file_is_not_taken_for_a_name(tmp_path: Path) -> None:
    (tmp_path / "vgg16.csv").write_text(PROFILE)
    with pytest.raises(FileFormatError, match="no such file") as caught:
        read_model(str(tmp_path / "vgg61.csv"))
    assert str(caught.value.fix).endswith("vgg16.csv?")
    with pytest.raises(FileFormatError, match=r"^missing\.csv: no such file$"):
        read_model("missing.csv")


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"is a folder without config\.json"):
        read_model(str(tmp_path))


@pytest.mark.parametrize(
    ("file", "content", "kind", "words"),
    [
        ("notes.txt", "to do\n", FileFormatError, "is of no known kind"),
        ("empty.csv", "", FileFormatError, "is empty"),
        ("config.json", "[1, 2]", ModelConfigError, "config.json"),
        ("config.json", "{", ModelConfigError, "config.json"),
    ],
)
def test_files_that_are_no_model(
    tmp_path: Path, file: str, content: str, kind: type[InputError], words: str
) -> None:
    path = tmp_path / file
    path.write_text(content)
    with pytest.raises(kind, match=words):
        read_model(str(path))
