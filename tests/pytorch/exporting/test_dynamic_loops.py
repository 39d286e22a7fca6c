"""nn.LSTMCell, nn.GRUCell and nn.RNNCell in a loop that torch exports as an ONNX Loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import nn
from torch._higher_order_ops.while_loop import while_loop

import onnxq
from onnxq.checking.cross_check import cross_check
from onnxq.observers import NarrowRangeObserver
from onnxq.operator import Precision
from onnxq.ort import runtime
from onnxq.qconfig import QConfigDynamic, QConfigMapping
from tests.cell_bounds import Cell

if TYPE_CHECKING:
    import numpy.typing as npt
    import onnx_ir as ir

pytestmark = pytest.mark.oracle

HIDDEN, INPUTS, STEPS, BATCH = 24, 8, 6, 4
# MatMuls as small as these are stored in integers otherwise, and computed in float
INTEGERS = QConfigMapping(
    QConfigDynamic(NarrowRangeObserver.with_args(), precision=Precision.DYNAMIC_INT8)
)
KINDS = {"LSTM": nn.LSTMCell, "GRU": nn.GRUCell, "RNN": nn.RNNCell}


class Looped(nn.Module):
    """The last h of a cell over x (T, N, INPUTS), T known when it runs."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.cell = KINDS[kind](INPUTS, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def more(t: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
            return t < x.shape[0]

        def step(t: torch.Tensor, *state: torch.Tensor) -> tuple[torch.Tensor, ...]:
            now = x.index_select(0, t.reshape(1)).squeeze(0)
            if isinstance(self.cell, nn.LSTMCell):
                return t + 1, *self.cell(now, state)
            return t + 1, self.cell(now, *state)

        h = x.new_zeros(x.shape[1], HIDDEN)
        state = (h, h.clone()) if isinstance(self.cell, nn.LSTMCell) else (h,)
        results = while_loop(more, step, (torch.zeros((), dtype=torch.int64), *state))  # type: ignore[no-untyped-call]
        last: torch.Tensor = results[1]
        return last


def exported(kind: str) -> tuple[ir.Model, Cell]:
    torch.manual_seed(0)
    net = Looped(kind).eval()
    x = torch.zeros(STEPS, BATCH, INPUTS)
    model = onnxq.export(net, {"x": x}, dynamic_axes={"x": {0: "steps", 1: "batch"}})
    names = {"w": "weight_ih", "r": "weight_hh", "wb": "bias_ih", "rb": "bias_hh"}
    parameters = {k: p.detach().double().numpy() for k, p in net.cell.named_parameters()}
    return model, Cell(kind, **{short: parameters[name] for short, name in names.items()})


def run(model: ir.Model, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    with runtime.open_session(model, threads=1) as session:
        return np.asarray(session.run({"x": x})[0], np.float32)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_a_cell_in_a_loop_is_quantized_near_float_and_exact(kind: str) -> None:
    model, cell = exported(kind)
    quantized = onnxq.quantize_dynamic(model, INTEGERS, objective="size")
    ops = [node.op_type for node in quantized.graph.all_nodes()]
    assert ops.count("Loop") == 1
    assert ops.count("MatMulInteger") == 2
    assert "Gemm" not in ops
    for steps in (STEPS, 1, 9):
        x = np.random.default_rng(steps).standard_normal((steps, BATCH, INPUTS)).astype("f")
        y = run(quantized, x)
        assert (np.abs(y - run(model, x)) <= cell.bound(x.astype(np.float64))[1]).all()
        assert np.array_equal(onnxq.reference.evaluator(quantized).run(None, {"x": x})[0], y)
    findings = cross_check(quantized, [{"x": x}])
    findings.check()
    assert len([n for n in findings.nodes if n.op_type == "DynamicQuantizeMatMul"]) == 2
