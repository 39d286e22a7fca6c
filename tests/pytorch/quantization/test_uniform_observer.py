"""Parameters of uniform observers; their messages are tested in test_observer.py, for all."""

from __future__ import annotations

import pytest
import torch

from onnxq.pytorch.quantization.range_observers import MinMaxObserver
from onnxq.pytorch.quantization.uniform_observer import Observer, ObserverBase


def test_the_base_class_has_both_documented_names() -> None:
    assert Observer is ObserverBase


def test_the_base_class_is_a_contract() -> None:
    with pytest.raises(NotImplementedError):
        ObserverBase()(torch.ones(1))


def test_a_repr_has_the_arguments_that_differ() -> None:
    assert repr(MinMaxObserver(reduce_range=True)) == "MinMaxObserver(reduce_range=True)"
