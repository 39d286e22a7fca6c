"""Checkpoints of torch.ao's observers, loaded into onnxq's: what they have seen is what counts."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.ao.quantization as tao
from torch import Tensor, nn

import onnxq.pytorch.quantization as tq

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated.*")
BINS = 2048  # of torch's histogram


class Net(nn.Module):
    """A layer between stubs.

    Args:
        names: the namespace that has them.
    """

    def __init__(self, names: Any) -> None:
        super().__init__()
        self.quant, self.fc = names.QuantStub(), nn.Linear(4, 4)
        self.dequant = names.DeQuantStub()

    def forward(self, x: Tensor) -> Tensor:
        """Numbers of the input's shape."""
        y: Tensor = self.dequant(self.fc(self.quant(x)))
        return y


def prepared(names: Any, qconfig: Any) -> nn.Module:
    torch.manual_seed(0)
    model: Any = Net(names).eval()
    model.qconfig = qconfig
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made: nn.Module = names.prepare(model)
    return made


def shapes() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(4096, generator=generator)
    return {
        "normal": normal,
        "one-sided": normal.relu(),
        "far from 0": normal.abs() + 3,
        "outlier": torch.cat([normal, torch.tensor([40.0])]),
    }


@pytest.mark.parametrize("name", shapes())
@pytest.mark.parametrize("qscheme", [torch.per_tensor_affine, torch.per_tensor_symmetric])
def test_a_histogram_of_torch_gives_the_scale_of_the_values(
    name: str, qscheme: torch.qscheme
) -> None:
    x = shapes()[name]
    theirs = tao.HistogramObserver(qscheme=qscheme)
    theirs(x)
    loaded, seen = tq.HistogramObserver(qscheme=qscheme), tq.HistogramObserver(qscheme=qscheme)
    loaded.load_state_dict(theirs.state_dict())
    seen(x)
    (scale, zero), (wanted, wanted_zero) = loaded.calculate_qparams(), seen.calculate_qparams()
    assert (loaded.min_val, loaded.max_val) == (x.min(), x.max())
    width = float(x.max() - x.min()) / BINS
    integers = loaded.quant_max - loaded.quant_min
    assert abs(float(scale - wanted)) * integers < 0.05 * float(wanted) * integers + width
    assert abs(int(zero - wanted_zero)) <= 0.05 * integers


QCONFIGS = {
    "histogram": lambda names: names.get_default_qconfig("fbgemm"),
    "range": lambda names: names.QConfig(
        names.MinMaxObserver.with_args(dtype=torch.quint8), names.default_weight_observer
    ),
}


@pytest.mark.parametrize("kind", QCONFIGS)
def test_a_model_that_torch_prepared_loads_strictly_and_converts(kind: str) -> None:
    theirs, ours = prepared(tao, QCONFIGS[kind](tao)), prepared(tq, QCONFIGS[kind](tq))
    x = torch.randn(512, 4)
    theirs(x)
    ours.load_state_dict(theirs.state_dict())
    ours.apply(tq.disable_observer)(x)  # conversion asks what feeds what
    direct = prepared(tq, QCONFIGS[kind](tq))
    direct(x)
    loaded, wanted = tq.convert(ours)(x), tq.convert(direct)(x)
    step = float((wanted.max() - wanted.min()) / 127)
    assert float((loaded - wanted).abs().max()) <= (0 if kind == "range" else 2.5 * step)


def test_one_that_has_seen_nothing_loads_as_such() -> None:
    ours = prepared(tq, QCONFIGS["histogram"](tq))
    ours(torch.randn(8, 4))
    ours.load_state_dict(prepared(tao, QCONFIGS["histogram"](tao)).state_dict())
    assert not any(getattr(part, "has_observed", False) for part in ours.modules())


AGAIN: dict[str, Callable[[nn.Module], nn.Module]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "to": lambda model: model.to("cpu", torch.float64).to(torch.float32),
    "checkpoint": lambda model: reloaded(model),
}


def reloaded(model: nn.Module) -> nn.Module:
    fresh = prepared(tq, QCONFIGS["histogram"](tq))
    fresh.load_state_dict(model.state_dict())
    return fresh


@pytest.mark.parametrize("again", AGAIN)
def test_a_histogram_goes_on_counting_in_a_copy(again: str) -> None:
    model, x = prepared(tq, QCONFIGS["histogram"](tq)), torch.randn(2, 64, 4)
    model(x[0])
    other = AGAIN[again](model)
    for one in (model, other):
        one(x[1])
    states = model.state_dict(), other.state_dict()
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[1][key], value) for key, value in states[0].items())
