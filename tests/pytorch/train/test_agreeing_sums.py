from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import hardsigmoid, relu

import onnxq
from onnxq.dtypes import UINT8
from onnxq.observers import MinMaxObserver
from onnxq.pytorch import (
    DeQuantStub,
    FakeQuantize,
    FloatFunctional,
    ImportedModelWarning,
    QuantStub,
    convert,
    disable_observer,
    export,
    import_quantized,
    prepare,
    prepare_qat,
)
from onnxq.pytorch.deployed import Feeding, compare
from onnxq.pytorch.tensor_quant import QuantDescriptor, TensorQuantizer
from onnxq.pytorch.train.agreeing_sums import let_sums_agree, sums_in
from onnxq.qconfig import QConfig, get_default_qat_qconfig
from onnxq.qdq.sum_scales import LARGEST
from onnxq.qparams import QParams, per_tensor

pytestmark = pytest.mark.oracle

HALVES = torch.linspace(0, 255, 256).reshape(16, 16)  # scale 1: sums at scale 2 are half ties
WEIGHTS = FakeQuantize.with_args(
    dtype="qint8", qscheme="per_tensor_symmetric", quant_min=-64, quant_max=64
)


class Free(nn.Module):
    """y = relu(a(x) + x), z = (b(y) + y) + relu(a(x))."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.end = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = relu(self.a(x))
        y = relu(x + first)
        z: torch.Tensor = self.end(self.b(y) + y + first)
        return z


class Stubbed(nn.Module):
    """The same with stubs."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant, self.relu = QuantStub(), DeQuantStub(), nn.ReLU()
        self.a, self.b, self.end = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 3)
        self.one, self.two, self.three = FloatFunctional(), FloatFunctional(), FloatFunctional()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.quant(x)
        first = self.relu(self.a(x))
        y = self.one.add_relu(x, first)
        z = self.end(self.three.add(self.two.add(self.b(y), y), first))
        result: torch.Tensor = self.dequant(z)
        return result


def free(seed: int = 0, target: str | None = None) -> Any:
    """Trained for a step without stubs."""
    torch.manual_seed(seed)
    return trained(prepare_qat(Free(), inputs=torch.randn(32, 16), target=target))


def stubbed(seed: int = 0, qconfig: QConfig | None = None) -> Any:
    """Trained for a step with stubs."""
    torch.manual_seed(seed)
    model: Any = Stubbed().train()
    model.qconfig = qconfig or QConfig(get_default_qat_qconfig().activation, WEIGHTS)
    return trained(prepare_qat(model))


def trained(model: nn.Module) -> nn.Module:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        model(torch.randn(32, 16)).square().mean().backward()
        optimizer.step()
    return model.eval().apply(disable_observer)


def scales(module: nn.Module) -> dict[str, float]:
    found = {name: part for name, part in module.named_modules() if hasattr(part, "integer_range")}
    fakes = {name: part for name, part in module.named_modules() if isinstance(part, FakeQuantize)}
    both: dict[str, Any] = {**found, **fakes}
    return {name: float(part.scale) for name, part in both.items() if part.scale.ndim == 0}


def differing(model: Any) -> dict[str, int | None]:
    """Sum -> pairs of integers that some machine adds to another integer."""
    found: dict[str, int | None] = {}
    for machine in onnxq.predict(model).machines:
        found |= {one.name: one.possible for one in machine.layers if one.possible != 0}
    return found


def signed(seed: int = 0) -> Any:
    """The stubbed model with int8 activations."""
    return stubbed(seed, QConfig(FakeQuantize.with_args(dtype="qint8"), WEIGHTS))


@pytest.mark.parametrize("make", [free, stubbed, signed])
def test_trained_sums_are_the_same_on_every_machine(make: Any) -> None:
    moved = 0
    for seed in range(2):
        prepared = make(seed)
        before, int8 = scales(prepared), convert(prepared)
        assert scales(prepared) == before
        for name, scale in scales(int8).items():
            if name in before:
                assert 0 <= scale / before[name] - 1 < 1e-4
                moved += scale != before[name]
        exported = export(int8, torch.randn(4, 16))
        (on_arm, *_) = onnxq.predict(exported, machines="arm64").machines
        assert [one.op_type for one in on_arm.layers].count("QLinearAdd") == 3
        assert not differing(exported)
        x = torch.randn(256, 16)
        with torch.no_grad():
            wanted = prepared(x)
            # a sum next to a tie may be another integer: a few steps of 255 in the result
            assert (int8(x) - wanted).abs().max() <= 3 / 255 * (wanted.max() - wanted.min())
    assert moved


def test_scales_of_a_target_that_adds_in_floats_stay() -> None:
    prepared = free(target="x86-vnni")
    assert not sums_in(prepared)
    before, after = scales(prepared), scales(convert(prepared))
    assert all(after[name] == scale for name, scale in before.items() if name in after)


def test_sums_are_known_in_copies_and_inside_of_other_modules() -> None:
    for prepared in (free(), stubbed()):
        assert len(sums_in(prepared)) == 3
        assert sums_in(copy.deepcopy(prepared)) == sums_in(prepared)
    again = pickle.loads(pickle.dumps(stubbed()))
    assert len(sums_in(again)) == 3
    twice = nn.Sequential(stubbed(1), nn.Linear(3, 16), stubbed(2))
    alone = [scales(convert(part)) for part in (twice[0], twice[2])]
    both = scales(convert(twice))
    for prefix, wanted in zip("02", alone, strict=True):
        assert {name: both[f"{prefix}.{name}"] for name in wanted} == wanted


def test_a_module_that_agrees_once_is_left_as_it_is() -> None:
    prepared = stubbed()
    let_sums_agree(prepared)
    before = scales(prepared)
    let_sums_agree(prepared)
    assert scales(prepared) == before
    x = torch.randn(64, 16)
    with torch.no_grad():
        assert torch.equal(convert(prepared)(x), prepared(x))


@pytest.mark.nightly
def test_a_prepared_module_is_compared_with_its_model_though_scales_were_increased() -> None:
    prepared = next(
        p for p in map(free, range(9)) if scales(convert(p)).items() - scales(p).items()
    )
    x = torch.randn(64, 16)
    found = compare(prepared, export(prepared, x), [x], Feeding.LAYER_BY_LAYER)
    assert all(one.largest <= 1 and one.share > 0.99 for one in found.tensors.values())


class Doubled(nn.Module):
    """end(x + x w), w the identity: ties where x has scale 1 and the sum 2."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = QuantStub(), DeQuantStub()
        self.eye, self.add, self.end = nn.Linear(16, 16), FloatFunctional(), nn.Linear(16, 3)
        self.eye.weight = nn.Parameter(torch.eye(16))
        nn.init.zeros_(self.eye.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.quant(x)
        y: torch.Tensor = self.dequant(self.end(self.add.add(x, self.eye(x))))
        return y


class PowerOfTwo(MinMaxObserver):
    """Scales that are powers of two."""

    def calculate_qparams(self) -> QParams:
        found = super().calculate_qparams()
        return per_tensor(float(2 ** np.ceil(np.log2(found.scale))), 0, UINT8)


def doubled(activation: Any) -> Any:
    """Observed, the sum by that."""
    model: Any = Doubled().eval()
    model.qconfig = QConfig(MinMaxObserver.with_args(), WEIGHTS.observer)
    model.add.qconfig = QConfig(activation, WEIGHTS.observer)
    prepared = prepare(model)
    prepared(HALVES)
    return prepared


@pytest.mark.parametrize(
    "activation",
    [PowerOfTwo, QuantDescriptor(amax=508.0)],
    ids=["an observer of the user's own", "a number"],
)
def test_powers_of_two_that_were_asked_for_stay_and_are_named(activation: Any) -> None:
    prepared = doubled(activation)
    before = float(prepared.add.activation_post_process.qparams().scale)
    assert np.log2(before) % 1 == 0
    with pytest.warns(
        UserWarning,
        match=r"'add': ARM, x86 without AVX2 or WebAssembly may round .* powers of two, and stay",
    ):
        int8: Any = convert(prepared)
    assert int8.add.scale == before


def test_a_power_of_two_by_accident_is_increased() -> None:
    prepared = doubled(MinMaxObserver)
    int8: Any = convert(prepared)
    assert float(prepared.add.activation_post_process.qparams().scale) == 2.0
    assert 2.0 < int8.add.scale <= 2.0 * (1 + LARGEST)
    assert not differing(export(int8, HALVES))


def test_a_sum_that_no_scale_near_its_own_helps_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = doubled(MinMaxObserver)
    monkeypatch.setattr("onnxq.qdq.sum_scales.MULTIPLES", ())
    with pytest.warns(
        UserWarning,
        match=r"'add': ARM, x86 without AVX2 or WebAssembly may round .* no scale near avoids it",
    ):
        int8: Any = convert(prepared)
    assert int8.add.scale == 2.0


def test_differences_and_hardsigmoid_are_no_sums_of_integers_here() -> None:
    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.b(hardsigmoid(x - self.a(x)))
            return y

    prepared = trained(prepare_qat(Other(), inputs=torch.randn(32, 16)))
    assert not sums_in(prepared)
    for form in ("qdq", "qoperator"):
        exported = export(prepared, torch.randn(4, 16), format=form)
        (on_arm,) = onnxq.predict(exported, machines="arm64").machines
        assert "QLinearAdd" not in [one.op_type for one in on_arm.layers]
        assert not differing(exported)


class ByHand(nn.Module):
    """x + x between FakeQuantizes that no prepare has seen: scales 1 and 2."""

    def __init__(self) -> None:
        super().__init__()
        one, two = (per_tensor(scale, 0, UINT8) for scale in (1.0, 2.0))
        self.before, self.after = FakeQuantize().fix(one), FakeQuantize().fix(two)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x)
        y: torch.Tensor = self.after(x + x.flip(1))
        return y


def test_an_export_names_sums_that_convert_could_not_know_of() -> None:
    with pytest.warns(
        UserWarning,
        match=r"'node_add.*': ARM, x86 without AVX2 or WebAssembly may round some of these sums",
    ):
        export(ByHand(), HALVES)


def test_an_import_keeps_scales_of_sums_and_names_them() -> None:
    class Quantizers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before = TensorQuantizer(QuantDescriptor(amax=127.0))
            self.after = TensorQuantizer(QuantDescriptor(amax=254.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.before(x)
            y: torch.Tensor = self.after(x + x.flip(1))
            return y

    with pytest.warns(
        ImportedModelWarning,
        match=r"'.*add.*': ARM, x86 without AVX2 or WebAssembly may round a few pairs",
    ):
        model = import_quantized(Quantizers(), HALVES / 2)
    assert differing(model)
