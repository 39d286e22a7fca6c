from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch.onnx._internal.exporter._registration import OnnxDecompMeta, ONNXRegistry

from tests.quick_export import kept_registry, make_registry, once_per_registration

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("opset", [18, 21])
def test_a_kept_registry_is_the_one_torch_makes(opset: int) -> None:
    def translations(registry: ONNXRegistry) -> dict[str, list[str]]:
        return {
            str(target): [f"{one.onnx_function.__module__}.{one.signature}" for one in found]
            for target, found in registry.functions.items()
        }

    kept = kept_registry(opset)
    assert kept.opset_version == opset
    assert translations(kept) == translations(make_registry(opset))


def test_what_one_export_adds_the_next_one_does_not_have() -> None:
    target = torch.ops.aten.relu.default
    before = kept_registry(21).get_decomps(target)
    added = OnnxDecompMeta(len, target, None, is_custom=True, skip_signature_inference=True)
    kept_registry(21)._register(target, added)
    assert kept_registry(21).get_decomps(target) == before


def test_operators_are_looked_up_again_when_one_was_registered() -> None:
    calls: list[int] = []
    look_up = once_per_registration(lambda: calls.append(1))
    look_up()
    look_up()
    assert len(calls) == 1
    make: Any = torch.library.Library  # torch has no types for it
    library = make("onnxq_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: 2 * x, "CompositeImplicitAutograd")
    look_up()
    assert len(calls) == 2
