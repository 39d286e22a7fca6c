"""Weights of 4 bits: trained, converted, and stored as int4 in the file."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onnxq
from onnxq.observers import (
    MinMaxObserver,
    ObserverSpec,
    PerChannelMinMaxObserver,
    StepSizeObserver,
)
from onnxq.pytorch import convert, disable_observer, export, prepare_qat
from onnxq.pytorch.deployed import Feeding, compare
from onnxq.pytorch.nn import quantized as nnq
from onnxq.qconfig import (
    FakeQuantSpec,
    QConfig,
    QConfigMapping,
    ScaleRule,
    get_default_qat_qconfig,
)

INT4 = FakeQuantSpec(StepSizeObserver.with_args(dtype="int4"), ScaleRule.LEARNED)
QCONFIG = QConfigMapping(QConfig(get_default_qat_qconfig().activation, INT4))


class Net(nn.Module):
    """A convolution with batch norm, and a matrix that the exporter finds too large to fold."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.up, self.head = nn.Linear(16 * 36, 40), nn.Linear(40, 5)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 5)."""
        y = self.norm(self.conv(x)).relu()
        return self.head(self.up(y.flatten(1)).relu())  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def trained() -> tuple[Any, Tensor]:
    torch.manual_seed(2)
    images = torch.randn(8, 3, 6, 6)
    model = prepare_qat(Net(), inputs=images, qconfig=QCONFIG)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(3):
        optimizer.zero_grad()
        model(images).square().mean().backward()
        optimizer.step()
    return model.apply(disable_observer).eval(), images


def test_the_file_has_int4_weights_and_computes_what_was_trained(
    trained: tuple[Any, Tensor],
) -> None:
    """Convolutions and MatMuls run in float: sums differ by rounding, integers at ties alone."""
    model, images = trained
    converted = convert(model)
    assert torch.equal(converted(images), model(images))
    exported = export(converted, images)
    stored = [v.const_value for v in exported.graph.initializers.values()]
    narrow = [x for x in stored if x is not None and str(x.dtype) == "INT4" and x.size > 100]
    assert len(narrow) == 3
    assert all(node.op_type != "Cast" for node in exported.graph)
    found = compare(converted, exported, [images], Feeding.LAYER_BY_LAYER)
    assert all(one.share > 0.998 and one.largest <= 1 for one in found.tensors.values())
    checked = onnxq.cross_check(exported, {next(iter(exported.graph.inputs)).name: images.numpy()})
    assert not any(node.differing for node in checked.nodes)
    assert all(one.largest <= one.rounding for one in checked.outputs)


def test_opsets_without_int4_store_the_same_numbers_as_int8(trained: tuple[Any, Tensor]) -> None:
    model, images = trained
    exported = export(convert(model), images, opset=20)
    kinds = {str(v.dtype) for v in exported.graph.initializers.values()}
    assert "INT8" in kinds
    assert "INT4" not in kinds


def test_the_state_dict_keeps_the_type_of_the_integers(trained: tuple[Any, Tensor]) -> None:
    model, _ = trained
    head: Any = convert(model).head
    fresh = nnq.Linear(40, 5)
    fresh.load_state_dict(head.state_dict())
    assert fresh.weight().dtype.name == "int4"
    x = torch.randn(3, 40)
    assert torch.equal(fresh.real_weight(), head.real_weight())
    assert "weight_bits" not in nnq.Linear(40, 5).state_dict()
    fresh.load_state_dict(nnq.Linear(40, 5).state_dict())
    assert fresh.weight().dtype.name == "int8"
    assert fresh(x).shape == (3, 5)


@pytest.mark.parametrize(
    "observer",
    [
        pytest.param(MinMaxObserver.with_args(dtype="uint4"), marks=pytest.mark.nightly),
        PerChannelMinMaxObserver.with_args(dtype="uint4", qscheme="per_channel_affine"),
    ],
    ids=repr,
)
def test_weights_with_16_integers_and_a_zero_point_compute_what_was_trained(
    observer: ObserverSpec,
) -> None:
    torch.manual_seed(3)
    images = torch.randn(8, 3, 6, 6)
    weight = FakeQuantSpec(observer, ScaleRule.LEARNED)
    qconfig = QConfigMapping(QConfig(get_default_qat_qconfig().activation, weight))
    model = prepare_qat(Net(), inputs=images, qconfig=qconfig).eval()
    converted = convert(model)
    assert torch.equal(converted(images), model(images))
    stored = [v.const_value for v in export(converted, images).graph.initializers.values()]
    narrow = [x for x in stored if x is not None and str(x.dtype) == "UINT4" and x.size > 100]
    assert len(narrow) == 3
