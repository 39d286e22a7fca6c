"""Imports go downwards only, in the order below, lowest first; every module has a place in it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# fmt: off
LAYERS = (
    "errors", "atomic", "threads", "plugins", "dtypes", "qparams", "qtensor",
    "arithmetic", "operator",
    "operators", "authoring", "catalog", "functional", "graph", "observers", "dynamic_gains",
    "recurrent_gains", "attention_gains", "range_reduction", "detection", "targets", "qconfig",
    "samples", "runtime",
    "reference", "stages", "report", "pipeline", "pytorch", "cli", "__main__",
)
# the files that serve a stage stand before it, in a folder where they are many;
# `Prepared.run` is the loop form of calibrate
STAGES = (
    "placing.decision", "placing.candidates", "placing.unbounded", "placing.placement",
    "placing.channel_gains", "state", "statistics", "arguments", "calibrate", "placing.check_types",
    "placing.stored_types", "placing.overrides", "prepare",
    "planning.agreeing_sums", "planning.constants", "planning.pair_range",
    "dynamic.decision", "dynamic.spec", "dynamic.weights", "dynamic.one_scale",
    "dynamic.tied_weights", "dynamic.forms", "dynamic.requests", "dynamic.float_tables",
    "dynamic_plan", "planning.activations", "plan", "rewrite", "improve",
    "checking.codes", "checking.comparison", "checking.findings", "checking.execution", "verify",
    "checking.differences", "checking.cross_findings", "checking.visible", "checking.node_by_node",
    "checking.float_nodes", "checking.end_to_end", "cross_check",
    "predicting.prediction", "predicting.behind_floats", "predicting.layer_overflows", "predict",
    "observed_range", "bench",
)
# fmt: on
FOLDERS = [[name.split(".")[0]] for name in STAGES if "." in name]
LINK = ROOT / "onnxq" / "operators"
FILES = sorted(
    [file for file in ROOT.glob("onnxq/**/*.py") if LINK not in file.parents]
    + list(ROOT.glob("operators/*.py"))
)


def layer(module: str) -> tuple[int, int]:
    """Place of a dotted name below onnxq: (layer, stage); the facade is above all."""
    parts = module.split(".")
    if parts == ["onnxq"] or parts[1] == "__init__":
        return len(LAYERS), 0
    assert parts[1] in LAYERS, f"{module} has no place yet: add '{parts[1]}' to LAYERS"
    if parts[1] != "stages" or len(parts) == 2 or parts[2:] in FOLDERS:
        return LAYERS.index(parts[1]), -1
    names = [parts[2], ".".join(parts[2:4])]
    stage = next((name for name in names if name in STAGES), None)
    assert stage is not None, f"{module} has no place yet: add '{names[-1]}' to STAGES"
    return LAYERS.index(parts[1]), STAGES.index(stage)


def imports(tree: ast.AST) -> set[str]:
    """Every module that the code imports, wherever the statement stands."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def name_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    dotted = parts if parts[0] == "onnxq" else ("onnxq", *parts)
    return ".".join(dotted).removesuffix(".__init__")


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_imports_go_downwards(file: Path) -> None:
    name, tree = name_of(file), ast.parse(file.read_text("utf-8"))
    if name == "onnxq":
        return  # the facade imports everything, lazily: test_public_api
    own = layer(name)
    for imported in imports(tree):
        top = imported.split(".")[0]
        assert top != "operators", f"{name}: import onnxq.operators, never operators"
        assert top != "onnxruntime" or name == "onnxq.ort.runtime", f"{name} imports onnxruntime"
        assert top != "torch" or name.startswith("onnxq.pytorch"), f"{name} imports torch"
        if top == "onnxq":
            below = layer(imported)
            assert below <= own, f"{name} imports {imported}, which is above it"


def test_operator_files_are_reached_through_the_catalog_alone() -> None:
    outside = [file for file in FILES if (ROOT / "operators") not in file.parents]
    readers = {
        name_of(file)
        for file in outside
        if any(m.startswith("onnxq.operators") for m in imports(ast.parse(file.read_text())))
    }
    assert readers <= {"onnxq.catalog", "onnxq.authoring"}
