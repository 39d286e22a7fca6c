from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from onnxq.errors import CalibrationError, QConfigError, UnsupportedError
from onnxq.ort.runtime import NodeKind, integer_nodes, optimized_graph
from onnxq.pytorch.eager.jit import quantize_dynamic_jit, quantize_jit
from onnxq.qconfig import default_dynamic_qconfig, get_default_qconfig

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = [
    pytest.mark.oracle,
    # of torch.jit itself, which these functions are for
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.conv(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block, self.fc = Block(), nn.Linear(8, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.fc(self.block(image).mean([2, 3]))
        return y


X = torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def calibrate(model: Any, batches: Iterable[torch.Tensor]) -> None:
    model.eval()
    for batch in batches:
        model(batch)


def script(how: str) -> torch.jit.ScriptModule:
    torch.manual_seed(0)
    net = Net().eval()
    made = torch.jit.script(net) if how == "script" else torch.jit.trace(net, X)  # type: ignore[no-untyped-call]
    assert isinstance(made, torch.jit.ScriptModule)
    return made


@pytest.mark.parametrize("how", ["script", "trace"])
def test_quantize_jit_gives_a_model_that_runs_in_integers(how: str) -> None:
    module = script(how)
    model = quantize_jit(module, {"": get_default_qconfig("fbgemm")}, calibrate, [[X, X]])
    uses = integer_nodes(optimized_graph(model))
    integers = {use.op_type for use in uses if use.kind is NodeKind.INTEGER}
    assert {"QLinearConv", "QLinearGlobalAveragePool", "QGemm"} <= integers
    with torch.no_grad():
        found, wanted = model.eval()(X[:3]), module(X[:3])
    assert isinstance(found, torch.Tensor)
    assert (found - wanted).abs().max() < 0.1 * wanted.abs().max()
    assert model.verdict is not None
    assert str(model.verdict) == str(model)
    with pytest.raises(CalibrationError, match="got 2 inputs; wanted image"):
        model(X, X)


def test_entries_of_submodules_hold_for_their_nodes() -> None:
    entries = {"": get_default_qconfig(), "fc": None}
    model = quantize_jit(script("script"), entries, calibrate, [[X]])
    uses = {use.op_type: use.kind for use in integer_nodes(optimized_graph(model))}
    assert uses["Gemm"] is NodeKind.FLOAT
    assert "QLinearConv" in uses


def test_quantize_dynamic_jit_stores_integers() -> None:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(512, 512)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.fc(x)
            return y

    module = torch.jit.script(Wide().eval())
    x = torch.randn(4, 512)
    model = quantize_dynamic_jit(module, {"": default_dynamic_qconfig}, inputs=x)
    assert "MatMulInteger" in [node.op_type for node in model.graph]
    found = model(x)
    assert isinstance(found, torch.Tensor)
    assert (found - module(x)).abs().max() < 0.05 * module(x).abs().max()


def test_bad_input_is_refused() -> None:
    module = script("script")
    everything = {"": get_default_qconfig()}
    with pytest.raises(UnsupportedError, match="wanted a ScriptModule"):
        quantize_jit(Net(), everything, calibrate, [[X]])  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="inplace"):
        quantize_jit(module, everything, calibrate, [[X]], inplace=True)
    with pytest.raises(CalibrationError, match="no data was seen"):
        quantize_jit(module, everything, calibrate, [[]])
    with pytest.raises(QConfigError, match="Did you mean 'block'"):
        quantize_jit(module, {"blok": get_default_qconfig()}, calibrate, [[X]])
    with pytest.raises(QConfigError, match="wanted a QConfig"):
        quantize_jit(module, {"": default_dynamic_qconfig}, calibrate, [[X]])
    with pytest.raises(QConfigError, match="wanted a QConfigDynamic"):
        quantize_dynamic_jit(module, everything, inputs=X)
    with pytest.raises(QConfigError, match="format"):
        quantize_jit(module, everything, calibrate, [[X]], format="qop")
    with pytest.raises(QConfigError, match=r"give it inputs=\."):
        quantize_dynamic_jit(module, {"": default_dynamic_qconfig})
    with pytest.raises(QConfigError, match="got 2 inputs"):
        quantize_dynamic_jit(module, {"": default_dynamic_qconfig}, inputs=[X, X])
