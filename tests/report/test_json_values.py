from __future__ import annotations

import json

import pytest

from onnxq import targets
from onnxq.checking.bench import Benchmark
from onnxq.checking.findings import Execution, Fallback
from onnxq.checking.summary import NodeDecision, Summary
from onnxq.operator import OperatorLimit
from onnxq.report import json_values

EXECUTION = Execution({"QLinearConv": 2}, {"Softmax": 1}, {"Cast": 1}, (Fallback("c", "Conv"),))


def test_summary_says_how_or_why() -> None:
    nodes = (
        NodeDecision("c", "Conv", True, OperatorLimit("integers")),
        NodeDecision("s", "Softmax", False, OperatorLimit("slow")),
    )
    value = json.loads(json_values.to_text(json_values.summary(Summary(nodes))))
    assert value["nodes"][0] == {
        "name": "c",
        "op_type": "Conv",
        "decision": "integers",
        "precision": "float",
        "how": "integers",
    }
    assert value["nodes"][1]["reason"] == "slow"
    assert value["counts"]["Conv"] == {"integers": 1, "floats": 0, "dynamic": 0}
    assert value["groups"][1] == {
        "precision": "float",
        "why": "slow",
        "op_types": {"Softmax": 1},
        "nodes": ["s"],
    }


def test_benchmark_has_times_ratio_and_nodes() -> None:
    value = json_values.benchmark(
        Benchmark(3.0, 1.5, 10, 40, 10, {"x": (1, 3)}, EXECUTION, (1.9, 2.1))
    )
    text = json.loads(json_values.to_text(value))
    assert text["speedup"] == 2.0
    assert text["input_shapes"] == {"x": [1, 3]}
    assert text["execution"]["fallbacks"] == [{"name": "c", "op_type": "Conv"}]


def test_targets_are_all_listed() -> None:
    value = json.loads(json_values.to_text(json_values.targets(targets.all_targets())))
    assert [t["name"] for t in value] == [t.name for t in targets.all_targets()]


def test_nan_is_no_json() -> None:
    with pytest.raises(ValueError, match="JSON"):
        json_values.to_text({"x": float("nan")})
