from __future__ import annotations

import torch

from onnxq.pytorch.quantization.observer import MinMaxObserver


def test_a_maker_makes_the_module_with_its_arguments() -> None:
    made = MinMaxObserver.with_args(dtype=torch.qint8).with_args(reduce_range=True)()
    assert isinstance(made, MinMaxObserver)
    assert (made.dtype, made.quant_min, made.quant_max) == (torch.qint8, -64, 63)


def test_equal_arguments_are_equal_makers() -> None:
    first, second = (MinMaxObserver.with_args(dtype=torch.qint8) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert first != MinMaxObserver.with_args()
    assert repr(first) == "MinMaxObserver(dtype=torch.qint8)"
