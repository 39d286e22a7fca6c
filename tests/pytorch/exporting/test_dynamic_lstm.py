"""nn.LSTM and nn.LSTMCell from torch, exported, quantized dynamically, held against the kernels."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import nn
from torch._higher_order_ops.scan import scan

import onnxq
from onnxq.observers import LeastErrorObserver, NarrowRangeObserver
from onnxq.operator import Precision
from onnxq.ort import runtime
from onnxq.qconfig import QConfigDynamic, QConfigMapping

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    import onnx_ir as ir

HIDDEN, INPUTS, STEPS, BATCH = 24, 8, 6, 4
NEAR = 0.02  # of the largest output; nets of a few steps with weights of +-0.2 showed up to 0.009

INTEGERS = QConfigDynamic(NarrowRangeObserver.with_args(), Precision.DYNAMIC_INT8)
"""Whatever the target's measurements say of nets this small."""

State = tuple[torch.Tensor, torch.Tensor]


class Sequence(nn.Module):
    """nn.LSTM, all of its results."""

    def __init__(self, **options: int | bool) -> None:
        super().__init__()
        self.lstm = nn.LSTM(INPUTS, HIDDEN, **options)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        y, (h, c) = self.lstm(x)
        return y, h, c


class GivenState(nn.Module):
    """nn.LSTM that starts from states that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(INPUTS, HIDDEN)

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.lstm(x, (h, c))[0]
        return y


class Unrolled(nn.Module):
    """nn.LSTMCell in a Python loop: a Gemm with the same weights per step."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(INPUTS, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x.new_zeros(x.shape[0], HIDDEN)
        c = h
        for t in range(STEPS):
            h, c = self.cell(x[:, t], (h, c))
        return h


class Scanned(nn.Module):
    """nn.LSTMCell in the body of a Scan."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(INPUTS, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def step(state: State, x: torch.Tensor) -> tuple[State, torch.Tensor]:
            h, c = self.cell(x, state)
            return (h, c), h.clone()

        start = x.new_zeros(x.shape[0], HIDDEN)
        state, _ = scan(step, (start, start.clone()), x.transpose(0, 1))
        h: torch.Tensor = state[0]
        return h


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def exported(net: nn.Module, inputs: Mapping[str, torch.Tensor], batch_axis: int) -> ir.Model:
    torch.manual_seed(0)
    for parameter in net.parameters():
        nn.init.uniform_(parameter, -0.2, 0.2)
    axes = {name: {batch_axis: "batch"} for name in inputs}
    return onnxq.export(net.eval(), dict(inputs), dynamic_axes=axes)


def ops(model: ir.Model) -> Counter[str]:
    return Counter(node.op_type for graph in model.graphs() for node in graph)


def run(
    model: ir.Model, feeds: Mapping[str, npt.NDArray[np.float32]]
) -> list[npt.NDArray[np.float32]]:
    with runtime.open_session(model, threads=1) as session:
        return [np.asarray(y, np.float32) for y in session.run(dict(feeds))]


def assert_near_and_exact(
    net: nn.Module, inputs: Mapping[str, torch.Tensor], batch_axis: int = 1
) -> ir.Model:
    """The quantized model: near float on the inputs, and the kernels have its bits."""
    model = exported(net, inputs, batch_axis)
    quantized = onnxq.quantize_dynamic(model, QConfigMapping().set_global(INTEGERS))
    feeds = {name: x.numpy() for name, x in inputs.items()}
    for y, wanted in zip(run(quantized, feeds), run(model, feeds), strict=True):
        assert y.shape == wanted.shape
        assert np.abs(y - wanted).max() <= NEAR * np.abs(wanted).max()
    evaluator = onnxq.reference.evaluator(quantized)
    for y, wanted in zip(evaluator.run(None, feeds), run(quantized, feeds), strict=True):
        assert np.array_equal(y, wanted)
    return quantized


@pytest.mark.parametrize(
    ("options", "nodes"),
    [
        ({}, 1),
        ({"bias": False}, 1),
        ({"bidirectional": True}, 1),
        ({"num_layers": 3}, 3),
        ({"num_layers": 2, "bidirectional": True}, 2),
    ],
    ids=str,
)
def test_each_layer_of_nn_lstm_becomes_one_integer_node(
    options: dict[str, int], nodes: int
) -> None:
    quantized = assert_near_and_exact(Sequence(**options), {"x": draw(STEPS, BATCH, INPUTS)})
    found = ops(quantized)
    assert found["DynamicQuantizeLSTM"] == nodes
    assert found["LSTM"] == 0


def test_batch_first_is_handled() -> None:
    net = Sequence(batch_first=True)
    found = ops(assert_near_and_exact(net, {"x": draw(BATCH, STEPS, INPUTS)}, batch_axis=0))
    assert found["DynamicQuantizeLSTM"] == 1


def test_given_states_are_used() -> None:
    states = {name: draw(1, BATCH, HIDDEN) / 2 for name in ("h", "c")}
    quantized = assert_near_and_exact(GivenState(), {"x": draw(STEPS, BATCH, INPUTS), **states})
    (node,) = [n for n in quantized.graph if n.op_type == "DynamicQuantizeLSTM"]
    assert node.inputs[5] is not None
    assert node.inputs[6] is not None


@pytest.mark.parametrize(
    "qconfig",
    [
        QConfigDynamic(NarrowRangeObserver.with_args(), precision=Precision.WEIGHT_ONLY),
        QConfigDynamic(LeastErrorObserver.with_args(dtype="int4"), precision=Precision.WEIGHT_ONLY),
        onnxq.qconfig.float16_dynamic_qconfig,
    ],
    ids=["stored int8", "stored int4", "float16"],
)
def test_weights_alone_can_be_stored(qconfig: QConfigDynamic) -> None:
    x = draw(STEPS, BATCH, INPUTS)
    model = exported(Sequence(), {"x": x}, 1)
    quantized = onnxq.quantize_dynamic(model, {"LSTM": qconfig})
    assert ops(quantized)["LSTM"] == 1
    assert ops(runtime.optimized_graph(quantized))["Cast"] == 0  # folded at load
    for y, wanted in zip(
        run(quantized, {"x": x.numpy()}), run(model, {"x": x.numpy()}), strict=True
    ):
        assert np.abs(y - wanted).max() <= 0.2 * np.abs(wanted).max()  # 4 bits: 15 levels


@pytest.mark.parametrize(
    "qconfig",
    [onnxq.qconfig.default_dynamic_qconfig, onnxq.qconfig.per_channel_dynamic_qconfig],
    ids=["default_dynamic_qconfig", "per_channel_dynamic_qconfig"],
)
def test_the_documented_qconfigs_give_integer_nodes(qconfig: QConfigDynamic) -> None:
    model = exported(Sequence(bidirectional=True), {"x": draw(STEPS, BATCH, INPUTS)}, 1)
    integers = dataclasses.replace(qconfig, precision=Precision.DYNAMIC_INT8)
    quantized = onnxq.quantize_dynamic(model, {"LSTM": integers})
    assert ops(quantized)["DynamicQuantizeLSTM"] == 1


@pytest.mark.nightly
def test_steps_of_an_unrolled_lstm_cell_share_their_weights() -> None:
    quantized = assert_near_and_exact(Unrolled(), {"x": draw(BATCH, STEPS, INPUTS)}, batch_axis=0)
    assert ops(quantized)["MatMulInteger"] == 2 * STEPS
    integers = [v for v in quantized.graph.initializers.values() if str(v.dtype) == "INT8"]
    assert sorted(tuple(v.shape or ()) for v in integers) == [(8, 96), (24, 96)]


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # torch's scan
def test_lstm_cells_in_the_body_of_a_scan_are_quantized() -> None:
    quantized = assert_near_and_exact(Scanned(), {"x": draw(BATCH, STEPS, INPUTS)}, batch_axis=0)
    assert ops(quantized)["MatMulInteger"] == 2
    assert ops(quantized)["Gemm"] == 0
