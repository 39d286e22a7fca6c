from __future__ import annotations

from typing import Any

import pytest
import torch

import onnxq.pytorch.quantization as tq
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


TRAINED = [
    "default_qat_qconfig_v2",
    "default_symmetric_qnnpack_qat_qconfig",
    "default_per_channel_symmetric_qnnpack_qat_qconfig",
]


@pytest.mark.parametrize("name", TRAINED)
def test_what_fused_fake_quantization_trains_is_deployed(name: str) -> None:
    torch.manual_seed(0)
    model = tq.QuantWrapper(torch.nn.Linear(8, 4)).train()
    model.qconfig = getattr(qconfig, name)
    prepared, x = tq.prepare_qat(model), torch.randn(5, 8)
    prepared(x).sum().backward()
    prepared.apply(tq.disable_observer).eval()
    # float32 sums of the module and of its converted module; one has the integers of the other
    assert torch.allclose(tq.convert(prepared)(x), prepared(x), atol=1e-6)


def test_qconfigs_of_the_same_makers_are_equal() -> None:
    assert qconfig.qconfig_equals(
        qconfig.default_qconfig, qconfig.QConfig(*qconfig.default_qconfig)
    )
    assert not qconfig.qconfig_equals(qconfig.default_qconfig, qconfig.default_qat_qconfig)
    assert qconfig.qconfig_equals(None, None)


def test_the_qconfig_that_prepare_leaves_on_a_module_equals_its_maker() -> None:
    wrapped: Any = tq.QuantWrapper(torch.nn.Linear(4, 4)).train()
    wrapped.qconfig = qconfig.default_qat_qconfig
    prepared: Any = tq.prepare_qat(wrapped)
    assert qconfig.qconfig_equals(prepared.module.qconfig, qconfig.default_qat_qconfig)
    assert not qconfig.qconfig_equals(prepared.module.qconfig, qconfig.default_qconfig)
    assert not qconfig.qconfig_equals(prepared.module.qconfig, None)
