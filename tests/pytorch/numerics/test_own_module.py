"""Observers and fake-quantizers of one's own, as PyTorch's documents promise them."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

import onnxq
import onnxq.pytorch.quantization as tq
from onnxq import qconfig
from onnxq.errors import QConfigError, UnsupportedError
from onnxq.pytorch import prepare_qat
from onnxq.pytorch.numerics.own_module import ModuleSpec

if TYPE_CHECKING:
    import onnx_ir as ir

X = torch.linspace(-1, 1, 32).reshape(8, 4)
WEIGHT = tq.default_weight_observer


class Doubled(tq.MinMaxObserver):
    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        scale, zero_point = super().calculate_qparams()
        return scale * 2, zero_point


class Clamped(tq.MinMaxObserver):
    def forward(self, x: Tensor) -> Tensor:
        super().forward(x.clamp(-0.25, 0.25))
        return x


class Largest(tq.ObserverBase):
    """The contract alone: no qscheme, no range of integers."""

    def __init__(self, dtype: torch.dtype = torch.quint8) -> None:
        super().__init__(dtype)
        self.largest: Tensor
        self.register_buffer("largest", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.largest = torch.maximum(self.largest, x.detach().abs().max())
        return x

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        return self.largest.reshape(1) / 127, torch.tensor([128])


class Tripled(tq.FakeQuantize):
    def forward(self, x: Tensor) -> Tensor:
        rounded = super().forward(x)
        return rounded.detach() + 3 * (x - x.detach())  # a gradient of its own


class Quarters(nn.Module):
    """No class of torch's or onnxq's: values on a fixed grid."""

    dtype, qscheme = torch.qint8, torch.per_tensor_symmetric

    def forward(self, x: Tensor) -> Tensor:
        return x + ((x * 16).round() / 16 - x).detach()

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        return torch.tensor([1 / 16]), torch.tensor([0])


class Rows(tq.ObserverBase):
    """One scale for each row of a weight."""

    qscheme, ch_axis = torch.per_channel_symmetric, 0

    def forward(self, x: Tensor) -> Tensor:
        self.scale = x.detach().abs().amax(1) / 100
        return x

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        return self.scale, torch.zeros_like(self.scale)


def wrapped(**parts: Any) -> Any:
    torch.manual_seed(0)
    model: Any = tq.QuantWrapper(nn.Sequential(nn.Linear(4, 4), nn.ReLU())).eval()
    model.qconfig = tq.QConfig(**parts)
    return model


def scales(model: ir.Model) -> list[float]:
    constants = model.graph.initializers
    read = [node.inputs[1] for node in model.graph if node.op_type == "QuantizeLinear"]
    return [float(constants[str(v.name)].const_value.numpy()) for v in read]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("kind", "scale"), [(Doubled, 4 / 255), (Clamped, 0.5 / 255), (Largest, 1 / 127)]
)
def test_an_observer_of_ones_own_decides_what_is_deployed(kind: Any, scale: float) -> None:
    prepared = tq.prepare(wrapped(activation=kind, weight=WEIGHT))
    prepared(X)
    again = tq.prepare(wrapped(activation=kind, weight=WEIGHT))
    again.load_state_dict(copy.deepcopy(prepared.state_dict()))
    again.apply(tq.disable_observer)(X)  # what feeds what is found
    for one in (prepared, again):
        converted: Any = tq.convert(one)
        assert float(converted.quant.scale) == pytest.approx(scale)
    model = onnxq.export(converted, X)
    assert scales(model)[0] == pytest.approx(scale)


def test_torchs_own_base_class_is_taken_too() -> None:
    ao: Any = pytest.importorskip("torch.ao.quantization")

    class Theirs(ao.ObserverBase):  # type: ignore[misc]
        def __init__(self, dtype: torch.dtype = torch.quint8) -> None:
            super().__init__(dtype=dtype)

        def forward(self, x: Tensor) -> Tensor:
            return x

        def calculate_qparams(self) -> tuple[Tensor, Tensor]:
            return torch.tensor([0.5]), torch.tensor([7])

    prepared = tq.prepare(wrapped(activation=Theirs, weight=WEIGHT))
    prepared(X)
    quant: Any = tq.convert(prepared).quant
    assert (float(quant.scale), int(quant.zero_point)) == (0.5, 7)


@pytest.mark.parametrize("of_weights", [Tripled.with_args(observer=WEIGHT), Quarters])
def test_the_gradient_of_a_fake_quantizer_of_ones_own_trains(of_weights: Any) -> None:
    rounding = tq.FakeQuantize.with_args(observer=tq.MinMaxObserver)
    prepared: Any = tq.prepare_qat(wrapped(activation=rounding, weight=of_weights).train())
    prepared(X)
    layer = prepared.module[0]
    total: Any = prepared(X).sum()
    total.backward()
    plain = layer.weight_fake_quant(layer.weight).detach().requires_grad_()
    bias = layer.deployed()[1].detach()
    total = torch.relu(nn.functional.linear(prepared.quant(X), plain, bias)).sum()
    total.backward()
    times = 3 if of_weights is not Quarters else 1
    torch.testing.assert_close(layer.weight.grad, times * plain.grad)
    prepared.eval()
    converted: Any = tq.convert(prepared)
    torch.testing.assert_close(converted.module[0].weight().dequantize(), plain.detach().numpy())
    torch.testing.assert_close(converted(X), prepared(X))
    onnxq.export(converted, X)  # holds ONNX Runtime against it


def test_a_module_of_ones_own_rounds_activations() -> None:
    weight = tq.default_weight_fake_quant
    prepared: Any = tq.prepare_qat(wrapped(activation=Quarters, weight=weight).train())
    y = prepared(X)
    assert torch.equal(y * 16, (y * 16).round())
    quant: Any = tq.convert(prepared.eval()).quant
    assert float(quant.scale) == 1 / 16


def test_a_scale_per_row_needs_a_qscheme_that_says_so() -> None:
    rows = tq.default_observer
    prepared = tq.prepare(wrapped(activation=rows, weight=Rows.with_args(dtype=torch.qint8)))
    prepared(X)
    made: Any = tq.convert(prepared)
    layer = made.module[0]
    assert layer.weight_scale.shape == (4,)

    class Flat(Rows):
        qscheme = torch.per_tensor_symmetric

    refused = tq.prepare(wrapped(activation=rows, weight=Flat.with_args(dtype=torch.qint8)))
    refused(X)
    with pytest.raises(UnsupportedError, match="Flat gives 4 scales; its qscheme says one"):
        tq.convert(refused)


def test_quantizers_that_are_inserted_may_be_ones_own() -> None:
    own: Any = qconfig.QConfig(
        activation=tq.FakeQuantize.with_args(observer=Doubled),  # type: ignore[arg-type]
        weight=tq.FakeQuantize.with_args(observer=WEIGHT),  # type: ignore[arg-type]
    )
    prepared = prepare_qat(nn.Linear(4, 4), inputs=X, qconfig=qconfig.QConfigMapping(own))
    model = onnxq.export(onnxq.pytorch.convert(prepared.eval()), X)
    assert scales(model)[0] == pytest.approx(4 / 255)


def test_a_module_without_qparams_is_refused_by_name() -> None:
    model = wrapped(activation=nn.Tanh, weight=WEIGHT)
    with pytest.raises(QConfigError, match="Tanh has no counterpart"):
        tq.prepare(model)
    with pytest.raises(QConfigError, match="Mine is a module of your own"):
        ModuleSpec("Mine").to_dict()
