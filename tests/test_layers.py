"""Imports go downwards only, in the order of the rooms below; no two files import each other."""

from __future__ import annotations

import ast
import functools
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
# fmt: off
ROOMS = (
    "shown", "errors", "core", "page", "jobs", "dtypes", "qparams", "affine", "observers",
    "targets", "operator", "operators", "catalog", "authoring", "qconfig", "graph", "quantized",
    "samples", "ort", "language", "metrics", "qdq", "times", "qtensor", "functional",
    "reference", "dynamic", "static", "weights", "checking", "report", "tuning",
    "repair", "pipeline", "weight_only", "imported_qdq", "float16_model",
    "survey", "pytorch", "hub", "cli", "__main__",
)
"""Folders and single files of onnxq, lowest first: each is named by what it knows."""
TORCH_ROOMS = (
    "arguments", "numerics", "modules", "tensor_quant", "nn", "train", "exporting", "programs",
    "insertion", "importers", "eager", "quantization", "deployed", "local_model",
)
TUNING_ROOMS = (
    "defaults", "scoring", "evaluation", "measure_times", "sensitivity", "search", "tables",
    "tuned", "tune",
)
# fmt: on
ORDERS = {"onnxq.pytorch": TORCH_ROOMS, "onnxq.tuning": TUNING_ROOMS}
"""The order of rooms in large rooms, lowest first; the facade of each is above all of them."""
LINK = ROOT / "onnxq" / "operators"
FACADE = "onnxq"
RUNTIMES = (
    "onnxq.ort.runtime",
    "onnxq.ort.first_run",
    "onnxq.ort.float16",
    "onnxq.jobs.child_main",
)
"""Files that may import onnxruntime; first_run does for types, float16 for a conversion alone."""


def name_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    dotted = parts if parts[0] == "onnxq" else ("onnxq", *parts)
    return ".".join(dotted).removesuffix(".__init__")


FILES = {
    name_of(file): file
    for file in sorted(
        [file for file in ROOT.glob("onnxq/**/*.py") if LINK not in file.parents]
        + list(ROOT.glob("operators/*.py"))
    )
}


@functools.cache
def nodes(name: str) -> list[ast.AST]:
    """Imports and functions of a module."""
    kinds = ast.Import | ast.ImportFrom | ast.FunctionDef
    return [
        node
        for node in ast.walk(ast.parse(FILES[name].read_text("utf-8")))
        if isinstance(node, kinds)
    ]


@functools.cache
def imports(name: str) -> set[str]:
    """Every module that a module imports, wherever the statement stands; for types, too."""
    found = set()
    for node in nodes(name):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            dotted = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in FILES else str(node.module) for name in dotted}
    return found


def floor(module: str) -> int:
    """Place of a dotted name's room in ROOMS."""
    room = module.split(".")[1]
    assert room in ROOMS, f"{module} has no place yet: add '{room}' to ROOMS"
    return ROOMS.index(room)


def floor_within(large: str, module: str) -> int:
    """Place in ORDERS of a module of a large room."""
    rooms, room = ORDERS[large], module.removeprefix(large).removeprefix(".").split(".")[0]
    assert not room or room in rooms, f"{module}: add '{room}' to the rooms of {large}"
    return rooms.index(room) if room else len(rooms)


def is_own(module: str) -> bool:
    return module.startswith("onnxq.")


def complaints(name: str) -> Iterator[str]:
    for imported in imports(name):
        top = imported.split(".")[0]
        if imported == FACADE:
            yield f"{name} imports {FACADE}, which is above every room"
        if top == "operators":
            yield f"{name}: import onnxq.operators, never operators"
        if top == "onnxruntime" and name not in RUNTIMES:
            yield f"{name} imports onnxruntime"
        if top == "torch" and not name.startswith("onnxq.pytorch"):
            yield f"{name} imports torch"
        if is_own(imported) and floor(imported) > floor(name):
            yield f"{name} imports {imported}, which is above it"


def test_imports_go_downwards() -> None:
    # but for the facade, which imports everything, lazily: test_public_api
    assert not [one for name in FILES if name != FACADE for one in complaints(name)]


@pytest.mark.parametrize("large", ORDERS)
def test_imports_go_downwards_in_large_rooms(large: str) -> None:
    assert not [
        f"{name} imports {imported}"
        for name in FILES
        if name.startswith(large)
        for imported in imports(name)
        if imported.startswith(large) and floor_within(large, imported) > floor_within(large, name)
    ]


def test_private_files_are_imported_in_their_room_alone() -> None:
    doors = ("onnxq.catalog", "onnxq.authoring")  # of operators
    for name in FILES:
        for imported in filter(is_own, imports(name)):
            room, _, file = imported.rpartition(".")
            if file.startswith("_") and not file.startswith("__") and name not in doors:
                assert name.startswith(room), f"{name} imports {imported}"


def test_the_torch_room_imports_late_only_what_a_torch_may_lack() -> None:
    late = {
        name
        for name in FILES
        if name.startswith("onnxq.pytorch")
        for function in nodes(name)
        if isinstance(function, ast.FunctionDef)
        and any(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.walk(function))
    }
    # torch.ao.quantization, which torch has announced to remove, torchao, and transformers
    assert late == {
        "onnxq.pytorch.importers.importer",
        "onnxq.pytorch.importers.programs",
        "onnxq.pytorch.local_model",
    }


LEAVING = ("torch.ao", "torch.quantization", "torch.nn.quantized", "torch.nn.intrinsic", "torchao")


def test_what_torch_will_delete_is_imported_by_the_importers_alone() -> None:
    found = {name for name in FILES for module in imports(name) if module.startswith(LEAVING)}
    assert all(name.startswith("onnxq.pytorch.importers.") for name in found), found
    # `torch.ao` is an attribute of torch, too, which needs no import
    spelt = {
        name
        for name, file in FILES.items()
        for text in [file.read_text("utf-8")]
        if any(module in text for module in LEAVING)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and ast.unparse(node).startswith(LEAVING)
    }
    assert not spelt
    users = {name for name in FILES if any("pytorch.importers" in one for one in imports(name))}
    outside = {name for name in users if not name.startswith("onnxq.pytorch.importers")}
    assert outside == {"onnxq.pytorch"}


def test_no_two_files_import_each_other_however_far_around() -> None:
    below = {
        name: {module for module in imports(name) if is_own(module) and module != name}
        for name in FILES
        if name != FACADE
    }
    try:
        TopologicalSorter(below).prepare()
    except CycleError as error:
        pytest.fail(f"files that import each other: {' <- '.join(error.args[1])}")


def test_operator_files_are_reached_through_the_catalog_alone() -> None:
    readers = {
        name
        for name in FILES
        if not name.startswith("onnxq.operators")
        and any(module.startswith("onnxq.operators") for module in imports(name))
    }
    assert readers <= {"onnxq.catalog", "onnxq.authoring"}
