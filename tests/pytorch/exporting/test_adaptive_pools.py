"""nn.AdaptiveAvgPool1d, 2d and 3d between convolutions, from torch to ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from onnxq import cross_check, export, prepare, quantize
from onnxq.errors import UnsupportedError
from onnxq.operator import Float
from onnxq.qconfig import QConfigMapping, onnxq_default_qconfig

pytestmark = pytest.mark.oracle

SIDE = 8
ASKED = QConfigMapping(
    onnxq_default_qconfig,
    op_types={"AveragePool": onnxq_default_qconfig, "Conv": onnxq_default_qconfig},
)
CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
POOLS = {1: nn.AdaptiveAvgPool1d, 2: nn.AdaptiveAvgPool2d, 3: nn.AdaptiveAvgPool3d}

Size = int | tuple[int, ...]


def network(rank: int, size: Size) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    conv, pool = CONVOLUTIONS[rank], POOLS[rank]
    module = nn.Sequential(conv(3, 8, 3, padding=1), nn.ReLU(), pool(size), conv(8, 4, 1))
    return module, torch.randn(2, 3, *[SIDE] * rank)


def operators(model: object) -> dict[str, list[str]]:
    """op type -> reasons of those that stay float."""
    prepared = prepare(model, ASKED)  # type: ignore[arg-type]
    found: dict[str, list[str]] = {}
    for node in prepared.model.graph:
        decision = prepared.decisions[node.name or ""]
        reasons = found.setdefault(node.op_type, [])
        if isinstance(decision, Float):
            reasons.append(decision.reason.words)
    return found


@pytest.mark.parametrize(
    ("rank", "size", "opset"),
    [(1, 1, 21), (1, 4, 18), (2, 1, 18), (2, 4, 21), (2, (1, 4), 18), (3, 1, 21)],
    ids=str,
)
def test_windows_of_one_size_are_pooled_in_the_kernels_integers(
    rank: int, size: Size, opset: int
) -> None:
    module, x = network(rank, size)
    model = export(module, x, opset=opset)
    assert not any(operators(model).values())
    sample = {"input": x.numpy()}
    found = cross_check(quantize(model, [sample], qconfig=ASKED, target="x86-vnni"), [sample])
    assert not found.unchecked
    assert not found.floats
    assert sum(node.differing for node in found.nodes) == 0
    pools = {"QLinearAveragePool", "QLinearGlobalAveragePool"}
    assert pools & {node.op_type for node in found.nodes}


@pytest.mark.parametrize("rank", [1, 2])
def test_windows_of_several_sizes_are_written_as_many_nodes_that_say_why_they_stay_float(
    rank: int,
) -> None:
    module, x = network(rank, 3)
    model = export(module, x)
    found = operators(model)
    assert "AveragePool" not in found  # torch gathers each window's elements, and adds them
    assert found["Div"]
    assert not found["Conv"]
    integer = quantize(model, [{"input": x.numpy()}])
    assert np.count_nonzero([n.op_type == "Conv" for n in integer.graph]) == 2


def test_three_axes_to_more_than_one_element_cannot_be_exported() -> None:
    module, x = network(3, 4)
    with pytest.raises(UnsupportedError, match="adaptive_avg_pool3d"):
        export(module, x)
