from __future__ import annotations

import pytest
import torch

from onnxq import qconfig as own
from onnxq.errors import QConfigError
from onnxq.pytorch.modules.torch_qconfig import own_entry
from onnxq.pytorch.quantization import observer, qconfig

NAMES = [name for name in dir(own) if name in dir(qconfig) and name.endswith("_qconfig")]
CONFIGS = [name for name in NAMES if not name.startswith("get_")]


@pytest.mark.parametrize("name", CONFIGS)
def test_the_named_ones_mean_what_those_of_onnxq_do(name: str) -> None:
    assert own_entry(getattr(qconfig, name), name) == getattr(own, name)


@pytest.mark.parametrize("backend", ["fbgemm", "x86", "qnnpack", "onednn"])
def test_those_of_backends_too(backend: str) -> None:
    for name in ("get_default_qconfig", "get_default_qat_qconfig"):
        made = getattr(qconfig, name)(backend)
        assert own_entry(made, name) == getattr(own, name)(backend)
        assert isinstance(made.weight(), torch.nn.Module)


def test_an_instance_of_an_observer_is_refused() -> None:
    with pytest.raises(QConfigError, match="pass observer class instead"):
        qconfig.QConfig(observer.MinMaxObserver(), observer.default_weight_observer)
