from __future__ import annotations

import io
import math
import time
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import FileFormatError, GraphError, InputError, ProfileError
from planner.formats.profile_csv import MAX_ROWS, read_profile, write_profile
from planner.specs import BlockShape, Layer, LayerCost, Model, Origin, Precision

HEADER = "name,forward_ms,backward_ms,parameter_bytes,activation_bytes,output_bytes"
ROW = "a,1,2,3,4,5"


def profile(*lines: str, header: str = HEADER) -> str:
    return "\n".join((header, *lines)) + "\n"


def extra(columns: str, *cells: str) -> str:
    """A profile of layers a, b, c, ... with more columns than the required ones."""
    rows = [f"{chr(97 + index)},1,2,3,4,5,{cell}" for index, cell in enumerate(cells)]
    return profile(*rows, header=f"{HEADER},{columns}")


def read(text: str, **options: object) -> Model:
    model, warnings = read_profile(None, text, **options)
    assert warnings == ()
    return model


def refuse(text: str, kind: type[InputError] = ProfileError) -> InputError:
    with pytest.raises(InputError) as caught:
        read_profile(None, text)
    assert type(caught.value) is kind
    assert caught.value.file == "<stdin>"
    assert "\n" not in str(caught.value)
    return caught.value


# --- what is read ------------------------------------------------------------------------------


def test_a_plain_profile_is_a_chain_with_the_documented_defaults() -> None:
    model = read(profile("a,1.5,3,30,40,50", "b,1,2,0,0,0"), name="two")
    assert model.name == "two"
    assert model.precision is Precision.BF16
    assert model.sequence_length is None
    first, second = model.layers
    assert (first.inputs, second.inputs) == ((), ("a",))
    assert (first.type, first.trainable, first.tied_to) == ("layer", True, None)
    assert (first.pin_stage, first.colocate_with) == (None, None)
    assert first.costs == (
        LayerCost(
            forward_ms=1.5,
            backward_ms=3.0,
            parameter_bytes=30,
            activation_bytes=40,
            output_bytes=50,
        ),
    )
    assert first.costs[0].sent_back_bytes == 50


def test_every_column_lands_in_its_field() -> None:
    header = (
        "name,type,forward_ms,backward_ms,weight_gradient_ms,parameter_bytes,activation_bytes,"
        "output_bytes,gradient_bytes,checkpoint_bytes,workspace_bytes,tp,microbatch_size,"
        "sequence_length,device,inputs,trainable,tied_to,pin_stage,with,collectives_included,origin"
    )
    model = read(
        profile(
            "e,embedding,1,2,0.5,3,4,5,6,7,8,2,4,1024,a100,,false,h,0,h,true,Formula",
            "h,head,1,2,0,3,4,5,,,,,,1024,,e,True,,-1,,,",
            header=header,
        )
    )
    embedding, head = model.layers
    assert embedding == Layer(
        name="e",
        type="embedding",
        trainable=False,
        tied_to="h",
        pin_stage=0,
        colocate_with="h",
        costs=(
            LayerCost(
                tp=2,
                microbatch_size=4,
                sequence_length=1024,
                device="a100",
                forward_ms=1,
                backward_ms=2,
                weight_gradient_ms=0.5,
                parameter_bytes=3,
                activation_bytes=4,
                output_bytes=5,
                gradient_bytes=6,
                checkpoint_bytes=7,
                workspace_bytes=8,
                collectives_included=True,
                origin=Origin.FORMULA,
            ),
        ),
    )
    assert head.costs[0].origin is Origin.MEASURED
    assert (head.inputs, head.trainable, head.pin_stage) == (("e",), True, -1)
    assert head.costs[0].gradient_bytes is None
    assert head.costs[0].weight_gradient_ms == 0.0
    assert (head.costs[0].tp, head.costs[0].microbatch_size) == (1, 1)
    assert model.sequence_length == 1024


@pytest.mark.parametrize(
    ("unit", "written", "milliseconds"),
    [("us", "1234", 1.234), ("ms", "1.234", 1.234), ("s", "0.001234", 1.234), ("us", "0.1", 1e-4)],
)
def test_time_units_are_exact(unit: str, written: str, milliseconds: float) -> None:
    header = HEADER.replace("forward_ms", f"forward_{unit}", 1)
    model = read(profile(f"a,{written},9999,0,0,0", header=header))
    assert repr(model.layers[0].costs[0].forward_ms) == repr(milliseconds)


@given(st.decimals(min_value=0, max_value=10**9, places=6))
def test_a_time_is_the_double_nearest_its_decimal(value: Decimal) -> None:
    header = HEADER.replace("forward_ms", "forward_us", 1)
    model = read(profile(f"a,{value:f},0,0,0,0", header=header))
    assert model.layers[0].costs[0].forward_ms == float(value.scaleb(-3))


@pytest.mark.parametrize(
    ("unit", "written", "size"),
    [
        ("bytes", "7.0", 7),
        ("kib", "1.5", 1536),
        ("mib", "0.25", 262_144),
        ("gib", "80", 85_899_345_920),
        ("kb", "1.5", 1500),
        ("mb", "0.000001", 1),
        ("gb", "1e-9", 1),
        ("gib", "0.1", 107_374_183),  # 107,374,182.4 rounded up
    ],
)
def test_size_units(unit: str, written: str, size: int) -> None:
    header = HEADER.replace("parameter_bytes", f"parameter_{unit}")
    assert (
        read(profile(f"a,1,1,{written},0,0", header=header)).layers[0].costs[0].parameter_bytes
        == size
    )


def test_flops_instead_of_times_default_to_twice_forward_in_the_backward() -> None:
    header = "name,forward_flops,backward_flops,parameter_bytes,activation_bytes,output_bytes"
    model = read(profile("a,1e12,,1,1,1", "b,1e12,5e11,1,1,1", header=header))
    first, second = (layer.costs[0] for layer in model.layers)
    assert (first.forward_flops, first.backward_flops) == (1e12, 2e12)
    assert (second.forward_flops, second.backward_flops) == (1e12, 5e11)
    assert first.forward_ms is None
    assert first.backward_ms is None


def test_one_layer_may_have_times_and_another_flops() -> None:
    model = read(profile("a,1,2,3,4,5,", "b,,,3,4,5,1e9", header=f"{HEADER},forward_flops"))
    assert model.layers[0].costs[0].forward_flops is None
    assert model.layers[1].costs[0].forward_flops == 1e9


def test_rows_of_a_layer_are_grouped_in_their_order() -> None:
    text = profile(
        "a,1,2,3,4,5,1,1,",
        "a,1,1,2,3,4,2,1,",
        "a,2,4,3,4,5,1,2,",
        "a,3,5,3,4,5,1,2,h100",
        "b,1,2,3,4,5,1,1,",
        header=f"{HEADER},tp,microbatch_size,device",
    )
    model = read(text)
    assert [layer.name for layer in model.layers] == ["a", "b"]
    keys = [(cost.tp, cost.microbatch_size, cost.device) for cost in model.layers[0].costs]
    assert keys == [(1, 1, None), (2, 1, None), (1, 2, None), (1, 2, "h100")]
    assert model.layers[1].inputs == ("a",)


def test_inputs_are_names_between_semicolons_and_an_empty_cell_is_a_source() -> None:
    model = read(extra("inputs", "", "a", "", "a; b;c"))
    assert [layer.inputs for layer in model.layers] == [(), ("a",), (), ("a", "b", "c")]


def test_a_byte_order_mark_crlf_and_trailing_blank_lines_change_nothing(tmp_path: Path) -> None:
    plain = profile("a,1,2,3,4,5", '"b, c",1,2,3,4,5')
    wanted = read(plain).layers
    dressed = plain.replace("\n", "\r\n") + "\r\n  \r\n\r\n"
    file = tmp_path / "model.csv"
    file.write_bytes(b"\xef\xbb\xbf" + dressed.encode())
    model, warnings = read_profile(file)
    assert (model.layers, warnings) == (wanted, ())
    assert model.name == "model"
    assert "model.csv" in model.source
    assert str(tmp_path) not in model.source
    assert read("\ufeff" + dressed).layers == wanted


def test_unknown_columns_are_named_in_one_warning_with_the_likely_spelling() -> None:
    model, warnings = read_profile(None, extra("colour,pin_stages", "red,1"))
    assert warnings == ("unknown columns not used: colour, pin_stages (did you mean pin_stage?)",)
    assert model.layers[0].pin_stage is None


# --- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "column", "words"),
    [
        ("name,", "", "name", ["lacks name"]),
        ("backward_ms", "tp", "backward_ms", ["lacks backward_ms"]),
        ("output_bytes", "color", "output_bytes", ["lacks output_bytes", "add the column"]),
        (
            "forward_ms",
            "foward_ms",
            "forward_ms",
            ["lacks forward_ms", 'did you mean to rename "foward_ms" to forward_ms?'],
        ),
        ("activation_bytes", "Activation_Bytes", "activation_bytes", ['"Activation_Bytes" to']),
        ("forward_ms,backward_ms", "tp,device", "forward_ms", ["forward_ms and backward_ms"]),
        ("forward_ms", "time", "time", ["has no unit", "forward_ms or backward_ms"]),
        ("parameter_bytes", "memory", "memory", ["has no unit", "rename it", "parameter_bytes"]),
        ("forward_ms", "forward", "forward", ["has no unit", "forward_ms", "_us"]),
        ("backward_ms", "backward", "backward", ["has no unit", "backward_ms"]),
        ("activation_bytes", "activation", "activation", ["has no unit", "activation_bytes"]),
        ("activation_bytes", "activations", "activations", ["has no unit", "activation_bytes"]),
        ("output_bytes", "output_size", "output_size", ["has no unit", "output_bytes", "_gib"]),
        ("forward_ms", "forward_ns", "forward_ns", ["unknown unit", "forward_us"]),
        ("output_bytes", "output_tb", "output_tb", ["unknown unit", "output_gib"]),
        ("output_bytes", "forward_us", "forward_us", ["same quantity as column forward_ms"]),
        ("output_bytes", "name", "name", ["twice"]),
        ("output_bytes", "flops", "flops", ["forward_flops"]),
        ("output_bytes", " ", None, ["column 6 of the header has no name"]),
    ],
)
def test_header_refusals(old: str, new: str, column: str | None, words: list[str]) -> None:
    error = refuse(profile(ROW, header=HEADER.replace(old, new, 1)))
    assert (error.line, error.column) == (1, column)
    for word in words:
        assert word in str(error)


def test_a_header_with_another_separator_is_named() -> None:
    error = refuse(profile(ROW, header=HEADER).replace(",", ";"))
    assert error.line == 1
    assert "separated by ';'" in str(error)


@pytest.mark.parametrize("column", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("-3", "is negative; expected a number >= 0"),
        ("-0.001", "is negative"),
        ("NaN", "is not a number"),
        ("nan", "is not a number"),
        ("inf", "is infinite"),
        ("-Infinity", "is infinite"),
        ("fast", "is not a number"),
        ("1_000", "no separators"),
        ("3ms", "write 3 and name the unit in the column"),
        ("1e999999999999999999999999", "out of range"),
        ("1e400", "is too large"),
        ("1e-400", "is too small"),
        ("１", "is not a number"),
        ("0x10", "is not a number"),
    ],
)
def test_number_refusals(column: int, cell: str, words: str) -> None:
    cells = ROW.split(",")
    cells[column] = cell
    error = refuse(profile("z,0,0,0,0,0", ",".join(cells)))
    assert (error.line, error.column) == (3, HEADER.split(",")[column])
    assert error.value == cell
    assert words in str(error)


def test_numbers_with_thousands_separators_are_refused_with_the_fix() -> None:
    assert "no separators" in str(refuse(profile('a,"1,234",2,3,4,5')))


@pytest.mark.parametrize("column", [0, 1, 2, 3, 4, 5])
def test_empty_required_cells(column: int) -> None:
    cells = ROW.split(",")
    cells[column] = " "
    error = refuse(profile(",".join(cells)))
    assert (error.line, error.column) == (2, HEADER.split(",")[column])
    assert "the cell is empty" in str(error)


def test_empty_work_is_reported_in_the_column_that_the_file_has() -> None:
    header = HEADER.replace("forward_ms,backward_ms", "forward_flops")
    error = refuse(profile("a,,1,1,1", header=header))
    assert (error.line, error.column) == (2, "forward_flops")


def test_fractions_of_a_byte_and_absurd_sizes() -> None:
    error = refuse(profile("a,1,2,3,4.5,5"))
    assert (error.line, error.column, error.value) == (2, "activation_bytes", "4.5")
    assert "write 5" in str(error)
    error = refuse(profile("a,1,2,3,4,1e20"))
    assert (error.column, error.problem) == ("output_bytes", "is too large")


@pytest.mark.parametrize(
    ("column", "cell", "words"),
    [
        ("tp", "0", "a whole number"),
        ("tp", "1.5", "a whole number"),
        ("microbatch_size", "-1", "a whole number"),
        ("sequence_length", "4k", "a whole number"),
        ("tp", "9" * 5000, "a whole number"),
        ("pin_stage", "first", "0 is the first stage, -1 the last"),
        ("pin_stage", "1.0", "0 is the first stage"),
        ("pin_stage", "0" * 5000, "0 is the first stage"),
        ("trainable", "yes", "true or false"),
        ("collectives_included", "1", "true or false"),
        ("origin", "guessed", "expected measured, interpolated, calibrated or formula; leave"),
        ("origin", "mesured", "did you mean measured?"),
        ("tied_to", "aa", "is no layer of this profile"),
        ("tied_to", "a", "is the layer itself"),
        ("with", "q", "is no layer of this profile"),
        ("with", "a", "is the layer itself"),
        ("inputs", "q", "is no layer of this profile"),
        ("inputs", "q;;q", "is no layer of this profile"),
        ("inputs", ";", "empty name"),
        ("weight_gradient_ms", "2.5", "more than the whole backward"),
        ("weight_gradient_us", "2001", "more than the whole backward"),
        ("forward_flops", "1e9", "has both times and flops"),
        ("backward_flops", "1e9", "has both times and flops"),
    ],
)
def test_cell_refusals(column: str, cell: str, words: str) -> None:
    error = refuse(extra(column, cell))
    assert (error.line, error.column) == (2, column)
    assert words in str(error)


def test_unknown_names_come_with_the_nearest_one() -> None:
    lines = ["embedding,1,2,3,4,5,", "block,1,2,3,4,5,embeding"]
    error = refuse(profile(*lines, header=f"{HEADER},inputs"))
    assert (error.line, error.column, error.value) == (3, "inputs", "embeding")
    assert error.fix == "did you mean embedding?"


def test_an_input_listed_twice() -> None:
    error = refuse(extra("inputs", "", "a;a"))
    assert (error.line, error.column, error.value) == (3, "inputs", "a")


def test_duplicate_names_with_the_same_key() -> None:
    error = refuse(profile(ROW, ROW))
    assert (error.line, error.column, error.value) == (3, "name", "a")
    assert "line 2 too, with the same tp" in str(error)


def test_duplicate_names_apart() -> None:
    text = profile("a,1,2,3,4,5,1", "b,1,2,3,4,5,1", "a,1,2,3,4,5,2", header=f"{HEADER},tp")
    error = refuse(text)
    assert (error.line, error.column, error.value) == (4, "name", "a")
    assert "line 2" in str(error)
    assert "next to each other" in str(error)


@pytest.mark.parametrize(
    ("column", "first", "second"),
    [
        ("type", "mlp", "block"),
        ("inputs", "", "b"),
        ("trainable", "true", "false"),
        ("tied_to", "b", ""),
        ("pin_stage", "0", "1"),
        ("with", "", "b"),
    ],
)
def test_rows_of_a_layer_must_agree(column: str, first: str, second: str) -> None:
    text = profile(
        f"a,1,2,3,4,5,1,{first}", f"a,1,2,3,4,5,2,{second}", header=f"{HEADER},tp,{column}"
    )
    error = refuse(text)
    assert (error.line, error.column) == (3, column)
    assert "line 2 of the same layer a" in str(error)


def test_a_layer_with_times_in_one_row_and_flops_in_another() -> None:
    text = profile("a,1,2,3,4,5,1,", "a,,,3,4,5,2,1e9", header=f"{HEADER},tp,forward_flops")
    error = refuse(text)
    assert (error.line, error.column) == (3, "forward_flops")
    assert "times in one row and flops in another" in str(error)


def test_flops_with_a_part_of_the_backward_or_without_the_forward() -> None:
    header = f"{HEADER},weight_gradient_ms,forward_flops,backward_flops"
    error = refuse(profile("a,,,3,4,5,1,1e9,", header=header))
    assert (error.line, error.column) == (2, "weight_gradient_ms")
    error = refuse(profile("a,,,3,4,5,,,1e9", header=header))
    assert (error.line, error.column) == (2, "forward_flops")


def test_names_that_cannot_be_referred_to() -> None:
    error = refuse(profile("a;b,1,2,3,4,5"))
    assert (error.line, error.column) == (2, "name")
    error = refuse(profile('"a\nb",1,2,3,4,5'))
    assert (error.line, error.column, error.value) == (2, "name", "a\\nb")


def test_a_self_loop_an_order_violation_and_a_cycle_name_the_layers() -> None:
    error = refuse(extra("inputs", "", "b"), GraphError)
    assert (error.line, error.column, error.value) == (3, "inputs", "b")
    assert "reads itself" in str(error)
    error = refuse(extra("inputs", "", "c", "a"), GraphError)
    assert (error.line, error.column, error.value) == (3, "inputs", "c")
    assert "line 4" in str(error)
    assert "move the row of b below that of c" in str(error)
    error = refuse(extra("inputs", "", "a;d", "b", "c"), GraphError)
    assert (error.line, error.column) == (3, "inputs")
    assert "b -> c -> d -> b" in str(error)


@pytest.mark.parametrize("text", ["", "\n\n", "\ufeff", " \r\n"])
def test_an_empty_file(text: str) -> None:
    assert "is empty" in str(refuse(text))


def test_a_header_only() -> None:
    error = refuse(HEADER + "\n\n")
    assert error.line == 2
    assert "a header and no rows" in str(error)


@pytest.mark.parametrize(
    ("row", "fields", "fix"), [("a,1,2,3,4", 5, "commas"), (ROW + ",6", 7, "quote fields")]
)
def test_wrong_field_counts(row: str, fields: int, fix: str) -> None:
    error = refuse(profile("z,0,0,0,0,0", row))
    assert error.line == 3
    assert f"the row has {fields} fields; expected 6" in str(error)
    assert fix in str(error)


def test_a_blank_line_between_rows() -> None:
    error = refuse(profile(ROW, "", "b,1,2,3,4,5"))
    assert error.line == 3
    assert "blank line" in str(error)


def test_an_open_quote_names_the_line_where_its_row_begins() -> None:
    error = refuse(profile(ROW, '"b,1,2,3,4,5', "c,1,2,3,4,5"))
    assert error.line == 3
    assert "check the quotes" in str(error)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    file = tmp_path / "model.csv"
    for data, line, words in (
        (profile(ROW).encode() + b"caf\xe9,1,2,3,4,5\n", 3, "byte 0xe9 is not UTF-8"),
        (profile(ROW).encode() + b"b\0,1,2,3,4,5\n", 3, "NUL byte"),
        (profile(ROW).encode("utf-16"), None, "UTF-16"),
    ):
        file.write_bytes(data)
        with pytest.raises(FileFormatError) as caught:
            read_profile(file)
        assert (caught.value.file, caught.value.line) == (str(file), line)
        assert words in str(caught.value)
    with pytest.raises(FileFormatError, match="NUL byte"):
        read_profile(None, profile("a\0,1,2,3,4,5"))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="no such file"):
        read_profile(tmp_path / "none.csv")
    with pytest.raises(FileFormatError, match="is a folder"):
        read_profile(tmp_path)


def test_a_million_rows_are_refused_by_size_within_a_second(tmp_path: Path) -> None:
    file = tmp_path / "huge.csv"
    file.write_text(profile(*("layer,1,2,3,4,5",) * 1_000_000))
    start = time.process_time()
    with pytest.raises(ProfileError, match="1,000,000 rows; expected at most 200,000") as caught:
        read_profile(file)
    assert time.process_time() - start < 1.0
    assert caught.value.file == str(file)


def test_the_row_limit_is_exact() -> None:
    # A row beyond the limit is refused for its number; at the limit, for what it says.
    rows = ("a,-1,2,3,4,5",) * MAX_ROWS
    assert "is negative" in str(refuse(profile(*rows)))
    assert f"{MAX_ROWS + 1:,} rows" in str(refuse(profile(*rows, ROW)))


def test_ten_thousand_layers_are_read_in_good_time() -> None:
    text = profile(*(f"layer{index},1.25,2.5,3,4,5" for index in range(10_000)))
    start = time.process_time()
    model = read(text)
    assert len(model.layers) == 10_000
    assert time.process_time() - start < 5.0


# --- writing -----------------------------------------------------------------------------------

names = st.text(
    st.characters(codec="utf-8", exclude_categories=("C", "Z"), exclude_characters=";"),
    min_size=1,
    max_size=8,
)
times = st.one_of(st.just(0.0), st.floats(min_value=1e-25, max_value=1e25))
sizes = st.integers(min_value=0, max_value=2**50)
degrees = st.integers(min_value=1, max_value=99_999)


@st.composite
def costs(draw: st.DrawFn, timed: bool, key: tuple[int, int, int | None, str | None]) -> LayerCost:
    if timed:
        backward = draw(times)
        weight = draw(st.none() | st.floats(min_value=0, max_value=1).map(lambda x: x * backward))
        if weight is not None and 0 < weight < 1e-25:
            weight = 0.0
        work = {
            "forward_ms": draw(times),
            "backward_ms": backward,
            "weight_gradient_ms": weight,
        }
    else:
        work = {"forward_flops": draw(times), "backward_flops": draw(times)}
    tp, microbatch_size, sequence_length, device = key
    return LayerCost(
        tp=tp,
        microbatch_size=microbatch_size,
        sequence_length=sequence_length,
        device=device,
        parameter_bytes=draw(sizes),
        activation_bytes=draw(sizes),
        output_bytes=draw(sizes),
        gradient_bytes=draw(st.none() | sizes),
        checkpoint_bytes=draw(st.none() | sizes),
        workspace_bytes=draw(st.just(0) | sizes),
        collectives_included=draw(st.booleans()),
        origin=draw(st.sampled_from(Origin)),
        **work,
    )


@st.composite
def models(draw: st.DrawFn) -> Model:
    found = draw(st.lists(names, min_size=1, max_size=6, unique=True))
    chain = draw(st.booleans())
    layers = []
    for index, name in enumerate(found):
        earlier = found[:index]
        others = st.sampled_from([other for other in found if other != name] or [None])
        inputs = (
            tuple(earlier[-1:])
            if chain
            else tuple(other for other in earlier if draw(st.booleans()))
        )
        keys = draw(
            st.lists(
                st.tuples(degrees, degrees, st.none() | degrees, st.none() | names),
                min_size=1,
                max_size=3,
                unique=True,
            )
        )
        timed = draw(st.booleans())
        layers.append(
            Layer(
                name=name,
                type=draw(st.sampled_from(["layer", "block", "moe"])),
                inputs=inputs,
                trainable=draw(st.booleans()),
                tied_to=draw(st.none() | others),
                pin_stage=draw(st.none() | st.integers(-99, 99)),
                colocate_with=draw(st.none() | others),
                costs=tuple(draw(costs(timed, key)) for key in keys),
            )
        )
    lengths = {cost.sequence_length for layer in layers for cost in layer.costs}
    return Model(
        name="made",
        layers=tuple(layers),
        sequence_length=lengths.pop() if len(lengths) == 1 else None,
    )


def written(model: Model) -> str:
    stream = io.StringIO()
    write_profile(model, stream)
    return stream.getvalue()


@given(models())
def test_what_is_written_reads_back_equal(model: Model) -> None:
    again = read(written(model), name="made")
    assert again.model_copy(update={"source": ""}) == model
    assert again.digest() == model.digest()


def test_columns_that_say_nothing_are_not_written() -> None:
    assert written(read(profile("a,1,2,3,4,5", "b,1,2,3,4,5"))).splitlines()[0] == (
        "name,type,forward_ms,backward_ms,parameter_bytes,activation_bytes,output_bytes"
    )


def test_origins_are_written_where_some_row_is_not_measured() -> None:
    text = written(read(profile("a,1,2,3,4,5,", "b,1,2,3,4,5,formula", header=f"{HEADER},origin")))
    assert [line.rsplit(",", 1)[1] for line in text.splitlines()] == [
        "origin", "measured", "formula",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["a;b", " a", "a\nb"])
def test_names_a_csv_cannot_carry_are_not_written(name: str) -> None:
    cost = LayerCost(forward_ms=1, backward_ms=2)
    stream = io.StringIO()
    with pytest.raises(FileFormatError, match="cannot be written"):
        write_profile(Model(name="m", layers=(Layer(name=name, costs=(cost,)),)), stream)
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    "work",
    [
        {},
        {"forward_ms": 1.0},
        {"backward_flops": 1.0},
        {"forward_ms": 1.0, "backward_ms": 1.0, "forward_flops": 1.0},
    ],
)
def test_costs_that_would_not_read_back_are_not_written(work: dict[str, float]) -> None:
    layer = Layer(name="a", costs=(LayerCost(**work),))
    with pytest.raises(FileFormatError, match="layer a has a cost with neither or both"):
        write_profile(Model(name="m", layers=(layer,)), io.StringIO())


def test_layers_priced_by_their_shape_are_not_written() -> None:
    shape = BlockShape(hidden=8, heads=1, kv_heads=1, head_dim=8, ffn_hidden=32, gated=False)
    model = Model(name="m", layers=(Layer(name="block0", shape=shape),))
    with pytest.raises(FileFormatError, match="layer block0 has a shape and no measured costs"):
        write_profile(model, io.StringIO())


def test_every_number_read_is_finite() -> None:
    model = read(profile("a,1e30,1e30,0,0,0"))
    assert math.isfinite(model.layers[0].costs[0].forward_ms or math.inf)
