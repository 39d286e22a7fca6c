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
# the files that serve a stage stand before it; `Prepared.run` is the loop form of calibrate
STAGES = (
    "decision", "candidates", "unbounded", "placement", "channel_gains", "state", "statistics",
    "arguments", "calibrate", "check_types", "stored_types", "overrides",
    "prepare", "agreeing_sums", "plan_constants", "pair_range", "dynamic_decision",
    "dynamic_spec",
    "dynamic_weights", "one_scale", "tied_weights", "dynamic_forms", "dynamic_requests",
    "float_tables", "dynamic_plan", "plan_activations", "plan",
    "rewrite", "improve", "codes", "comparison", "findings", "execution", "verify", "differences",
    "cross_findings", "visible", "node_by_node", "float_nodes", "end_to_end", "cross_check",
    "prediction", "behind_floats", "layer_overflows", "predict", "observed_range", "bench",
)
# fmt: on
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
    if parts[1] != "stages" or len(parts) == 2:
        return LAYERS.index(parts[1]), -1
    assert parts[2] in STAGES, f"{module} has no place yet: add '{parts[2]}' to STAGES"
    return LAYERS.index(parts[1]), STAGES.index(parts[2])


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
        assert top != "onnxruntime" or name == "onnxq.runtime", f"{name} imports onnxruntime"
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
