from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from scripts import same_bytes
from scripts._same_bytes import trees
from scripts._same_bytes.lists import OtherMachineError, SumList
from scripts._same_bytes.machine import this_machine
from scripts._same_bytes.nets import GROUPS, SMALL, all_names
from scripts._same_bytes.sums import numbers_of, read, sums
from scripts._same_bytes.trees import ROOT, Tree, write_files
from scripts.same_bytes import Verdict, compared, compared_with_list, files_in, main, table

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.core.arrays import Array

FILE = "residual/portable.qdq.onnx"
FIRST_OF_ROW_1 = (np.arange(64) == 8).reshape(8, 8, 1, 1)
Edit = Callable[[onnx.ModelProto], None]
Judge = Callable[[Edit], Verdict]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small nets."""
    folder = tmp_path_factory.mktemp("once")
    write_files([Tree(ROOT, folder)], SMALL, 1)
    return folder


@pytest.fixture
def verdict(written: Path, tmp_path: Path) -> Judge:
    """Compares an edited copy of FILE with FILE."""

    def judged(edit: Edit) -> Verdict:
        model = onnx.load(written / FILE)
        edit(model)
        (tmp_path / FILE).parent.mkdir()
        onnx.save(model, tmp_path / FILE)
        return compared(FILE, tmp_path, written)

    return judged


def change_constant(model: onnx.ModelProto, name: str, change: Callable[[Array], Array]) -> None:
    tensor = next(one for one in model.graph.initializer if one.name == name)
    changed = np.asarray(change(numpy_helper.to_array(tensor)))
    tensor.CopyFrom(numpy_helper.from_array(changed, name))


def read_by(model: onnx.ModelProto, op_type: str, slot: int) -> str:
    """Name of the first constant that such a node reads there."""
    constants = {tensor.name for tensor in model.graph.initializer}
    found = (str(node.input[slot]) for node in model.graph.node if node.op_type == op_type)
    return next(name for name in found if name in constants)


@pytest.mark.nightly
def test_two_processes_write_the_same_files(written: Path, tmp_path: Path) -> None:
    write_files([Tree(ROOT, tmp_path)], SMALL, 1)
    files = files_in(written, list(SMALL))
    assert files == files_in(tmp_path, list(SMALL))
    assert len(files) == 7 + 7 + 2 + 2 + 2
    for file in files:
        assert sums(written / file) == sums(tmp_path / file)
        assert compared(file, written, tmp_path) == Verdict(file, "equal")


@pytest.mark.nightly
def test_a_changed_weight_is_told_with_its_place(verdict: Judge) -> None:
    def edit(model: onnx.ModelProto) -> None:
        name = read_by(model, "DequantizeLinear", 0)
        change_constant(
            model, name, lambda integers: np.where(FIRST_OF_ROW_1, np.int8(99), integers)
        )

    found = verdict(edit)
    assert found.kind == "integers differ"
    assert "DequantizeLinear" in found.words
    assert "int8[8, 8, 1, 1], 1 of 64 elements differ, the first at [1, 0, 0, 0]: 99, was" in (
        found.words
    )


def test_a_changed_scale_counts_as_the_integers_do(verdict: Judge) -> None:
    def edit(model: onnx.ModelProto) -> None:
        name = read_by(model, "QuantizeLinear", 1)
        change_constant(model, name, lambda scale: np.nextafter(scale, 1))

    found = verdict(edit)
    assert found.kind == "integers differ"
    assert "(QuantizeLinear 'x_quantize'), input 1: float32[], 1 of 1" in found.words


def test_metadata_that_names_source_integer_does_not_count(verdict: Judge) -> None:
    def edit(model: onnx.ModelProto) -> None:
        model.doc_string = model.graph.doc_string = "other.py:3"
        for node in model.graph.node:
            node.doc_string = "other.py:4"
            node.metadata_props.add(key="namespace", value="other.Module")
            node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value="other.py:5")

    assert verdict(edit).kind == "equal"


def test_other_metadata_counts(verdict: Judge) -> None:
    def edit(model: onnx.ModelProto) -> None:
        model.graph.node[2].metadata_props.add(key="onnxq.other", value="1")

    found = verdict(edit)
    assert found.kind == "bytes differ"
    assert found.words.startswith("graph.node[2] (")
    assert ".metadata_props" in found.words


def test_a_renamed_node_changes_the_bytes_alone(verdict: Judge) -> None:
    def edit(model: onnx.ModelProto) -> None:
        model.graph.node[1].name = "other"

    found = verdict(edit)
    assert found.kind == "bytes differ"
    assert found.words.startswith("graph.node[1] (")
    assert ".name: 'other', was" in found.words


def test_a_constant_that_nobody_read_before_is_told(verdict: Judge) -> None:
    def edit(model: onnx.ModelProto) -> None:
        model.graph.node.append(model.graph.node[0])

    found = verdict(edit)
    assert found.kind == "integers differ"
    assert "only the working tree has it" in found.words


def test_constants_in_bodies_count(written: Path) -> None:
    model = read(written / "gru_integer" / "portable.dynamic.onnx")
    inside = [one.reader for one in numbers_of(model) if "Scan" in one.reader]
    assert any("body, node 3 (Mul" in reader for reader in inside)
    assert any("(MatMulInteger" in reader for reader in inside)


def test_a_file_of_one_tree_alone_is_no_equal(written: Path, tmp_path: Path) -> None:
    found = compared(FILE, tmp_path, written)
    assert (found.kind, found.words) == ("not made", "only the commit makes it")
    lines = table(["residual"], [found, Verdict("residual/other", "equal")]).splitlines()
    assert lines[0].split() == ["residual", "1", "not", "made,", "1", "equal"]
    assert lines[1].endswith("portable.qdq.onnx: not made: only the commit makes it")


def test_a_list_finds_what_differs_and_reads_back(written: Path, tmp_path: Path) -> None:
    made = SumList(this_machine(), "0" * 40, {FILE: sums(written / FILE)})
    made.write(tmp_path / "sums.json")
    known = SumList.read(tmp_path / "sums.json")
    assert known == made
    assert compared_with_list(FILE, written, known).kind == "equal"
    other = replace(known, files={FILE: replace(known.files[FILE], bytes_sum="")})
    assert compared_with_list(FILE, written, other).kind == "bytes differ"
    other = replace(known, files={FILE: replace(known.files[FILE], numbers_sum="")})
    assert compared_with_list(FILE, written, other).kind == "integers differ"
    assert compared_with_list(FILE, tmp_path, known).kind == "not made"


def test_a_list_of_another_machine_is_refused_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sums.json"
    machine = replace(this_machine(), cpu="8086", versions="onnxruntime 0.1")
    SumList(machine, "0123456789abcdef", {}).write(path)
    with pytest.raises(OtherMachineError, match=r"cpu: .*, not 8086"):
        SumList.read(path)
    monkeypatch.setattr("sys.argv", ["same_bytes", "--against", str(path)])
    assert main() == 2
    told = capsys.readouterr().err
    assert "not onnxruntime 0.1" in told
    assert "--against 0123456789ab" in told


def test_the_command_ends_with_1_where_a_net_is_not_made(
    written: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torch")  # names of all nets are asked for, and architectures are modules

    def copied(trees: list[Tree], names: list[str], jobs: int) -> None:
        assert jobs == 1
        for tree in trees:
            for name in names[1:]:
                shutil.copytree(written / name, tree.files / name)

    (tmp_path / "cache").mkdir()
    monkeypatch.setattr(same_bytes, "write_files", copied)
    monkeypatch.setattr(same_bytes, "cache_of", lambda _: tmp_path / "cache")
    monkeypatch.setattr("sys.argv", ["same_bytes", "--against", "HEAD", "--jobs", "1", *SMALL])
    assert main() == 1
    out = capsys.readouterr().out
    assert f"{SMALL[0]:20} no file was made" in out
    assert "13 files: 13 equal" in out


@pytest.mark.parametrize("name", ["no_such_net", "no-such-commit"])
def test_unknown_names_are_refused(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["same_bytes", "--against", name, *SMALL, "no_such_net"])
    with pytest.raises(SystemExit):
        main()
    assert "no such net: no_such_net" in capsys.readouterr().err


def test_files_are_kept_while_the_integer_that_builds_models_does_the_same() -> None:
    before = trees._integer('"""Doc."""\n\ndef f():\n    """It."""\n    return 1\n')
    assert trees._integer("# why\ndef f():\n    return 1\n") == before
    assert trees._integer("def f():\n    return 2\n") != before


def test_every_net_has_one_name() -> None:
    names = all_names()
    assert len(set(names)) == len(names) == 25 + 7 + 36
    assert {name for group in GROUPS.values() for name in group()} == set(names)
