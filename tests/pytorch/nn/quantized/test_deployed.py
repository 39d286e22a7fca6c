"""Every quantized layer against ONNX Runtime, on equal inputs: one export holds them all."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest
import torch
from torch import nn

from onnxq.checking.cross_check import cross_check
from onnxq.errors import ModelError
from onnxq.ort import runtime
from onnxq.ort.runtime import NodeKind, integer_nodes, optimized_graph
from onnxq.pytorch import export
from onnxq.pytorch.nn import quantized as nnq
from onnxq.pytorch.nn.intrinsic import quantized as nniq
from onnxq.pytorch.nn.quantized.weighted import Weighted
from onnxq.qtensor import quantize_per_channel, quantize_per_tensor
from tests.exact_engine import exact

pytestmark = pytest.mark.oracle

CHANNELS, SCALE, ZERO_POINT = 8, 0.03, 120
MOST_DIFFERING = 0.002  # at ties, where float32 sums and integer sums fall on either side


def filled(
    layer: Weighted, seed: int, scale: float, zero_point: int, input_scale: float = SCALE
) -> Weighted:
    """The layer with random weights, a scale per channel, and a bias."""
    generator = torch.Generator().manual_seed(seed)
    shape = tuple(layer.weight_integers.shape)
    fan_in = int(np.prod(shape[1:]))
    weight = torch.randn(shape, generator=generator) / fan_in**0.5
    scales = weight.abs().flatten(1).amax(1) / 127
    zeros = np.zeros(len(scales))
    stored = quantize_per_channel(weight.numpy(), scales.numpy(), zeros, 0, "qint8")
    layer.set_weight_bias(stored, torch.randn(len(scales), generator=generator) / 4, input_scale)
    layer.scale, layer.zero_point = scale, zero_point
    return layer


def per_tensor(layer: Weighted) -> Weighted:
    weight = torch.randn(tuple(layer.weight_integers.shape), generator=torch.Generator()) / 9
    stored = quantize_per_tensor(weight.numpy(), float(weight.abs().max()) / 127, 0, "qint8")
    layer.set_weight_bias(stored, None, SCALE)
    layer.scale, layer.zero_point = 0.02, 128
    return layer


class Zoo(nn.Module):
    """Layers side by side, all of which read the same integers."""

    def __init__(self) -> None:
        super().__init__()
        c = CHANNELS
        self.quant = nnq.Quantize(SCALE, ZERO_POINT, "quint8")
        self.layers = nn.ModuleDict(
            {
                "conv": filled(nnq.Conv2d(c, 16, 3, padding=1), 1, 0.02, 128),
                "stride": filled(nnq.Conv2d(c, 16, 3, stride=2, dilation=2), 2, 0.02, 128),
                "depthwise": filled(nnq.Conv2d(c, c, 3, padding=1, groups=c), 3, 0.02, 128),
                "relu": filled(nniq.ConvReLU2d(c, 16, 1), 4, 0.01, 0),
                "relu_zp": filled(nniq.ConvReLU2d(c, 16, 1), 5, 0.02, 30),
                "per_tensor": per_tensor(nnq.Conv2d(c, 16, 3, bias=False)),
                "reflect": filled(nnq.Conv2d(c, c, 3, 1, 1, padding_mode="reflect"), 6, 0.02, 128),
                "linear": filled(nnq.Linear(10, 12), 7, 0.03, 100),
                "linear_relu": filled(nniq.LinearReLU(10, 12), 8, 0.02, 0),
                "max_pool": nnq.MaxPool2d(2),
                "clamped": nnq.ReLU(),
                "relu6": nnq.ReLU6(output=nnq.Requantize(6 / 255, 0)),
                "hardswish": nnq.Hardswish(0.02, 20),
                "elu": nnq.ELU(0.03, 40),
                "leaky": nnq.LeakyReLU(0.03, 10),
                "sigmoid": nnq.Sigmoid(1 / 256, 0),
            }
        )
        self.add, self.cat = nnq.QFunctional(), nnq.QFunctional()
        self.add.scale, self.add.zero_point = 0.05, 20
        self.cat.scale, self.cat.zero_point = 0.03, 128

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.quant(x)
        found = {name: layer(x) for name, layer in self.layers.items()}
        found["add_relu"] = self.add.add_relu(x, found["depthwise"])
        found["concat"] = self.cat.cat([x, found["depthwise"]], 1)
        return found


@functools.cache
def exported() -> tuple[Zoo, ir.Model, npt.NDArray[np.float32]]:
    zoo = Zoo().eval()
    x = torch.randn(16, CHANNELS, 12, 10, generator=torch.Generator().manual_seed(9))
    return zoo, export(zoo, x[:3]), x.numpy()


def test_each_layer_equals_onnx_runtime_up_to_rare_ties() -> None:
    zoo, model, x = exported()
    with torch.no_grad():
        wanted = zoo(torch.from_numpy(x))
    with exact(model) as session:
        found = dict(zip(wanted, session.run({"x": x}, list(wanted)), strict=True))
    qparams = {name: getattr(layer, "output", None) for name, layer in zoo.layers.items()}
    scales = {n: float(g.scale) for n, g in qparams.items() if isinstance(g, nnq.Requantize)}
    scales |= {"add_relu": zoo.add.scale, "concat": zoo.cat.scale}
    for name, expected in wanted.items():
        steps = np.abs(found[name] - expected.numpy()) / scales.get(name, SCALE)
        assert steps.max() <= 1.01, name
        assert (steps > 0.01).mean() <= MOST_DIFFERING, name


def test_what_has_an_integer_kernel_runs_on_it() -> None:
    _, model, _ = exported()
    uses = integer_nodes(optimized_graph(model))
    integers = [use.op_type for use in uses if use.kind is NodeKind.INTEGER]
    assert integers.count("QLinearConv") == 7
    assert integers.count("QGemm") == 2
    assert {"QLinearAdd", "QLinearConcat", "QLinearSigmoid", "QLinearLeakyRelu"} <= {*integers}
    floats = {use.op_type for use in uses if use.kind is NodeKind.FLOAT}
    assert floats <= {"Elu", "HardSwish", "HardSigmoid", "Mul"}, floats


def test_the_reference_finds_no_differing_integer() -> None:
    _, model, x = exported()
    found = cross_check(model, [{"x": x[:2]}])
    assert all(node.differing == 0 for node in found.nodes if node.unit == "integers")
    assert all(output.differing == 0 for output in found.outputs)


def test_the_file_holds_integers_scalars_and_a_dynamic_batch() -> None:
    zoo, model, _ = exported()
    weights = {v.name: v.const_value for v in model.graph.initializers.values()}
    for name, layer in zoo.layers.items():
        if isinstance(layer, Weighted):
            tensor = weights[f"layers.{name}.weight_integers"]
            assert tensor is not None
            assert tensor.dtype == ir.DataType.INT8
            if layer.bias_integers is not None:
                bias = weights[f"layers.{name}.bias_integers"]
                assert bias is not None
                assert bias.dtype == ir.DataType.INT32
    for node in model.graph:
        if node.op_type == "QuantizeLinear":
            scale = node.inputs[1]
            assert scale is not None
            assert scale.shape is not None
            assert scale.shape.rank() == 0
            producer = node.inputs[0].producer() if node.inputs[0] is not None else None
            assert producer is None or producer.op_type not in ("Clip", "Relu")
    assert model.graph.inputs[0].shape is not None
    assert str(model.graph.inputs[0].shape[0]) == "batch"


def test_layers_of_one_and_three_dimensions_run_in_integers() -> None:
    class Volumes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.quant = nnq.Quantize(SCALE, ZERO_POINT, "quint8")
            self.flat = filled(nniq.ConvReLU1d(4, 5, 3), 1, 0.02, 0)
            self.deep = filled(nnq.Conv3d(1, 3, 2), 2, 0.02, 128)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            x = self.quant(x)
            return self.flat(x.flatten(2)), self.deep(x[:, None])

    model = export(Volumes(), torch.randn(2, 4, 5, 6))
    uses = integer_nodes(optimized_graph(model))
    assert [u.op_type for u in uses if u.kind is NodeKind.INTEGER].count("QLinearConv") == 2


class Small(nn.Module):
    def __init__(self, input_scale: float) -> None:
        super().__init__()
        self.quant = nnq.Quantize(SCALE, ZERO_POINT, "quint8")
        self.conv = filled(nniq.ConvReLU2d(3, 4, 3), 1, 0.02, 0)
        self.fc = filled(nnq.Linear(4, 5), 2, 0.02, 128, input_scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.fc(self.conv(self.quant(x)).amax((2, 3)))
        return y


def test_qoperator_format_gives_the_same_integers() -> None:
    net, x = Small(0.02).eval(), torch.randn(3, 3, 6, 6)
    qdq, qoperator = export(net, x), export(net, x, format="qoperator")
    kinds = [node.op_type for node in qoperator.graph]
    assert "QLinearConv" in kinds
    assert "QGemm" in kinds
    with runtime.open_session(qdq) as a, runtime.open_session(qoperator) as b:
        feeds = {"x": x.numpy()}
        np.testing.assert_array_equal(a.run(feeds)[0], b.run(feeds)[0])


def test_a_bias_at_another_scale_than_its_sums_is_refused() -> None:
    with pytest.raises(ModelError, match=r"bias 'fc.bias_integers'.*input_scale 0.02"):
        export(Small(0.03).eval(), torch.randn(3, 3, 6, 6))
