"""Parameters of uniform observers; their messages are tested in test_observer.py, for all."""

from __future__ import annotations

import pytest
import torch

from onnxq.pytorch.quantization import observer
from onnxq.pytorch.quantization.uniform_observer import MinMaxObserver, Observer, ObserverBase


def test_the_base_class_has_both_documented_names() -> None:
    assert Observer is ObserverBase


def test_the_base_class_is_a_contract() -> None:
    with pytest.raises(NotImplementedError):
        ObserverBase()(torch.ones(1))


def test_a_repr_has_the_arguments_that_differ() -> None:
    assert repr(MinMaxObserver(reduce_range=True)) == "MinMaxObserver(reduce_range=True)"


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["MinMaxObserver", "MovingAveragePerChannelMinMaxObserver"])
def test_checkpoints_of_torchs_observers_load(name: str) -> None:
    x = torch.linspace(-3, 5, 24).reshape(4, 6)
    theirs = getattr(torch.ao.quantization, name)(eps=0.5)
    theirs(x)
    own = getattr(observer, name)()
    own.load_state_dict(theirs.state_dict())
    assert own.state_dict().keys() == theirs.state_dict().keys()
    # the smallest scale is the checkpoint's
    assert torch.equal(own.calculate_qparams()[0], theirs.calculate_qparams()[0])
