"""Codes of a model: the same whoever finds them, in one go or in several."""

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
from onnxq.weights import find_codes as module
from onnxq.weights.codes_file import CodesFile, CodesHead
from onnxq.weights.find_codes import find_codes
from onnxq.weights.plan_weights import WeightPlan, WeightRequest, plan_weights
from onnxq.weights.solve import prepared
from scripts._decoder import Sizes, decoder, tokens

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import onnx_ir as ir

SIZES = Sizes(depth=1)
BATCHES = list(tokens(SIZES, 3, 6))
HEAD = CodesHead("m", "s", "p", "v")


@cache
def planned(method: Method) -> tuple[ir.Model, WeightPlan]:
    source = canonicalize(decoder(SIZES)).model
    return source, plan_weights(source, WeightRequest(method=method))


def data(codes: Mapping[str, Mapping[str, ir.TensorProtocol]]) -> dict[str, bytes]:
    return {
        f"{node} {name}": tensor.tobytes()
        for node, tensors in codes.items()
        for name, tensor in tensors.items()
    }


def test_codes_without_samples_are_those_of_the_whole_weight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PART_BYTES", 5 * 32 * 4)  # five rows of 32 at a time
    source, plan = planned(Method.RTN)
    found = find_codes(source, plan, (), CodesFile())
    assert [*found] == [*plan.quantized]
    weight = tensor_of(source.graph.initializers["wg0"]).numpy()
    whole = prepared(Method.RTN)(np.ascontiguousarray(weight.T), GroupSpec()).packed()
    assert isinstance(whole, PackedGroups)
    for name, array in whole.arrays.items():
        assert np.array_equal(found["MatMul_g0"][name].numpy(), array)


@pytest.mark.parametrize("method", [Method.RTN, Method.GPTQ])
def test_an_executor_finds_the_same_codes(method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_BYTES", 7 * 32 * 4)
    source, plan = planned(method)
    alone = data(find_codes(source, plan, BATCHES, CodesFile()))
    with ThreadPoolExecutor(2) as executor:
        assert data(find_codes(source, plan, BATCHES, CodesFile(), executor)) == alone


def test_a_job_that_ended_anywhere_goes_on_to_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, plan = planned(Method.GPTQ)
    with CodesFile.open(tmp_path / "whole", HEAD) as codes:
        find_codes(source, plan, BATCHES, codes)
    whole = (tmp_path / "whole").read_bytes()
    asked: list[str] = []
    parts = module.parts_of

    def counted(node: ir.Node, decision: object) -> object:
        asked.append(str(node.name))
        return parts(node, decision)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "parts_of", counted)
    (tmp_path / "torn").write_bytes(whole[: len(whole) // 2])
    with CodesFile.open(tmp_path / "torn", HEAD) as codes:
        before = len(codes)
        find_codes(source, plan, BATCHES, codes)
    assert 0 < before < len(plan.quantized)
    assert len(asked) == len(plan.quantized) - before  # the others were not solved again
    assert (tmp_path / "torn").read_bytes() == whole


def test_another_spec_of_a_node_is_another_record(tmp_path: Path) -> None:
    source, plan = planned(Method.RTN)
    mixed = plan.with_specs({"MatMul_d0": GroupSpec(8)})
    with CodesFile.open(tmp_path / "codes", HEAD) as codes:
        find_codes(source, plan, (), codes)
        found = find_codes(source, mixed, (), codes)
        assert len(codes) == len(plan.quantized) + 1
    assert found["MatMul_d0"]["codes"].shape == (32, 2, 32)


def test_nodes_that_read_one_weight_share_its_codes() -> None:
    source, plan = planned(Method.RTN)
    shared = dict(plan.decisions)
    shared["MatMul_pk0"] = dataclasses.replace(plan.quantized["MatMul_pk0"], tensor="wq0")
    codes = CodesFile()
    found = find_codes(source, WeightPlan(shared), (), codes)
    assert found["MatMul_pk0"] is found["MatMul_pq0"]
    assert len(codes) == len(plan.quantized) - 1


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
        CodesFile.open(tmp_path / "codes", HEAD) as codes,
        pytest.raises(OutputError, match="No space left on device"),
    ):
        find_codes(source, plan, (), codes)
    with CodesFile.open(tmp_path / "codes", HEAD) as codes:
        assert len(codes) >= 2
        find_codes(source, plan, (), codes)
        assert len(codes) == len(plan.quantized)
