"""Every way in which torch runs code of a .pt2 file is refused; what torch writes is read."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from onnxq.errors import ModelError
from onnxq.pytorch.modules.adapter import as_module
from onnxq.pytorch.modules.program_file import read_program

if TYPE_CHECKING:
    from collections.abc import Callable

X, K = torch.ones(4, 4), torch.zeros(1, 2, dtype=torch.int64)
CODE = "__import__('os').system('touch PWNED')"
GRAPH = "models/model.json"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3).requires_grad_(False)
        self.register_buffer("shift", torch.ones(3), persistent=False)

    def forward(self, x: Tensor, *, more: dict[str, Tensor]) -> dict[str, Tensor]:
        y = self.fc(x) + self.shift
        kept = torch.cond(y.sum() > 0, lambda a: a + 1, lambda a: a * 2, (y,))
        return {"a": kept.reshape(-1, 2).gather(0, more["a-b"])}


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch PWNED",)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = 2 * torch.export.Dim("half", min=2, max=100)
    shapes = {"x": {0: rows}, "more": {"a-b": {}}}
    program = torch.export.export(Net(), (X,), {"more": {"a-b": K}}, dynamic_shapes=shapes)
    path = tmp_path_factory.mktemp("saved") / "net.pt2"
    torch.export.save(program, path, extra_files={"notes": "any text"})
    return path


def pickled() -> bytes:
    made = io.BytesIO()
    torch.save({"a": Evil()}, made)
    return made.getvalue()


def text(pattern: str, by: str) -> Callable[[dict[str, bytes]], None]:
    def change(records: dict[str, bytes]) -> None:
        found, count = re.subn(pattern, lambda _: by, records[GRAPH].decode())
        assert count
        records[GRAPH] = found.encode()

    return change


def record(name: str, data: bytes) -> Callable[[dict[str, bytes]], None]:
    return lambda records: records.update({name: data})


def graph(change: Callable[[Any], Any]) -> Callable[[dict[str, bytes]], None]:
    def changed(records: dict[str, bytes]) -> None:
        program = json.loads(records[GRAPH])
        change(program)
        records[GRAPH] = json.dumps(program).encode()

    return changed


def tree(key: str, kind: str, context: str) -> Callable[[dict[str, bytes]], None]:
    def change(program: Any) -> None:
        signature = program["graph_module"]["module_call_graph"][0]["signature"]
        protocol, spec = json.loads(signature[key])
        place = spec["children_spec"][1] if key == "in_spec" else spec
        place.update(type=kind, context=context)
        signature[key] = json.dumps([protocol, spec])

    return graph(change)


def pickle_weights(records: dict[str, bytes]) -> None:
    name = "data/weights/model_weights_config.json"
    records[name] = records[name].replace(b'"use_pickle": false', b'"use_pickle": true')
    records["data/weights/weight_0"] = pickled()


def opaque_constant(records: dict[str, bytes]) -> None:
    name = "data/constants/model_constants_config.json"
    records[name] = records[name].replace(b"tensor_0", b"opaque_obj_0")
    records["data/constants/opaque_obj_0"] = pickled()


def old_archive(records: dict[str, bytes]) -> None:
    records.clear()
    records["version"] = b"8.0"


ENUM = '[{"\\u005f_enum__": true, "fqn": "antigravity:A", "name": "a"}]'
EXPR, TARGET = r'(?<="expr_str": )"[^"]*"', r"torch\.ops\.aten\.linear\.default"
HOSTILE: dict[str, Callable[[dict[str, bytes]], None]] = {
    "pickled sample inputs": record("data/sample_inputs/model.pt", pickled()),
    "pickled weights": pickle_weights,
    "weights of the old format": record("data/weights/model.pt", pickled()),
    "constants of the old format": record("data/constants/model.pt", pickled()),
    "opaque constant": opaque_constant,
    "compiled library": record("data/aotinductor/model/evil.so", b"\x7fELF"),
    "another model": record("models/evil.json", b"{}"),
    "expression": text(EXPR, json.dumps(CODE)),
    "expression in a function": text(EXPR, json.dumps(f"Add(Integer(1), {CODE})")),
    "expression in a symbol": text(EXPR, json.dumps(f'Symbol("{CODE}")')),
    "expression in a keyword": text(EXPR, json.dumps(f"Symbol('s77', positive={CODE})")),
    "expression as text of a function": text(EXPR, json.dumps('Max("__import__")')),
    "expression of attributes": text(EXPR, json.dumps("Integer.__class__")),
    "lambda": text(EXPR, json.dumps("(lambda: 1)()")),
    "huge power": text(EXPR, json.dumps("Pow(Integer(9), Integer(999999999))")),
    "tower of powers": text(EXPR, json.dumps("9**9**9**9")),
    "huge shift": text(EXPR, json.dumps("LShift(Integer(1), Integer(99999999999))")),
    "huge precision": text(EXPR, json.dumps("Float('1.5', precision=99999999999)")),
    "deep expression": text(EXPR, json.dumps("(" * 4000 + "1" + ")" * 4000)),
    "function of torch": text(TARGET, "torch.os.system"),
    "function of another module": text(TARGET, "torch.hub.load"),
    "method of operators": text(TARGET, "torch.ops.load_library"),
    "import of operators": text(TARGET, "torch.ops.import_module"),
    "caller of methods": text(TARGET, "_operator.methodcaller"),
    "operator that opens files": text(TARGET, "torch.ops.aten.from_file.default"),
    "operator that writes files": text(TARGET, "torch.ops.aten.save.default"),
    "operator of debugging": text(TARGET, "torch.ops.debugprims.load_tensor.default"),
    "inside of an operator": text(TARGET, "torch.ops.aten.linear.__class__"),
    "extension": text(TARGET, "#evil:op"),
    "name of an input": text(r'"x"', json.dumps(f"x={CODE}")),
    "line in a name": text(r'"x"', json.dumps("x):\n  import os\n  def f(y")),
    "path of a weight": text(r'"fc.weight"', json.dumps(f"fc['+{CODE}+']")),
    "name of an argument": text(
        r'"forward_arg_names": \[[^]]*\]', f'"forward_arg_names": ["a={CODE}"]'
    ),
    "name of a keyword": tree("in_spec", "builtins.dict", json.dumps([f"more={CODE}"])),
    "enum in a tree": tree("out_spec", "builtins.dict", ENUM),
    "default factory": tree(
        "out_spec", "collections.defaultdict", '{"default_factory_module": "antigravity"}'
    ),
    "number of a symbol": text(r'"range_constraints": \{', '"range_constraints": {"u9999999999": '
                               '{"min_val": 1, "max_val": 2},'),
    "deep brackets": record(GRAPH, b"[" * 100_000),
    "no graph": record(GRAPH, b"{}"),
    "old archive": old_archive,
}  # fmt: skip


def rewritten(
    saved: Path,
    to: Path,
    change: Callable[[dict[str, bytes]], object],
    compression: int = zipfile.ZIP_STORED,
) -> Path:
    with zipfile.ZipFile(saved) as archive:
        records = {n.split("/", 1)[1]: archive.read(n) for n in archive.namelist()}
    change(records)
    with zipfile.ZipFile(to, "w", compression) as archive:
        for name, data in records.items():
            archive.writestr(f"net/{name}", data)
    return to


@pytest.mark.parametrize("way", HOSTILE)
def test_no_part_of_a_file_runs_code(
    way: str, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = rewritten(saved, tmp_path / "evil.pt2", HOSTILE[way])
    with pytest.raises(ModelError, match=r"evil\.pt2' (is not loaded|holds no program)"):
        as_module(path)
    assert not Path("PWNED").exists()


def test_guards_of_a_file_are_never_run(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    change = graph(lambda program: program.update(guards_code=[CODE]))
    made = as_module(rewritten(saved, tmp_path / "guards.pt2", change))
    made(X, more={"a-b": K})
    assert not Path("PWNED").exists()


def test_bytes_that_hide_from_the_check_are_refused(saved: Path, tmp_path: Path) -> None:
    packed = rewritten(saved, tmp_path / "a.pt2", lambda _: None, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(ModelError, match="compressed"):
        read_program(packed)
    twice = tmp_path / "b.pt2"
    twice.write_bytes(saved.read_bytes())
    with zipfile.ZipFile(twice, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr(f"net/{GRAPH}", b"{}")
    with pytest.raises(ModelError, match=r"one name|holds no program"):
        read_program(twice)
    subprocess.run(["mkfifo", tmp_path / "pipe.pt2"], check=True)
    with pytest.raises(ModelError, match="named pipe"):
        read_program(tmp_path / "pipe.pt2")


def test_the_file_that_torch_writes_is_read(saved: Path) -> None:
    program = read_program(saved)
    wanted = torch.export.load(saved).module()(X, more={"a-b": K})["a"]
    assert torch.equal(program.module()(X, more={"a-b": K})["a"], wanted)
    assert torch.equal(as_module(saved)(X, more={"a-b": K})["a"], wanted)


SIZES = ("(a + 1) // 2", "a % 3 + a // 2 + 4", "max(a, 5)", "a ** 2", "a * b - b")


@pytest.mark.parametrize("size", SIZES)
def test_expressions_of_sizes_are_read(size: str, tmp_path: Path) -> None:
    class Sized(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            a, b = x.shape
            return x.new_ones(eval(size, {"max": max}, {"a": a, "b": b}))

    axes = {0: torch.export.Dim("a", min=3, max=50), 1: torch.export.Dim("b", min=3, max=50)}
    program = torch.export.export(Sized(), (torch.ones(7, 6),), dynamic_shapes=(axes,))
    torch.export.save(program, tmp_path / "s.pt2")
    made = read_program(tmp_path / "s.pt2").module()
    assert len(made(torch.ones(9, 5))) == eval(size, {"max": max}, {"a": 9, "b": 5})
