"""A model of two files is whole whenever its writing ends, and no other file is removed."""

from __future__ import annotations

import subprocess
import sys
import zlib
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

from onnxq.graph import saving
from onnxq.graph.io import load, save
from tests.examples import tensor_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.graph.conftest import Parse

TEXT = "g (float[N,40] x) => (float[N,40] y) { y = MatMul(x, w) }"
NAME = r"m\.onnx\.[0-9a-f]{8}\.data"


@pytest.fixture(autouse=True)
def external(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "EXTERNAL_BYTES", 0)


@pytest.fixture
def models(parse: Parse) -> list[ir.Model]:
    """Three models that differ in their weights alone."""
    return [parse(TEXT, {"w": np.full((40, 40), n, np.float32)}) for n in range(3)]


def number(path: Path) -> int:
    """The weight of the model that stands there."""
    values = np.unique(tensor_of(load(path).graph.initializers["w"]).numpy())
    assert values.size == 1
    return int(values[0])


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_the_data_file_is_named_by_its_bytes(models: list[ir.Model], tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    save(models[0], path)
    first = names(tmp_path)
    save(models[1], path)
    second = names(tmp_path)
    assert [len(first), len(second), first == second] == [2, 2, False]
    save(models[0], path)
    assert names(tmp_path) == first
    assert number(path) == 0


def test_a_model_in_one_file_takes_the_old_data_away(
    models: list[ir.Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(models[0], tmp_path / "m.onnx")
    monkeypatch.undo()
    save(models[1], tmp_path / "m.onnx")
    assert names(tmp_path) == ["m.onnx"]


def others(folder: Path, mine: str) -> Iterable[str]:
    """Files that look alike, and that no graph at m.onnx refers to."""
    for name in ("m.onnx.data", "m.onnx.01234567.data", "other.onnx.01234567.data", "m.data"):
        (folder / name).write_bytes(b"other")
        yield name
    (folder / "m.onnx.89abcdef.data").symlink_to(folder / mine)
    yield "m.onnx.89abcdef.data"


def test_no_other_file_is_removed(models: list[ir.Model], tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    save(models[0], path)
    mine = next(name for name in names(tmp_path) if name != "m.onnx")
    kept = [*others(tmp_path, mine)]
    save(models[1], path)
    assert mine not in names(tmp_path)
    assert set(kept) < set(names(tmp_path))
    path.write_bytes(b"no model")
    save(models[2], path)
    assert len(names(tmp_path)) == len(kept) + 3  # what nobody refers to is nobody's


def test_a_name_that_other_bytes_have_is_left_to_them(
    models: list[ir.Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zlib, "crc32", lambda *_: 2**32 - 1)
    folder = tmp_path / "m.onnx.ffffffff.data"
    folder.mkdir()
    for n in (0, 1):
        save(models[n], tmp_path / "m.onnx")
        assert number(tmp_path / "m.onnx") == n
    assert names(tmp_path) == ["m.onnx", "m.onnx.00000001.data", folder.name]


def test_a_model_whose_data_were_removed_says_so(parse: Parse, tmp_path: Path) -> None:
    path, ones = tmp_path / "m.onnx", np.ones((40, 40), np.float32)
    text = "g (float[N,40] x) => (float[N,40] y) { a = MatMul(x, w) y = MatMul(a, v) }"
    save(parse(text, {"w": ones, "v": ones}), path)
    loaded = load(path)
    save(loaded, path)
    assert tensor_of(loaded.graph.initializers["w"]).numpy().max() == 1
    loaded.graph.initializers["v"].const_value = ir.tensor(ones * 2, name="v")
    save(loaded, path)
    with pytest.raises(ValueError, match="invalidated"):
        tensor_of(loaded.graph.initializers["w"]).numpy()


KILLS = """
import os, shutil, sys
from pathlib import Path
import numpy as np, onnx, onnx_ir as ir
from onnxq.graph import io, saving
from onnxq.core import atomic

saving.EXTERNAL_BYTES = 0
FILES = {module.__file__ for module in (saving, atomic)}
folder, path = Path(sys.argv[1]), Path(sys.argv[1]) / "m.onnx"

def model(n):
    text = "<ir_version: 10, opset_import: ['' : 20]> "
    text += "g (float[N,40] x) => (float[N,40] y) { y = MatMul(x, w) }"
    made = ir.from_proto(onnx.parser.parse_model(text.replace("'", chr(34))))
    node = made.graph.node(0)
    w = ir.Value(name="w", const_value=ir.tensor(np.full((40, 40), n, np.float32), name="w"))
    made.graph.register_initializer(w)
    node.replace_input_with(1, w)
    return made

def number():
    found = np.unique(io.load(path).graph.initializers["w"].const_value.numpy())
    assert found.size == 1
    return int(found[0])

def child(moment):
    left = [moment]
    def trace(frame, event, arg):
        if frame.f_code.co_filename not in FILES:
            return None
        if event in ("line", "return"):
            left[0] -= 1
            if left[0] < 0:
                os._exit(9)
        return trace
    sys.settrace(trace)
    io.save(new, path)
    sys.settrace(None)
    os._exit(0)

new, seen, moment = model(1), [], 0
while True:
    for file in folder.iterdir():
        file.unlink()
    io.save(model(0), path)
    pid = os.fork() or child(moment)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    seen.append(number())
    io.save(new, path)
    assert number() == 1
    assert not [f for f in folder.iterdir() if f.name.endswith(".tmp")]
    if status == 0:
        break
    moment += 1
assert seen == sorted(seen) and seen[0] == 0 and seen[-1] == 1
print(moment, seen.count(1))
"""


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_killed_at_any_line_one_whole_model_stands(tmp_path: Path) -> None:
    """(Some 10 CPU seconds: hundreds of moments, a process each.)"""
    command = [sys.executable, "-W", "ignore", "-c", KILLS, str(tmp_path)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    moments, behind = map(int, found.stdout.split())
    assert moments > 100
    assert 1 < behind < moments
