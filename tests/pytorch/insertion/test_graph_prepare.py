"""The route without stubs: quantizers where onnxq.prepare puts them, and what is trained there."""

from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import onnxq
from models.cifar10 import load_sample
from models.resnet import ResNet
from onnxq.errors import QConfigError, UnsupportedError
from onnxq.graph.canonical import canonicalize_module
from onnxq.ort import runtime
from onnxq.ort.types_by_run import types_by_run
from onnxq.pytorch import (
    FakeQuantize,
    annotate,
    convert,
    export,
    load_module,
    prepare,
    prepare_qat,
)
from onnxq.pytorch.nn.intrinsic.qat import ConvBn2d, ConvBnReLU2d
from onnxq.pytorch.programs.onnx_form import onnx_form
from onnxq.pytorch.programs.program import Open, program_of
from onnxq.pytorch.train.annotations import ANNOTATIONS
from onnxq.qconfig import (
    Choice,
    QConfigMapping,
    default_qconfig_mapping,
    get_default_qat_qconfig,
    get_default_qconfig,
)
from onnxq.static.insertion.decision import Quantize

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx_ir as ir

    from onnxq.pytorch.train.annotations import Annotations

ROOT = Path(__file__).resolve().parent.parent.parent.parent
# with every node in integers, as in training, where no Conv takes the place of a pool
MAPPING = QConfigMapping(
    get_default_qat_qconfig(), {"AveragePool": None}, choice=Choice.ALL_INTEGERS
)
MOVES = {"Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "MaxPool", "Concat"}


class Functional(nn.Module):
    """No modules but for those with weights: relu, +, mean and flatten are functions."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.weight = nn.Parameter(torch.randn(8, 8, 3, 3) / 8)
        self.bias = nn.Parameter(torch.randn(8))
        self.fc = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of shape (N, 5)."""
        y = functional.relu(self.norm(self.first(x)))
        z = functional.conv2d(y, self.weight, self.bias, padding=1)
        y = functional.relu(y + z)
        y = torch.cat([functional.max_pool2d(y, 2), functional.avg_pool2d(z, 2)], 1)
        y = functional.dropout(y, 0.1, self.training)
        scores: Tensor = self.fc(y.mean((2, 3)))
        return scores


class Concatenated(nn.Module):
    """Two branches of different ranges meet in a concatenation; a ReLU6, a view."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU6())
        self.right = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.after = nn.Conv2d(8, 4, 1)
        self.fc = nn.Linear(4 * 16, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of shape (N, 3)."""
        y = self.after(torch.cat([4 * 0.5 * self.left(x), self.right(x)], 1))
        scores: Tensor = self.fc(functional.max_pool2d(y, 2).view(x.shape[0], -1))
        return scores


class Tokens(nn.Module):
    """A layer for tokens that is called twice, a MatMul of two activations, a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Linear(8, 8)
        self.out = nn.Linear(8, 4)
        self.place = nn.Parameter(torch.randn(6, 8))

    def forward(self, x: Tensor) -> Tensor:
        """(N, 6, 4)."""
        x = self.shared(x) + self.place
        scores = torch.softmax(self.shared(x) @ x.transpose(1, 2) * 0.125, -1)
        y: Tensor = self.out(scores @ x)
        return y


class Sdpa(nn.Module):
    """Attention of two heads as one function."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))
        self.out = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 6, 8)."""
        layers = (self.query, self.key, self.value)
        q, k, v = (f(x).reshape(x.shape[0], 6, 2, 4).transpose(1, 2) for f in layers)
        y = functional.scaled_dot_product_attention(q, k, v)
        z: Tensor = self.out(y.transpose(1, 2).reshape(x.shape[0], 6, 8))
        return z


class Gated(nn.Module):
    """Nodes that the exporter takes apart or folds: silu, padding, bounds of no ReLU, slices."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 1)
        self.second = nn.Conv2d(8, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.act = nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        """(N, 4 * 8 * 8)."""
        y = functional.pad(self.first(x).clamp(0, 6), (1, 1, 1, 1))
        y = self.act(self.norm(self.second(y)))
        return torch.sigmoid(y[:, :4] * y[:, 4:]).flatten(1)


def images(count: int = 8) -> Tensor:
    return torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def trained_statistics(model: nn.Module, x: Tensor) -> nn.Module:
    """The model in eval mode, with batch norm statistics of x and weights that are not 1 and 0."""
    torch.manual_seed(1)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias)
    model.train()(x)
    return model.eval()


def functional_net() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    x = images()
    return trained_statistics(Functional(), x), x


def concatenated() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    x = images()
    return trained_statistics(Concatenated(), x), x


def tokens() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return Tokens().eval(), torch.randn(5, 6, 8)


def attention() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return Sdpa().eval(), torch.randn(5, 6, 8)


def gated() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    x = images()
    return trained_statistics(Gated(), x), x


NETS = pytest.mark.parametrize("make", [functional_net, concatenated, tokens, attention, gated])


def roles(model: ir.Model) -> Counter[tuple[str, tuple[str, ...]]]:
    """(operator that computes it, operators that read it) of every quantized activation.

    What only moves values is looked through, and so is the form of a MatMul: a Linear of three
    axes is MatMul and Add in one graph, and Gemm between two Reshapes in the other.
    """
    found: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for node in model.graph:
        if node.op_type != "QuantizeLinear" or node.inputs[0] is None:
            continue
        made = kind(node.inputs[0].producer())
        if made not in MOVES:
            found[made, tuple(sorted(readers(node.outputs[0])))] += 1
    return found


def kind(node: ir.Node | None) -> str:
    if node is None:
        return "input"
    first = node.inputs[0].producer() if node.inputs and node.inputs[0] is not None else None
    matmul = node.op_type in {"Gemm", "MatMul", "MatMulIntegerToFloat"}
    bias = node.op_type == "Add" and first is not None and first.op_type == "MatMul"
    return "matmul" if matmul or bias else node.op_type


def readers(value: ir.Value) -> set[str]:
    found: set[str] = set()
    for node in value.consumers():
        if node.op_type in MOVES or node.op_type in {"QuantizeLinear", "DequantizeLinear", "Clip"}:
            found |= {r for output in node.outputs for r in readers(output)}
        elif node.op_type != "Shape":  # sizes, not values
            found.add(kind(node))
    return found


@NETS
def test_what_is_exported_is_quantized_where_post_training_quantization_quantizes(
    make: Callable[[], tuple[nn.Module, Tensor]],
) -> None:
    model, x = make()
    exported = export(convert(prepare_qat(model, inputs=x).eval()), x)
    name = exported.graph.inputs[0].name or ""
    ptq = onnxq.quantize(export(model, x), [{name: x.numpy()}], qconfig=MAPPING)
    assert roles(exported) == roles(ptq)


def resnet8() -> nn.Module:
    """The three stages of ResNet-20, of one block each."""
    torch.manual_seed(0)
    return ResNet(1).eval()


def trained(name: str) -> Callable[[], nn.Module]:
    module = "resnet" if name == "resnet20" else name
    return lambda: load_module(f"models.{module}:{name}", ROOT / f"models/{name}.safetensors")


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:.*may round some of these sums:UserWarning")
@pytest.mark.parametrize(
    "make",
    [
        resnet8,
        pytest.param(trained("resnet20"), marks=pytest.mark.nightly, id="resnet20"),
        pytest.param(trained("transformer"), marks=pytest.mark.nightly, id="transformer"),
    ],
)
def test_whole_models_are_quantized_where_post_training_quantization_quantizes(
    make: Callable[[], nn.Module],
) -> None:
    model = make()
    x = torch.from_numpy(load_sample("calibration")[0][:8])
    exported = export(convert(prepare_qat(model, inputs=x).eval()), x[:2])
    ptq = onnxq.quantize(export(model, x[:2]), [{"image": x.numpy()}], qconfig=MAPPING)
    assert roles(exported) == roles(ptq)


@NETS
def test_every_tensor_and_weight_that_prepare_quantizes_is_annotated_once(
    make: Callable[[], tuple[nn.Module, Tensor]],
) -> None:
    model, x = make()
    form = canonicalize_module(
        onnx_form(program_of(model, x, left_open=Open.LENGTHS)), types_by_run
    )
    decided = onnxq.prepare(form, MAPPING)
    prepared: Any = prepare_qat(model, inputs=x)
    found: Annotations = prepared.meta[ANNOTATIONS]
    tensors = [t for group in found.groups for t in group.nodes.values()]
    tensors += [t for group in found.groups for _, _, t, _ in group.numbers]
    assert set(tensors) == {t for group in decided.groups for t in group.members}
    weights = [
        name
        for name, decision in decided.decisions.items()
        if isinstance(decision, Quantize) and decision.rule.weight is not None
    ]
    assert [weight.exported for weight in found.weights] == weights
    assert not found.unannotated


@NETS
def test_onnx_runtime_computes_what_is_trained(
    make: Callable[[], tuple[nn.Module, Tensor]],
) -> None:
    model, x = make()
    prepared = prepare_qat(model, inputs=x)
    optimizer = torch.optim.SGD(prepared.parameters(), lr=0.01)
    for _ in range(3):
        prepared(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    missing = [name for name, p in prepared.named_parameters() if not torch.isfinite(p).all()]
    assert not missing
    quantized = convert(prepared.eval())
    exported = export(quantized, x)  # holds it against the module, in LSB
    with torch.no_grad():
        # the integers of the converted module are those that were trained
        assert torch.allclose(prepared(x), quantized(x), atol=0.05)
    with runtime.open_session(exported) as session:
        (result,) = session.run({exported.graph.inputs[0].name or "": x.numpy()})
    assert np.isfinite(result).all()


@pytest.fixture(scope="module")
def two_branches() -> tuple[Any, Any, Tensor]:
    """The concatenation as it was and prepared, and its input; tests only read them."""
    model, x = concatenated()
    return model, prepare_qat(model, inputs=x), x


def test_convolutions_become_intrinsic_modules_with_batch_norm_and_relu(
    two_branches: tuple[Any, Any, Tensor],
) -> None:
    _, prepared, _ = two_branches
    assert type(prepared.left.get_submodule("0")) is ConvBn2d  # a ReLU6 stays a module
    assert type(prepared.right.get_submodule("0")) is ConvBnReLU2d
    assert isinstance(prepared.left.get_submodule("2"), nn.ReLU6)


def test_tensors_of_one_group_go_through_one_fake_quantize(
    two_branches: tuple[Any, Any, Tensor],
) -> None:
    _, prepared, _ = two_branches
    group = next(g for g in prepared.meta[ANNOTATIONS].groups if len(g.sources) > 1)
    members = [prepared.get_submodule(f"{node}_fake_quant").fake_quant for node in group.nodes]
    assert len(members) > 2
    assert all(fake is members[0] for fake in members)


def test_a_group_has_the_range_of_its_widest_tensor(
    two_branches: tuple[Any, Any, Tensor],
) -> None:
    model, prepared, x = two_branches
    group = next(g for g in prepared.meta[ANNOTATIONS].groups if len(g.sources) > 1)
    fake = prepared.get_submodule(f"{group.sources[0]}_fake_quant").fake_quant
    with torch.no_grad():
        widest = max(float((2 * model.left(x)).max()), float(model.right(x).max()))
    assert float(fake.scale) * 255 == pytest.approx(widest, rel=0.02)


def test_a_copy_trains_by_itself(two_branches: tuple[Any, Any, Tensor]) -> None:
    _, prepared, _ = two_branches
    copied: Any = copy.deepcopy(prepared)
    source = copied.fc.input_fake_quant
    assert isinstance(source, FakeQuantize)
    assert source is not prepared.fc.input_fake_quant
    assert any(source is module for module in copied.modules())


@pytest.mark.nightly
def test_what_is_observed_without_stubs_is_what_onnxq_quantizes() -> None:
    model, x = concatenated()
    prepared = prepare(model, inputs=x)
    prepared(x)
    exported = export(convert(prepared), x)
    ptq = onnxq.quantize(
        export(model, x),
        [{"x": x.numpy()}],
        qconfig=default_qconfig_mapping().set_choice(Choice.ALL_INTEGERS),
    )
    assert roles(exported) == roles(ptq)


def test_the_model_stays_as_it_is() -> None:
    model, x = functional_net()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    prepare_qat(model, inputs=x)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


class Inside(nn.Module):
    """A function of which ONNX has a MatMul that the module does not, between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 8)."""
        y = self.first(x)
        z: Tensor = self.last(torch.addcmul(y, y, y))
        return z


def test_what_cannot_be_annotated_stays_float_in_both_with_its_reason() -> None:
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    prepared: Any = prepare_qat(Inside(), inputs=x)
    found: Annotations = prepared.meta[ANNOTATIONS]
    left = {name for one in found.unannotated for name in one.nodes}
    assert left
    for name in left:
        assert "has no place in the module" in found.floats[name]
    assert [weight.path for weight in found.weights] == ["first", "last"]
    exported = export(convert(prepared.eval()), x)  # holds the module's integers against its own
    kinds = Counter(node.op_type for node in exported.graph)
    assert kinds["Gemm"] == 2


def test_observers_that_do_not_round_are_refused() -> None:
    model, x = concatenated()
    with pytest.raises(QConfigError, match="does not round"):
        prepare_qat(model, inputs=x, qconfig=default_qconfig_mapping())


@pytest.mark.parametrize("arguments", [{"qconfig": MAPPING}, {"inputs": images(), "inplace": True}])
def test_arguments_of_both_ways_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(QConfigError, match="with inputs"):
        prepare_qat(Concatenated(), **arguments)


class Branch(nn.Module):
    """Asks for the value of a tensor."""

    def forward(self, x: Tensor) -> Tensor:
        """x or -x."""
        return x if x.sum() > 0 else -x


def test_a_branch_on_values_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"torch\.where"):
        prepare_qat(Branch(), inputs=images())


class Recurrent(nn.Module):
    """An LSTM, whose result ONNX has with its axes in another order."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 6, batch_first=True)
        self.fc = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of shape (N, 4)."""
        y, _ = self.lstm(x)
        scores: Tensor = self.fc(y[:, -1])
        return scores


def test_a_tensor_that_the_module_only_has_copies_of_is_rounded_there() -> None:
    x = torch.randn(4, 5, 8, generator=torch.Generator().manual_seed(0))
    prepared: Any = prepare_qat(Recurrent(), inputs=x)
    found: Annotations = prepared.meta[ANNOTATIONS]
    assert not found.unannotated
    (group,) = [group for group in found.groups if "select" in group.nodes.values()]
    assert len(group.sources) == 1  # all steps of the sequence, of which the last is a copy
    assert group.nodes[group.sources[0]] != "select"
    exported = export(convert(prepared.eval()), x)
    gemm: Any = next(node for node in exported.graph if node.op_type == "Gemm")
    assert {value.producer().op_type for value in gemm.inputs} == {"DequantizeLinear"}


@pytest.mark.parametrize("function", [prepare_qat, prepare, annotate])
@pytest.mark.parametrize(
    ("qconfig", "words"),
    [("x86", r"Write .*\('x86'\)"), ("x68", "Did you mean 'x86'"), ({}, "from_dict"),
     ((), "qconfig is a tuple"), (get_default_qconfig(), r"Write QConfigMapping\(qconfig\)")],
)  # fmt: skip
def test_what_is_no_mapping_is_told_how_to_make_one(
    function: Callable[..., object], qconfig: object, words: str
) -> None:
    with pytest.raises(QConfigError, match=words):
        function(nn.Linear(3, 2), inputs=(torch.ones(1, 3),), qconfig=qconfig)
