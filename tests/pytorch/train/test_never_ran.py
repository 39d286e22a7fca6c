from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn

import onnxq
from onnxq.errors import CalibrationError, OnnxqError
from onnxq.pytorch import (
    DeQuantStub,
    FakeQuantize,
    QuantStub,
    convert,
    disable_observer,
    export,
    fuse_modules,
    prepare,
    prepare_qat,
)
from onnxq.pytorch.nn import quantized as nnq
from onnxq.qconfig import get_default_qat_qconfig, get_default_qconfig

pytestmark = pytest.mark.oracle


class Aux(nn.Module):
    """An auxiliary head like GoogLeNet's: it helps to train, and is not deployed."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = QuantStub(), DeQuantStub()
        self.pool, self.conv = nn.AdaptiveAvgPool2d(2), nn.Conv2d(4, 4, 1, bias=False)
        self.norm, self.relu, self.fc = nn.BatchNorm2d(4), nn.ReLU(), nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.norm(self.conv(self.pool(self.quant(x)))))
        z: torch.Tensor = self.dequant(self.fc(y.flatten(1)))
        return z


class Net(nn.Module):
    """With two auxiliary heads, a pool that nothing calls, and a branch for large images."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = QuantStub(), DeQuantStub()
        self.conv, self.pool = nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1)
        self.large, self.unused = nn.Conv2d(4, 4, 2, stride=2), nn.AvgPool2d(2)
        self.fc, self.aux1, self.aux2 = nn.Linear(4, 5), Aux(), Aux()
        self.with_aux = False

    def forward(self, x: torch.Tensor) -> Any:
        x = self.conv(self.quant(x))
        aux = [self.aux1(self.dequant(x)), self.aux2(self.dequant(x))] if self.with_aux else []
        if x.shape[-1] > 10:
            x = self.large(x)
        y = self.dequant(self.fc(self.pool(x).flatten(1)))
        return (y, *aux) if self.with_aux else y


def images(size: int = 8) -> torch.Tensor:
    return torch.randn(4, 3, size, size)


def observed() -> Any:
    torch.manual_seed(0)
    model: Any = fuse_modules(Net().eval(), [["aux1.conv", "aux1.norm", "aux1.relu"]])
    model = fuse_modules(model, [["aux2.conv", "aux2.norm", "aux2.relu"]])
    model.qconfig = get_default_qconfig()
    return prepare(model)


def trained() -> Any:
    torch.manual_seed(0)
    names = [[f"{aux}.{part}" for part in ("conv", "norm", "relu")] for aux in ("aux1", "aux2")]
    model: Any = fuse_modules(Net().train(), names)
    model.qconfig = get_default_qat_qconfig()
    return prepare_qat(model)


def converted(prepared: Any) -> tuple[Any, str]:
    """The module, and what convert warned of."""
    with pytest.warns(UserWarning, match="no data reached") as said:
        made = convert(prepared.eval())
    assert len(said) == 1
    return made, str(said[0].message)


@pytest.mark.parametrize("make", [observed, trained])
def test_what_no_data_reached_stays_in_float_with_one_warning(make: Any) -> None:
    prepared = make()
    prepared(images())
    prepared.apply(disable_observer)
    int8, said = converted(prepared)
    for name in ("'large' (Conv2d)", "'unused' (AvgPool2d)", "'aux1' (Aux)", "'aux2' (Aux)"):
        assert name in said
    assert "aux1.fc" not in said
    assert "'fc'" not in said
    assert isinstance(int8.conv, nnq.Conv2d)
    assert type(int8.large) is nn.Conv2d
    assert type(int8.aux1.fc) is nn.Linear
    assert not any(isinstance(part, FakeQuantize) for part in int8.modules())
    assert not any(hasattr(part, "qconfig") for part in int8.modules())
    with torch.no_grad():
        assert torch.equal(int8(images()).isfinite(), torch.ones(4, 5, dtype=torch.bool))
    exported = export(int8, images())
    assert [node.op_type for node in exported.graph].count("Conv") == 1


def test_what_no_data_reached_computes_what_the_float_module_did() -> None:
    prepared = trained()
    prepared(images())
    prepared.eval().with_aux = True
    wanted = [part.to_float() for part in (prepared.aux1.conv, prepared.aux1.fc)]
    int8, _ = converted(prepared)
    x = torch.randn(2, 4, 6, 6)
    with torch.no_grad():
        y = wanted[0](nn.functional.adaptive_avg_pool2d(x, 2))
        assert torch.equal(int8.aux1(x), wanted[1](y.flatten(1)))


def test_an_export_that_reaches_it_is_refused() -> None:
    prepared = observed()
    prepared(images())
    int8, _ = converted(prepared)
    assert int8(images(16)).shape == (4, 5)
    with pytest.raises(OnnxqError, match=r"'large' \(Conv2d\) was reached by no data"):
        export(int8, images(16))
    int8.with_aux = True
    with pytest.raises(OnnxqError, match=r"'aux1.* was reached by no data"):
        export(int8, images())


def test_what_ran_while_the_model_was_trained_is_quantized() -> None:
    prepared = trained()
    prepared.with_aux = True
    prepared(images())
    prepared(images(16))
    prepared.with_aux = False
    int8, said = converted(prepared)
    assert "'unused' (AvgPool2d)" in said
    assert "aux" not in said
    assert isinstance(int8.aux1.fc, nnq.Linear)


def test_where_no_data_was_seen_at_all_the_error_stays() -> None:
    for prepared in (observed(), trained()):
        with pytest.raises(CalibrationError, match=r"no data was seen"):
            convert(prepared.eval())


def test_what_ran_while_observers_rested_is_an_error() -> None:
    prepared = observed()
    prepared.fc.activation_post_process.disable_observer()
    prepared(images())
    prepared.large.activation_post_process.enable_observer()
    with (
        pytest.warns(UserWarning, match="aux1"),
        pytest.raises(CalibrationError, match=r"'fc'.*no data was seen"),
    ):
        convert(prepared)


def test_a_module_in_two_places_is_replaced_in_both() -> None:
    prepared = trained()
    prepared.other = prepared.large
    prepared(images())
    int8, _ = converted(prepared)
    assert int8.other is int8.large
    assert type(int8.other) is nn.Conv2d


def test_hooks_of_the_user_stay() -> None:
    for prepared in (observed(), trained()):
        prepared(images())
        calls: list[str] = []
        prepared.large.register_forward_hook(lambda *_, calls=calls: calls.append("after"))
        int8, _ = converted(prepared)
        int8(images(16))
        assert calls == ["after"]


def test_a_fake_quantize_that_nothing_calls_becomes_the_identity() -> None:
    prepared = observed()
    prepared.spare = FakeQuantize()
    prepared(images())
    int8, said = converted(prepared)
    assert "'spare' (FakeQuantize)" in said
    assert type(int8.spare) is nn.Identity


def test_nothing_is_said_where_everything_ran() -> None:
    model: Any = nn.Sequential(QuantStub(), nn.Linear(3, 3), DeQuantStub()).eval()
    model.qconfig = get_default_qconfig()
    prepared = prepare(model)
    prepared(torch.randn(8, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        onnxq.export(convert(prepared), torch.randn(2, 3))
