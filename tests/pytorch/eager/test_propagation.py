from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from onnxq.errors import QConfigError
from onnxq.pytorch import propagate_qconfig_
from onnxq.qconfig import default_dynamic_qconfig, default_qconfig, get_default_qconfig

FBGEMM = get_default_qconfig("fbgemm")


def net() -> Any:
    return nn.Sequential(nn.Conv2d(1, 1, 1), nn.Sequential(nn.Linear(1, 1), nn.ReLU()))


def test_a_modules_own_comes_before_its_name_its_type_and_the_one_around() -> None:
    model = net()
    model[1][1].qconfig = None
    entries: Any = {
        "": default_qconfig,
        nn.Linear: FBGEMM,
        "1": default_dynamic_qconfig,
        "1.1": FBGEMM,
    }
    propagate_qconfig_(model, entries)
    assert model.qconfig == default_qconfig
    assert model[0].qconfig == default_qconfig
    assert model[1].qconfig == default_dynamic_qconfig
    assert model[1][0].qconfig == FBGEMM
    assert model[1][1].qconfig is None


def test_without_anything_every_module_has_none() -> None:
    model = net()
    propagate_qconfig_(model)
    assert all(m.qconfig is None for m in model.modules())


def test_some_modules_can_be_left_alone() -> None:
    model = net()
    custom = {"non_traceable_module_name": ["1"], "non_traceable_module_class": [nn.Conv2d]}
    propagate_qconfig_(model, {"": default_qconfig}, custom)
    assert [hasattr(m, "qconfig") for m in model.children()] == [False, False]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"2": FBGEMM}, "the model has no module '2'"),
        ({"1.11": FBGEMM}, r"no module '1.11'. Did you mean '1.1'\?"),
        ({3: FBGEMM}, "wanted the name of a submodule or a module type"),
        ({"": "fbgemm"}, "Sequential: got qconfig 'fbgemm'; wanted a QConfig"),
        ({"1": 8}, r"'1' \(Sequential\): got qconfig 8"),
    ],
)
def test_wrong_entries(entries: Any, message: str) -> None:
    with pytest.raises(QConfigError, match=message):
        propagate_qconfig_(net(), entries)
    with pytest.raises(QConfigError, match="wanted a list"):
        propagate_qconfig_(net(), None, {"non_traceable_module_name": "1"})
