"""QuantDescriptors as entries of a QConfig: the graph after calibration, and the trained module."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import onnxq
from onnxq.ort import runtime
from onnxq.pytorch import DeQuantStub, LearnableFakeQuantize, QuantStub, prepare_qat
from onnxq.pytorch.tensor_quant import QuantDescriptor
from onnxq.qconfig import QConfig, QConfigMapping
from tests.this_machine import adds_exactly

if TYPE_CHECKING:
    import onnx_ir as ir


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = QuantStub(), DeQuantStub()
        self.conv, self.relu = nn.Conv2d(3, 8, 3), nn.ReLU()
        self.last = nn.Conv2d(8, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.dequant(self.last(self.relu(self.conv(self.quant(x)))))
        return y


@pytest.fixture(scope="module")
def exported() -> tuple[ir.Model, list[dict[str, Any]]]:
    torch.manual_seed(0)
    images = torch.randn(16, 3, 10, 10)
    model = onnxq.export(Net().eval(), images)
    name = str(model.graph.inputs[0].name)
    return model, [{name: images[i : i + 4].numpy()} for i in range(0, 16, 4)]


@adds_exactly
@pytest.mark.parametrize(
    ("activation", "weight", "share"),
    [
        (QuantDescriptor(), QuantDescriptor(axis=0), 0.02),
        (QuantDescriptor(calib_method="histogram"), QuantDescriptor(), 0.03),
        (QuantDescriptor(scale_amax=1.1), QuantDescriptor(4, axis=0), 0.2),
        (QuantDescriptor(amax=4.5), QuantDescriptor(axis=0, scale_amax=0.99), 0.05),
    ],
)
def test_a_quantized_graph_runs_in_integers(
    exported: tuple[ir.Model, list[dict[str, Any]]], activation: Any, weight: Any, share: float
) -> None:
    model, samples = exported
    mapping = QConfigMapping().set_global(QConfig(activation, weight))
    made = onnxq.quantize(model, samples, qconfig=mapping, target="x86-vnni")
    ops = Counter(node.op_type for node in runtime.optimized_graph(made).graph)
    assert ops["QLinearConv"] == 2
    with runtime.open_session(model) as session, runtime.open_session(made) as quantized:
        runs = session.run(samples[0]), quantized.run(samples[0])
        wanted, got = (np.asarray(outputs[0], np.float32) for outputs in runs)
    assert np.abs(got - wanted).max() < share * np.abs(wanted).max()


def test_a_fixed_amax_is_the_scale_of_the_graph(
    exported: tuple[ir.Model, list[dict[str, Any]]],
) -> None:
    model, samples = exported
    activation: Any = QuantDescriptor(amax=254.0)
    weight: Any = QuantDescriptor(axis=0)
    mapping = QConfigMapping().set_global(QConfig(activation, weight))
    check = onnxq.Check.NONE  # a range of 254 leaves nothing of these numbers
    made = onnxq.quantize(model, samples, qconfig=mapping, target="x86-vnni", check=check)
    scales = [
        node.inputs[1].const_value.numpy()
        for node in made.graph
        if node.op_type == "QuantizeLinear" and node.inputs[1] and node.inputs[1].const_value
    ]
    assert scales
    assert all(float(scale) == 2 for scale in scales)


@pytest.mark.parametrize("learn", [False, True])
def test_trains_with_descriptors(learn: bool) -> None:
    torch.manual_seed(0)
    net = Net().train()
    activation: Any = QuantDescriptor(learn_amax=learn)
    weight: Any = QuantDescriptor(4, axis=0)
    net.qconfig = QConfig(activation, weight)  # type: ignore[assignment]
    prepared = prepare_qat(net)
    learned = [part for part in prepared.modules() if isinstance(part, LearnableFakeQuantize)]
    assert bool(learned) is learn
    x = torch.randn(16, 3, 10, 10)
    prepared(x)  # a learned scale is a parameter from its first batch on
    optimizer = torch.optim.SGD(prepared.parameters(), lr=0.05)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = prepared(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    weight_quantizer = prepared.get_submodule("conv.weight_fake_quant")
    integers = weight_quantizer.integers(prepared.get_parameter("conv.weight"))  # type: ignore[operator]
    assert int(integers.abs().max()) <= 7
