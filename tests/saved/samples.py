"""The small models whose saved values are in tests/saved/v0_1; of onnxq, documented names alone."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from onnx import helper
from torch import nn

from onnxq import qtensor
from onnxq.observers import (
    AmaxObserver,
    ChannelHistogramObserver,
    EntropyObserver,
    HistogramObserver,
    LeastErrorObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    NarrowRangeObserver,
    NoopObserver,
    PercentileObserver,
    PerChannelMinMaxObserver,
    RecordingObserver,
)
from onnxq.pytorch import DeQuantStub, FloatFunctional, QuantStub
from onnxq.pytorch.tensor_quant import QuantDescriptor, TensorQuantizer
from onnxq.qconfig import (
    FakeQuantSpec,
    QConfig,
    QConfigDynamic,
    QConfigMapping,
    ScaleRule,
    default_qconfig_mapping,
    float16_dynamic_qconfig,
    get_default_qat_qconfig,
    get_default_qconfig,
    per_channel_dynamic_qconfig,
)
from tests.examples import model, weights

if TYPE_CHECKING:
    import numpy.typing as npt
    import onnx

    from onnxq.observers import ObserverSpec
    from onnxq.qtensor import QTensor

    Batch = dict[str, npt.NDArray[np.float32]]

SIDE = 4
OBSERVERS: dict[str, ObserverSpec] = {
    "x": HistogramObserver.with_args(),
    "p0": MinMaxObserver.with_args(),
    "p1": MovingAverageMinMaxObserver.with_args(averaging_constant=0.5),
    "p2": PercentileObserver.with_args(percentile=99.0),
    "p3": EntropyObserver.with_args(),
    "p4": AmaxObserver.with_args(),
}
"""Tensor of `chain` -> its observer."""
ALL_OBSERVERS: dict[str, ObserverSpec] = {
    spec.name: spec
    for spec in (
        *OBSERVERS.values(),
        ChannelHistogramObserver.with_args(ch_axis=1),
        LeastErrorObserver.with_args(),
        MovingAveragePerChannelMinMaxObserver.with_args(ch_axis=1),
        NarrowRangeObserver.with_args(),
        NoopObserver.with_args(),
        PerChannelMinMaxObserver.with_args(ch_axis=1),
        RecordingObserver.with_args(),
    )
}
"""Class name -> an observer; all of onnxq.observers."""
WITHOUT_QPARAMS = {"NoopObserver", "RecordingObserver"}


def chain() -> onnx.ModelProto:
    """A Gemm with a bias and six products: x (N, 4) -> p0 -> ... -> y."""
    names = ["x", *(f"p{i}" for i in range(6)), "y"]
    nodes = [
        helper.make_node("MatMul", [source, f"w{i}"], [result], f"matmul{i}")
        for i, (source, result) in enumerate(pairwise(names))
    ]
    nodes[0] = helper.make_node("Gemm", ["x", "w0", "b"], ["p0"], "gemm")
    constants = {f"w{i}": 3 * weights(i, SIDE, SIDE) for i in range(len(nodes))}
    constants["b"] = weights(9, SIDE)
    return model(nodes, constants, {"x": ["N", SIDE]})


def samples() -> list[Batch]:
    """Three batches for `chain`."""
    return [{"x": weights(20 + i, 8, SIDE)} for i in range(3)]


def chain_qconfig() -> QConfigMapping:
    """The last product dynamically, the others with the observers of OBSERVERS."""
    mapping = default_qconfig_mapping().set_node("matmul6", per_channel_dynamic_qconfig)
    for tensor, spec in OBSERVERS.items():
        mapping = mapping.set_tensor(tensor, spec)
    return mapping


def every_entry() -> QConfigMapping:
    """A mapping with each kind of entry at each place."""
    trained = FakeQuantSpec(
        LeastErrorObserver.with_args(quant_min=-7, quant_max=7), ScaleRule.LEARNED
    )
    blocks = MinMaxObserver.with_args(dtype="int4", qscheme="per_tensor_symmetric")
    return (
        QConfigMapping(get_default_qconfig("x86"))
        .set_op_type("Softmax", None)
        .set_op_type("Conv", get_default_qat_qconfig())
        .set_op_type("Gemm", float16_dynamic_qconfig)
        .set_op_type("MatMul", QConfig(PercentileObserver.with_args(percentile=99.5), trained))
        .set_node("/head/*", None)
        .set_node("/encoder/*", QConfigDynamic(blocks, block_size=32))
        .set_node("/decoder/*", per_channel_dynamic_qconfig)
        .set_tensor("logits", None)
        .set_tensor("/stem/*", PercentileObserver.with_args(percentile=99.0))
    )


def tensors() -> dict[str, QTensor]:
    """File name -> a quantized tensor."""
    x = weights(30, 2, 6)
    zeros = np.zeros(2, np.int64)
    return {
        "tensor": qtensor.quantize_per_tensor(x, 0.02, 100, "quint8"),
        "channels": qtensor.quantize_per_channel(x, np.array([0.01, 0.02]), zeros, 0, "qint8"),
        "int4": qtensor.quantize_per_channel(x, np.array([0.1, 0.2]), zeros, 0, "int4"),
    }


class Layers(nn.Module):
    """Convolution with batch norm, a sum, and a linear layer, between stubs."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = QuantStub(), DeQuantStub()
        self.conv = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), nn.ReLU())
        self.again = nn.Conv2d(2, 2, 1)
        self.sum = FloatFunctional()
        self.linear = nn.Linear(2 * SIDE * SIDE, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, 1, 4, 4) -> (N, 3)."""
        y = self.conv(self.quant(x))
        z = self.sum.add(y, self.again(y)).flatten(1)
        result: torch.Tensor = self.dequant(self.linear(z))
        return result


class Words(nn.Module):
    """An embedding, an LSTM and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 4)
        self.rnn = nn.LSTM(4, 3, batch_first=True)
        self.out = nn.Linear(3, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """(N, steps) -> (N, steps, 2)."""
        result: torch.Tensor = self.out(self.rnn(self.table(ids))[0])
        return result


class Descriptors(nn.Module):
    """A linear layer between two TensorQuantizers."""

    def __init__(self) -> None:
        super().__init__()
        self.input = TensorQuantizer(QuantDescriptor(calib_method="histogram", axis=None))
        self.linear = nn.Linear(SIDE, SIDE)
        self.output = TensorQuantizer(QuantDescriptor(axis=(1,)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, 4) -> (N, 4)."""
        result: torch.Tensor = self.output(self.linear(self.input(x)))
        return result


def images(seed: int) -> torch.Tensor:
    """A batch for `Layers`."""
    return torch.from_numpy(3 * weights(seed, 4, 1, SIDE, SIDE))


def ids(seed: int) -> torch.Tensor:
    """A batch for `Words`."""
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 5, (4, 6)))
