"""Observers as modules: what they hold, and that no step of training reads it on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu
from torch.utils._python_dispatch import TorchDispatchMode

from onnxq.errors import CalibrationError
from onnxq.observers import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    PerChannelMinMaxObserver,
)
from onnxq.pytorch import prepare_qat
from onnxq.pytorch.numerics.observing import Observing

if TYPE_CHECKING:
    from onnxq.observers import ObserverSpec

X = torch.tensor([[1.0, -2.0], [3.0, 0.5]])


@pytest.mark.parametrize(
    ("spec", "low", "high"),
    [
        (MinMaxObserver.with_args(), -2.0, 3.0),
        (MovingAverageMinMaxObserver.with_args(averaging_constant=0.5), -2.0, 3.0),
        (PerChannelMinMaxObserver.with_args(), [-2.0, 0.5], [1.0, 3.0]),
    ],
)
def test_an_observer_is_a_module_that_hands_its_input_on(
    spec: ObserverSpec, low: Any, high: Any
) -> None:
    observing = Observing(spec)
    assert observing(X) is X
    assert observing.min_val.tolist() == low
    assert observing.max_val.tolist() == high
    scale, zero_point = observing.calculate_qparams()
    wanted = spec()
    wanted.observe(X.numpy(), 0)
    qparams = wanted.calculate_qparams()
    assert scale.tolist() == qparams.scale.reshape(-1).tolist()  # (1,), as torch's
    assert zero_point.tolist() == qparams.zero_point.reshape(-1).tolist()
    other = Observing(spec)
    other.load_state_dict(observing.state_dict())
    assert other.max_val.tolist() == high
    assert repr(other.observer.state()) == repr(observing.observer.state())


def test_before_any_data_the_extremes_are_those_of_nothing() -> None:
    observing = Observing(MinMaxObserver.with_args())
    assert (observing.min_val.item(), observing.max_val.item()) == (float("inf"), -float("inf"))
    assert Observing(PerChannelMinMaxObserver.with_args()).min_val.tolist() == []


def test_reset_forgets_what_was_seen() -> None:
    for spec in (MinMaxObserver.with_args(), HistogramObserver.with_args()):
        observing = Observing(spec)
        observing(X * 100)
        observing.reset_min_max_vals()
        observing(X)
        fresh = Observing(spec)
        fresh(X)
        assert torch.equal(observing.calculate_qparams()[0], fresh.calculate_qparams()[0])


def test_an_observer_without_extremes_says_so() -> None:
    with pytest.raises(AttributeError, match="min_val"):
        _ = Observing(HistogramObserver.with_args()).min_val


def test_other_channels_than_before_are_refused() -> None:
    observing = Observing(PerChannelMinMaxObserver.with_args())
    observing(X)
    with pytest.raises(CalibrationError, match="got 3 channels on axis 0; before there were 2"):
        observing(torch.zeros(3, 2))


class Net(nn.Module):
    """A convolution with batch norm, a sum of two tensors, a concatenation, a Linear."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.same, self.fc = nn.Conv2d(4, 4, 3, padding=1), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = relu(self.norm(self.conv(x)))
        y = torch.cat([y, relu(y + self.same(y))], 1)
        return self.fc(y.mean((2, 3)))  # type: ignore[no-any-return]


HOST = ("_local_scalar_dense", "item", "is_nonzero", "equal", "nonzero", "_to_cpu")


class HostReads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operations that wait for a device: a number that is read, a copy to main memory."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in HOST or (name == "_to_copy" and (kwargs or {}).get("device") is not None):
            self.found.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_training_step_reads_nothing_on_the_host() -> None:
    model = prepare_qat(Net(), inputs=torch.randn(2, 3, 8, 8))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    images, labels = torch.randn(4, 3, 8, 8), torch.randint(5, (4,))
    with HostReads() as reads:
        cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert reads.found == []


def test_a_training_step_needs_no_value_of_a_tensor() -> None:
    """Fake tensors have none: whoever reads one raises, as whoever would wait for a device."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    model = prepare_qat(Net(), inputs=torch.randn(2, 3, 8, 8))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        for part in model.modules():
            for held in (part._parameters, part._buffers):
                for name, value in held.items():
                    if value is not None:
                        held[name] = mode.from_tensor(value)  # type: ignore[assignment]
        images, labels = torch.empty(4, 3, 8, 8), torch.empty(4, dtype=torch.int64)
        cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
        assert all(p.grad is not None for p in model.parameters())
