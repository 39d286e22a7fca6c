"""Training from improved weights: the module begins where post-training quantization ends."""

from __future__ import annotations

import copy
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from onnxq.errors import QConfigError
from onnxq.observers import MinMaxObserver, NarrowRangeObserver, StepSizeObserver
from onnxq.ort import runtime
from onnxq.pytorch import convert, export, prepare, prepare_qat
from onnxq.pytorch.insertion import improved_start
from onnxq.pytorch.insertion.improved_start import improved_form
from onnxq.pytorch.programs.graph_module import TrainingGraph
from onnxq.pytorch.programs.program import Open, program_of
from onnxq.pytorch.train.annotations import ANNOTATIONS
from onnxq.pytorch.train.recipe import Recipe, distilling, finetune
from onnxq.qconfig import (
    FakeQuantSpec,
    QConfig,
    QConfigMapping,
    ScaleRule,
    get_default_qat_qconfig,
)
from onnxq.static.rewrite import rewrite

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.observers import ObserverSpec
    from onnxq.pytorch.train.annotations import Annotations

IMPROVED = ("bias", "round")
FOUR_BITS = NarrowRangeObserver.with_args(quant_max=7)
EIGHT_BITS = NarrowRangeObserver.with_args()


def qconfig(weight: ObserverSpec, scale: ScaleRule = ScaleRule.LEARNED) -> QConfigMapping:
    activation = FakeQuantSpec(MinMaxObserver.with_args(), ScaleRule.OBSERVED)
    return QConfigMapping(QConfig(activation, FakeQuantSpec(weight, scale)), improve=IMPROVED)


class Images(nn.Module):
    """Layers with and without batch norm and bias, depthwise, transposed; a bare weight."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.plain = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.flat = nn.BatchNorm2d(8, affine=False)
        self.up = nn.ConvTranspose2d(8, 6, 2, stride=2)
        self.unbiased = nn.Conv2d(6, 8, 3, padding=1, bias=False)
        self.fc = nn.Linear(8, 6)
        self.bare = nn.Parameter(torch.randn(6, 5) / 2)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of shape (N, 5)."""
        y = functional.relu(self.norm(self.conv(x)))
        y = functional.relu(self.flat(self.plain(y)))
        y = functional.relu(self.unbiased(functional.relu(self.up(y))))
        z: Tensor = functional.relu(self.fc(y.mean((2, 3)))) @ self.bare
        return z


class Tied(nn.Module):
    """One weight in two layers, one that is computed, and one of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.own = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.second.weight = self.first.weight
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        """Numbers of shape (N, 8)."""
        y = functional.relu(self.second(functional.relu(self.first(x))))
        z: Tensor = self.own(functional.relu(self.normed(y)))
        return z


def trained_images() -> Images:
    """The network with statistics of its norms, like one that was trained."""
    torch.manual_seed(0)
    net = Images()
    for _ in range(8):
        net(torch.randn(32, 3, 8, 8))
    assert net.norm.weight is not None
    nn.init.uniform_(net.norm.weight, 0.5, 1.5)
    nn.init.normal_(net.norm.bias)
    return net.eval()


def constants(model: ir.Model) -> Counter[tuple[str, frozenset[bytes]]]:
    """Type and values of each constant, in either layout: a bare weight's is chosen by export.

    Biases are left out: the same numbers are stored as floats here and as int32 there.
    """
    stored = {n: v.const_value for n, v in model.graph.initializers.items() if "bias" not in n}
    arrays = [value.numpy() for value in stored.values() if value is not None]
    return Counter((str(x.dtype), frozenset((x.tobytes(), x.T.tobytes()))) for x in arrays)


def annotated(model: nn.Module) -> Annotations:
    assert isinstance(model, TrainingGraph)
    found: Annotations = model.meta[ANNOTATIONS]
    return found


def floats(model: nn.Module) -> dict[str, Tensor]:
    return {name: x.detach().clone() for name, x in model.named_parameters()}


STARTS = [
    pytest.param(FOUR_BITS, ScaleRule.LEARNED, "x86-vnni"),
    *(
        pytest.param(weight, rule, target, marks=pytest.mark.nightly)
        for weight in (StepSizeObserver.with_args(quant_max=7), EIGHT_BITS)
        for rule in ScaleRule
        for target in ("x86-vnni", "portable")
    ),
]


@pytest.mark.parametrize(("weight", "rule", "target"), STARTS)
def test_untrained_the_module_is_the_improved_file(
    weight: ObserverSpec, rule: ScaleRule, target: str
) -> None:
    net, images = trained_images(), torch.randn(64, 3, 8, 8)
    mapping = qconfig(weight, rule)
    prepared = prepare_qat(net, inputs=images, qconfig=mapping, target=target)
    found = annotated(prepared)
    made = improved_form(program_of(net, images, left_open=Open.LENGTHS), mapping, target, found)
    assert {w.exported for w in found.weights} == {o.place for o in made.outcomes if o.place}
    file = rewrite(made.prepared, made.plan)
    exported = export(convert(prepared.eval()), images[:4])
    assert not constants(file) - constants(exported)
    with runtime.open_session(file) as a, runtime.open_session(exported) as b:
        there, here = a.run({"x": images.numpy()})[0], b.run({"x": images.numpy()})[0]
    np.testing.assert_array_equal(here, there)


def test_a_weight_with_another_place_and_a_computed_one_start_as_they_were() -> None:
    torch.manual_seed(0)
    net, x = Tied(), torch.randn(256, 8)
    prepared = prepare_qat(net, inputs=x, qconfig=qconfig(FOUR_BITS))
    before, now = floats(net), floats(prepared)
    assert torch.equal(now["first.weight"], before["first.weight"])
    assert all(torch.equal(now[n], before[n]) for n in before if n.startswith("normed."))
    assert not torch.equal(now["own.weight"], before["own.weight"])
    notes = "\n".join(annotated(prepared).notes)
    assert improved_start.NO_LAYER in notes


def test_training_goes_on_from_there_with_batch_norm_as_it_was() -> None:
    net, images = trained_images(), torch.randn(64, 3, 8, 8)
    prepared = prepare_qat(net, inputs=images, qconfig=qconfig(FOUR_BITS))
    mean = net.norm.running_mean
    assert mean is not None
    again = copy.deepcopy(prepared)
    losses = finetune(again, [images], distilling(net), Recipe(steps=2))
    assert losses[0] < 1e-2
    assert torch.equal(dict(again.named_buffers())["norm.running_mean"], mean)
    added = dict(prepared.named_parameters())["unbiased.bias"]
    assert not torch.equal(dict(again.named_parameters())["unbiased.bias"], added)
    prepared.load_state_dict(again.state_dict())
    prepared.load_state_dict(net.state_dict())
    assert torch.equal(dict(prepared.named_parameters())["conv.weight"], net.conv.weight)


def test_an_improvement_that_makes_another_model_is_refused_by_name() -> None:
    mapping = QConfigMapping(get_default_qat_qconfig(), improve=("smooth", "round"))
    with pytest.raises(QConfigError, match="'smooth' makes an equal model"):
        prepare_qat(nn.Linear(4, 4), inputs=torch.randn(8, 4), qconfig=mapping)


def test_observing_alone_refuses_improvements() -> None:
    mapping = QConfigMapping(improve=("round",))
    with pytest.raises(QConfigError, match="prepare_qat carry them out"):
        prepare(nn.Linear(4, 4), inputs=torch.randn(8, 4), qconfig=mapping)
