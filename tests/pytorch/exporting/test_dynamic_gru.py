"""nn.GRU, nn.RNN and their cells from torch, quantized dynamically, held against the kernels."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import nn
from torch._higher_order_ops.scan import scan

import onnxq
from onnxq.observers import NarrowRangeObserver
from onnxq.operator import Precision
from onnxq.ort import runtime
from onnxq.qconfig import QConfigDynamic, QConfigMapping

if TYPE_CHECKING:
    import numpy.typing as npt
    import onnx_ir as ir

pytestmark = pytest.mark.oracle

HIDDEN, INPUTS, STEPS, BATCH = 24, 8, 6, 4
NEAR = 0.03  # of the largest output; nets of a few steps with weights of +-0.2 showed up to 0.013

Results = list["npt.NDArray[np.float32]"]


class Sequence(nn.Module):
    """nn.GRU or nn.RNN, both of its results."""

    def __init__(self, kind: type[nn.GRU | nn.RNN], **options: int | bool) -> None:
        super().__init__()
        self.net = kind(INPUTS, HIDDEN, **options)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y, h = self.net(x)
        return y, h


class Unrolled(nn.Module):
    """A cell in a Python loop: Gemms with the same weights per step."""

    def __init__(self, kind: type[nn.GRUCell | nn.RNNCell]) -> None:
        super().__init__()
        self.cell = kind(INPUTS, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x.new_zeros(x.shape[0], HIDDEN)
        for t in range(STEPS):
            h = self.cell(x[:, t], h)
        return h


class Scanned(nn.Module):
    """A cell in the body of a Scan."""

    def __init__(self, kind: type[nn.GRUCell | nn.RNNCell]) -> None:
        super().__init__()
        self.cell = kind(INPUTS, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def step(h: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            new = self.cell(x, h)
            return new, new.clone()

        h: torch.Tensor
        h, _ = scan(step, x.new_zeros(x.shape[0], HIDDEN), x.transpose(0, 1))
        return h


def ops(model: ir.Model) -> Counter[str]:
    return Counter(node.op_type for graph in model.graphs() for node in graph)


def run(model: ir.Model, x: npt.NDArray[np.float32]) -> Results:
    with runtime.open_session(model, threads=1) as session:
        return [np.asarray(y, np.float32) for y in session.run({"x": x})]


def quantized(net: nn.Module, batch_axis: int, spec: QConfigMapping | None = None) -> ir.Model:
    """The quantized model: near float, and the kernels have its bits."""
    torch.manual_seed(0)
    for parameter in net.parameters():
        nn.init.uniform_(parameter, -0.2, 0.2)
    shape = (BATCH, STEPS, INPUTS) if batch_axis == 0 else (STEPS, BATCH, INPUTS)
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(1))
    axes = {"x": {batch_axis: "batch"}}
    model = onnxq.export(net.eval(), {"x": x}, dynamic_axes=axes)
    found = onnxq.quantize_dynamic(model, spec, objective="size")
    results, values = run(found, x.numpy()), x.numpy()
    for y, wanted in zip(results, run(model, values), strict=True):
        assert y.shape == wanted.shape
        assert np.abs(y - wanted).max() <= NEAR * np.abs(wanted).max()
    for y, wanted in zip(onnxq.reference.evaluator(found).run(None, {"x": values}), results,
                         strict=True):  # fmt: skip
        if "GRU" not in ops(found):  # float sums may differ in their last bits
            assert np.array_equal(y, wanted)
    return found


# MatMuls as small as these are stored in integers otherwise, and computed in float
INTEGERS = QConfigMapping(
    QConfigDynamic(NarrowRangeObserver.with_args(), precision=Precision.DYNAMIC_INT8)
)

OPTIONS: tuple[dict[str, int], ...] = (
    {},
    {"bias": False},
    {"bidirectional": True},
    {"num_layers": 2},
    {"batch_first": True},
)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_no_layer_of_nn_gru_keeps_float_weights(options: dict[str, int]) -> None:
    found = quantized(Sequence(nn.GRU, **options), 0 if "batch_first" in options else 1)
    assert_no_float_weight(found)
    assert ops(found)["Scan"] + ops(found)["GRU"] >= options.get("num_layers", 1)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_each_direction_of_nn_gru_becomes_a_scan_of_integers(options: dict[str, int]) -> None:
    net = Sequence(nn.GRU, **options)
    found = quantized(net, 0 if "batch_first" in options else 1, INTEGERS)
    assert_no_float_weight(found)
    scans = options.get("num_layers", 1) * (2 if "bidirectional" in options else 1)
    assert (ops(found)["Scan"], ops(found)["GRU"]) == (scans, 0)


@pytest.mark.nightly
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_nn_rnn_which_torch_writes_out_is_quantized_in_its_matmuls(
    options: dict[str, int],
) -> None:
    found = quantized(Sequence(nn.RNN, **options), 0 if "batch_first" in options else 1, INTEGERS)
    assert_no_float_weight(found)
    assert not {"MatMul", "Gemm"} & set(ops(found))


def assert_no_float_weight(model: ir.Model) -> None:
    constants = [v.const_value for g in model.graphs() for v in g.initializers.values()]
    floats = [c for c in constants if c is not None and c.dtype.is_floating_point()]
    assert (
        max(c.size for c in floats) <= 12 * HIDDEN
    )  # two directions' biases; W of a GRU has 24 * HIDDEN


@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "matmuls"), [(nn.GRUCell, 2), (nn.RNNCell, 2)])
def test_steps_of_an_unrolled_cell_share_their_weights(
    kind: type[nn.GRUCell | nn.RNNCell], matmuls: int
) -> None:
    found = quantized(Unrolled(kind), 0, INTEGERS)
    assert ops(found)["MatMulInteger"] == matmuls * STEPS
    integers = [v for v in found.graph.initializers.values() if str(v.dtype) == "INT8"]
    assert len(integers) == matmuls
    assert_no_float_weight(found)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # torch's scan
@pytest.mark.parametrize("kind", [nn.GRUCell, nn.RNNCell])
def test_cells_in_the_body_of_a_scan_are_quantized(kind: type[nn.GRUCell | nn.RNNCell]) -> None:
    found = quantized(Scanned(kind), 0, INTEGERS)
    assert ops(found)["MatMulInteger"] == 2
    assert ops(found)["Gemm"] == 0
