"""Integers of a model: the same whoever finds them, in one go or in several."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.errors import OutputError
from onnxq.graph.canonical import canonicalize
from onnxq.operator.nodes import tensor_of
from onnxq.qparams.group_spec import GroupSpec, Method
from onnxq.qparams.groups import PackedGroups
from onnxq.weights import find_integers as module
from onnxq.weights.find_integers import find_integers
from onnxq.weights.plan_weights import plan_weights
from onnxq.weights.quantized_weights_file import QuantizedWeightsFile, QuantizedWeightsHead
from onnxq.weights.solve import prepared
from onnxq.weights.weight_plan import WeightPlan, WeightRequest
from scripts._decoder import Sizes, decoder, tokens

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import onnx_ir as ir

SIZES = Sizes(depth=1)
BATCHES = list(tokens(SIZES, 3, 6))
HEAD = QuantizedWeightsHead("m", "s", "p", "v")


@cache
def planned(method: Method) -> tuple[ir.Model, WeightPlan]:
    source = canonicalize(decoder(SIZES)).model
    return source, plan_weights(source, WeightRequest(method=method))


def data(integers: Mapping[str, Mapping[str, ir.TensorProtocol]]) -> dict[str, bytes]:
    return {
        f"{node} {name}": tensor.tobytes()
        for node, tensors in integers.items()
        for name, tensor in tensors.items()
    }


def test_integers_without_samples_are_those_of_the_whole_weight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PART_BYTES", 5 * 32 * 4)  # five rows of 32 at a time
    source, plan = planned(Method.RTN)
    found = find_integers(source, plan, (), QuantizedWeightsFile())
    assert [*found] == [*plan.quantized]
    weight = tensor_of(source.graph.initializers["wg0"]).numpy()
    whole = prepared(Method.RTN)(np.ascontiguousarray(weight.T), GroupSpec()).packed()
    assert isinstance(whole, PackedGroups)
    for name, array in whole.arrays.items():
        assert np.array_equal(found["MatMul_g0"][name].numpy(), array)


@pytest.mark.parametrize("method", [Method.RTN, Method.GPTQ])
def test_an_executor_finds_the_same_integers(
    method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PART_BYTES", "GPTQ_PART_BYTES"):
        monkeypatch.setattr(module, name, 7 * 32 * 4)
    source, plan = planned(method)
    alone = data(find_integers(source, plan, BATCHES, QuantizedWeightsFile()))
    with ThreadPoolExecutor(2) as executor:
        assert data(find_integers(source, plan, BATCHES, QuantizedWeightsFile(), executor)) == alone


def test_a_job_that_ended_anywhere_goes_on_to_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, plan = planned(Method.GPTQ)
    with QuantizedWeightsFile.open(tmp_path / "whole", HEAD) as integers:
        find_integers(source, plan, BATCHES, integers)
    whole = (tmp_path / "whole").read_bytes()
    asked: list[str] = []
    parts = module.parts_of

    def counted(node: ir.Node, decision: object) -> object:
        asked.append(str(node.name))
        return parts(node, decision)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "parts_of", counted)
    (tmp_path / "torn").write_bytes(whole[: len(whole) // 2])
    with QuantizedWeightsFile.open(tmp_path / "torn", HEAD) as integers:
        before = len(integers)
        find_integers(source, plan, BATCHES, integers)
    assert 0 < before < len(plan.quantized)
    assert len(asked) == len(plan.quantized) - before  # the others were not solved again
    assert (tmp_path / "torn").read_bytes() == whole


def test_another_spec_of_a_node_is_another_record(tmp_path: Path) -> None:
    source, plan = planned(Method.RTN)
    mixed = plan.with_specs({"MatMul_d0": GroupSpec(8)})
    with QuantizedWeightsFile.open(tmp_path / "integers", HEAD) as integers:
        find_integers(source, plan, (), integers)
        found = find_integers(source, mixed, (), integers)
        assert len(integers) == len(plan.quantized) + 1
    assert found["MatMul_d0"]["integers"].shape == (32, 2, 32)


def test_nodes_that_read_one_weight_share_its_integers() -> None:
    source, plan = planned(Method.RTN)
    shared = dict(plan.decisions)
    shared["MatMul_pk0"] = dataclasses.replace(plan.quantized["MatMul_pk0"], tensor="wq0")
    integers = QuantizedWeightsFile()
    found = find_integers(source, WeightPlan(shared), (), integers)
    assert found["MatMul_pk0"] is found["MatMul_pq0"]
    assert len(integers) == len(plan.quantized) - 1


def test_a_full_disk_leaves_whole_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, plan = planned(Method.RTN)
    calls = 0

    def full(_: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 4:  # the head, and two records
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with (
        QuantizedWeightsFile.open(tmp_path / "integers", HEAD) as integers,
        pytest.raises(OutputError, match="No space left on device"),
    ):
        find_integers(source, plan, (), integers)
    with QuantizedWeightsFile.open(tmp_path / "integers", HEAD) as integers:
        assert len(integers) >= 2
        find_integers(source, plan, (), integers)
        assert len(integers) == len(plan.quantized)
