"""Linear layers whose weight is trained in blocks, converted, and run as MatMulNBits."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import onnxq
from onnxq.errors import QConfigError, UnsupportedError
from onnxq.observers import (
    MinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    ObserverSpec,
    PerChannelMinMaxObserver,
    StepSizeObserver,
)
from onnxq.pytorch import convert, disable_observer, export, prepare, prepare_qat
from onnxq.pytorch.nn.qat.linear import GroupwiseLinear as Trained
from onnxq.pytorch.nn.quantized.dynamic.linear import GroupwiseLinear, block_integers
from onnxq.pytorch.train.recipe import Recipe, finetune
from onnxq.qconfig import (
    FakeQuantSpec,
    QConfigDynamic,
    QConfigMapping,
    ScaleRule,
    get_default_qat_qconfig,
    groupwise_4bit_qat_qconfig,
)

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.quantized.quantized_model import QuantizedModel

pytestmark = pytest.mark.oracle

INPUTS = 40  # no multiple of a block


class Net(nn.Module):
    """Layers with and without bias, and a MatMul with a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.mid = nn.Linear(INPUTS, 24), nn.Linear(24, 24, bias=False)
        self.weight = nn.Parameter(torch.randn(24, 24) / 5)
        self.head = nn.Linear(24, 5)

    def forward(self, x: Tensor) -> Tensor:
        """(..., 5)."""
        y = self.up(x).relu()
        y = (y + self.mid(y)) @ self.weight
        return self.head(y.softmax(-1))  # type: ignore[no-any-return]


def entry(
    observer: ObserverSpec, size: int, rule: ScaleRule = ScaleRule.OBSERVED
) -> QConfigDynamic:
    return QConfigDynamic(FakeQuantSpec(observer, rule), block_size=size)


def rows(dtype: str, scheme: str) -> ObserverSpec:
    return PerChannelMinMaxObserver.with_args(dtype=dtype, qscheme=scheme)


AFFINE, SYMMETRIC = "per_channel_affine", "per_channel_symmetric"
ENTRIES = {
    "default": groupwise_4bit_qat_qconfig,
    "learned int4": entry(rows("int4", SYMMETRIC), 16, ScaleRule.LEARNED),
    "narrow int4": entry(StepSizeObserver.with_args(dtype="int4"), 64, ScaleRule.LEARNED),
    "uint8": entry(
        MovingAveragePerChannelMinMaxObserver.with_args(dtype="quint8", qscheme=AFFINE), 128
    ),
    "int8": entry(rows("qint8", SYMMETRIC), 32),
    "uint2": entry(rows("uint2", AFFINE), 32),
    "int2": entry(rows("int2", SYMMETRIC), 64),
}


def trained(entry: QConfigDynamic, x: Tensor) -> Any:
    torch.manual_seed(1)
    model: Any = prepare_qat(Net(), inputs=x, qconfig=QConfigMapping(entry))
    before = model.up.weight.detach().clone()
    finetune(model, [x], lambda m, batch: m(batch).square().mean(), Recipe(3))
    assert not torch.equal(before, model.up.weight)
    return model


def matmuls(model: QuantizedModel | ir.Model) -> list[ir.Node]:
    return [node for node in model.graph if node.op_type == "MatMulNBits"]


DAILY = "default"


@pytest.mark.parametrize(
    "name",
    [name if name == DAILY else pytest.param(name, marks=pytest.mark.nightly) for name in ENTRIES],
)
def test_what_was_trained_is_deployed(name: str) -> None:
    """Integers bit for bit, and results within the bound of accuracy_level 0."""
    x = torch.randn(8, 3, INPUTS)
    model = trained(ENTRIES[name], x)
    converted: Any = convert(model)
    assert torch.equal(converted(x), model(x))
    exported = export(converted, x)
    nodes = matmuls(exported)
    assert len(nodes) == 4
    assert not any(node.op_type in ("MatMul", "Gemm") for node in exported.graph)
    assert all(node.domain == "com.microsoft" for node in nodes)
    assert all(node.attributes.get_int("accuracy_level", 0) == 0 for node in nodes)
    packed = block_integers(model.up).packed()
    (integers,) = (v.const_value for v in nodes[0].inputs[1:2] if v is not None)
    assert integers is not None
    assert np.array_equal(integers.numpy(), packed.integers)
    assert np.array_equal(
        block_integers(model.up).dequantized, model.up.deployed()[0].detach().numpy()
    )
    checked = onnxq.cross_check(exported, {str(exported.graph.inputs[0].name): x.numpy()})
    assert len(checked.nodes) == 4
    assert not any(node.differing for node in checked.nodes)
    assert all(one.largest <= one.rounding for one in checked.outputs)


@pytest.mark.nightly
def test_symmetric_integers_store_no_zero_points() -> None:
    x = torch.randn(4, INPUTS)
    for name, slots in (("learned int4", False), ("default", True)):
        (node, *_) = matmuls(export(convert(trained(ENTRIES[name], x)), x))
        assert (node.inputs[3] is not None) == slots, name


def test_layers_with_a_qconfig_of_their_own_need_no_stubs() -> None:
    x = torch.randn(4, INPUTS)
    net: Any = Net().train()
    net.qconfig, net.head.qconfig = groupwise_4bit_qat_qconfig, None
    model: Any = prepare_qat(net)
    assert isinstance(model.up, Trained)
    assert type(model.head) is nn.Linear
    model(x).sum().backward()
    converted: Any = convert(model.apply(disable_observer).eval())
    assert torch.equal(converted(x), model(x))
    assert len(matmuls(export(converted, x))) == 2


class Adapted(nn.Module):
    """A layer with what LoRA adds to it, as peft's modules do: y + x A B."""

    def __init__(self, base: nn.Module, inputs: int, outputs: int) -> None:
        super().__init__()
        self.base = base
        self.a = nn.Parameter(torch.randn(inputs, 2) / 4)
        self.b = nn.Parameter(torch.zeros(2, outputs))

    def forward(self, x: Tensor) -> Tensor:
        """(..., outputs)."""
        y: Tensor = self.base(x) + x @ self.a @ self.b
        return y


def test_adapters_are_trained_over_integer_weights_and_deployed() -> None:
    torch.manual_seed(0)
    config = entry(rows("int4", "per_channel_symmetric"), 16)
    net = nn.Sequential(nn.Linear(INPUTS, 24), nn.ReLU(), nn.Linear(24, 5)).train()
    for layer in (net[0], net[2]):
        layer.qconfig = config  # type: ignore[assignment]
    x, y = torch.randn(64, INPUTS), torch.randn(64, 5)
    base = convert(prepare_qat(net).eval())
    integers = [buffer.clone() for buffer in base.buffers()]
    model = nn.Sequential(Adapted(base[0], INPUTS, 24), nn.ReLU(), Adapted(base[2], 24, 5))  # type: ignore[index]
    optimizer, losses = torch.optim.Adam(model.parameters(), 1e-2), []
    for _ in range(20):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        torch.autograd.backward(
            loss
        )  # the first adapter's gradient comes through the second's integers
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.9 * losses[0]
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())
    assert all(map(torch.equal, base.buffers(), integers))
    deployed = export(model.eval(), x)
    assert [n.op_type for n in deployed.graph].count("MatMulNBits") == 2


def test_peft_finds_the_device_of_a_layer() -> None:
    layer = GroupwiseLinear(INPUTS, 24, 4, 32)
    assert layer.qweight is layer.integers
    assert "qweight" not in layer.state_dict()


def test_a_state_dict_of_a_converted_layer_loads() -> None:
    x = torch.randn(4, INPUTS)
    layer: Any = convert(trained(groupwise_4bit_qat_qconfig, x)).up
    fresh = GroupwiseLinear(INPUTS, 24, 4, 32)
    fresh.load_state_dict(layer.state_dict())
    assert torch.equal(fresh(x), layer(x))
    assert torch.equal(copy.deepcopy(layer).real_weight(), fresh.real_weight())


@pytest.mark.nightly
def test_layers_in_blocks_stand_beside_layers_in_integers() -> None:
    """By node: the head is trained in blocks, the others on integers."""
    x = torch.randn(16, INPUTS)

    class Named(nn.Module):
        """Two layers."""

        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(INPUTS, 16), nn.Linear(16, 4)

        def forward(self, x: Tensor) -> Tensor:
            """(N, 4)."""
            return self.head(self.body(x).relu())  # type: ignore[no-any-return]

    found = onnxq.pytorch.annotate(Named(), x)
    names = {weight.path: weight.exported for weight in found.weights}
    mapping = QConfigMapping(get_default_qat_qconfig()).set_node(
        names["head"], groupwise_4bit_qat_qconfig
    )
    model: Any = prepare_qat(Named(), inputs=x, qconfig=mapping)
    model(x).sum().backward()
    exported = export(convert(model.apply(disable_observer).eval()), x)
    kinds = [node.op_type for node in exported.graph]
    assert kinds.count("MatMulNBits") == 1
    assert "QuantizeLinear" in kinds


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (QConfigDynamic(rows("uint4", AFFINE), block_size=32), "does not round"),
        (entry(MinMaxObserver.with_args(dtype="uint4"), 32), "no scale for each row"),
        (entry(rows("uint4", AFFINE), 256), "16, 32, 64, 128"),
        (get_default_qat_qconfig(), "block size"),
    ],
)
def test_qconfigs_without_such_a_weight_are_refused(wrong: object, said: str) -> None:
    layer: Any = nn.Linear(8, 4)
    layer.qconfig = wrong
    with pytest.raises(QConfigError, match=said):
        Trained.from_float(layer)


def test_only_trained_layers_are_converted() -> None:
    with pytest.raises(UnsupportedError, match="block size"):
        GroupwiseLinear.from_float(nn.Linear(8, 4))


def test_observing_alone_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="prepare_qat"):
        prepare(Net(), inputs=torch.randn(4, INPUTS), qconfig=QConfigMapping(ENTRIES["default"]))
