from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from onnxq.errors import CalibrationError, ModelError, QConfigError, UnsupportedError
from onnxq.ort.runtime import NodeKind, integer_nodes, optimized_graph
from onnxq.pytorch import (
    DeQuantStub,
    FloatFunctional,
    QuantStub,
    export,
    fuse_modules,
    prepare,
    prepare_qat,
    propagate_qconfig_,
)
from onnxq.pytorch.eager.convert import convert, swap_module
from onnxq.pytorch.nn import quantized as nnq
from onnxq.pytorch.nn.intrinsic import quantized as nniq
from onnxq.pytorch.nn.quantized import dynamic as nnqd
from onnxq.pytorch.numerics.fake_quantize import FakeQuantize, disable_observer
from onnxq.pytorch.train.conversion import DYNAMIC_MAPPING, STATIC_MAPPING
from onnxq.qconfig import (
    QConfigMapping,
    default_dynamic_qconfig,
    get_default_qat_qconfig,
    get_default_qconfig,
)
from tests.exact_engine import exact

pytestmark = pytest.mark.oracle


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = QuantStub(), DeQuantStub()
        self.conv, self.norm, self.relu = (
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
        )
        self.again = nn.Conv2d(8, 8, 1)
        self.add, self.cat = FloatFunctional(), FloatFunctional()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.norm(self.conv(self.quant(x))))
        x = nn.functional.max_pool2d(x, 2)
        y = self.add.add_relu(x, self.again(x))
        y = self.pool(self.cat.cat([x, y], 1)).flatten(1)
        z: torch.Tensor = self.dequant(self.fc(y))
        return z


def batch(rows: int = 8, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, 3, 12, 12, generator=torch.Generator().manual_seed(seed))


def trained() -> Any:
    torch.manual_seed(0)
    model: Any = fuse_modules(Net().train(), ["conv", "norm", "relu"])
    model.qconfig = get_default_qat_qconfig()
    prepared = prepare_qat(model)
    for seed in range(4):
        prepared(batch(seed=seed))
    return prepared.eval().apply(disable_observer)


def steps(a: Any, b: torch.Tensor, scale: float) -> Any:
    return np.abs(np.asarray(a) - b.detach().numpy()) / scale


def test_convert_of_a_trained_model_equals_its_evaluation_and_is_a_copy() -> None:
    prepared = trained()
    converted = convert(prepared)
    assert isinstance(converted.conv, nniq.ConvReLU2d)
    assert isinstance(converted.again, nnq.Conv2d)
    assert isinstance(converted.fc, nnq.Linear)
    assert isinstance(converted.add, nnq.QFunctional)
    assert isinstance(converted.quant, nnq.Quantize)
    assert isinstance(converted.dequant, nnq.DeQuantize)
    assert not any(isinstance(m, FakeQuantize) for m in converted.modules())
    assert not any(hasattr(m, "qconfig") for m in converted.modules())
    assert any(isinstance(m, FakeQuantize) for m in prepared.modules())
    x = batch(32, 7)
    with torch.no_grad():
        assert torch.equal(converted(x), prepared(x))


def test_export_of_a_prepared_model_runs_in_integers_and_leaves_it_as_it_was() -> None:
    prepared = trained()
    model = export(prepared, batch(2))
    uses = integer_nodes(optimized_graph(model))
    integers = [use.op_type for use in uses if use.kind is NodeKind.INTEGER]
    for kind in ("QLinearConv", "QLinearAdd", "QLinearConcat", "QLinearGlobalAveragePool", "QGemm"):
        assert kind in integers
    assert not [use for use in uses if use.kind is NodeKind.FLOAT]
    assert [v.name for v in model.graph.outputs] == ["linear"]
    assert any(isinstance(m, FakeQuantize) for m in prepared.modules())
    x = batch(64, 3)
    converted = convert(prepared)
    assert isinstance(converted.fc, nnq.Linear)
    with torch.no_grad(), exact(model) as session:
        found = steps(session.run({"x": x.numpy()})[0], converted(x), converted.fc.scale)
    assert found.max() <= 1.01
    assert (found > 0.01).mean() <= 0.02  # a few layers behind one another


def test_post_training_quantization_stays_near_float() -> None:
    torch.manual_seed(0)
    model: Any = fuse_modules(Net().eval(), ["conv", "norm", "relu"])
    model.qconfig = get_default_qconfig()
    prepared = prepare(model)
    for seed in range(3):
        prepared(batch(seed=seed))
    x = batch()
    with torch.no_grad():
        wanted = prepared(x)
        found = convert(prepared)(x)
    assert (found - wanted).abs().max() < 0.1 * wanted.abs().max()


def test_modules_that_move_or_average_keep_their_place() -> None:
    converted = convert(trained())
    assert isinstance(converted.pool, nn.AdaptiveAvgPool2d)
    assert isinstance(converted.pool.activation_post_process, nnq.Requantize)


def test_in_place_changes_the_module_itself_and_qconfigs_can_stay() -> None:
    prepared = trained()
    result = convert(prepared, inplace=True, remove_qconfig=False)
    assert result is prepared
    assert hasattr(result, "qconfig")


def test_user_hooks_are_kept_and_observing_ones_are_not() -> None:
    prepared = trained()
    calls: list[str] = []
    prepared.fc.register_forward_hook(lambda *_: calls.append("after"))
    prepared.fc.register_forward_pre_hook(lambda *_: calls.append("before"))
    converted = convert(prepared)
    converted(batch(1))
    assert calls == ["before", "after"]


def test_hooks_that_want_keywords_are_called_with_them() -> None:
    calls: list[object] = []
    prepared = trained()
    prepared.fc.register_forward_pre_hook(
        lambda _m, _x, named: calls.append(named), with_kwargs=True
    )
    prepared.fc.register_forward_hook(
        lambda _m, _x, named, _y: calls.append(named), with_kwargs=True
    )
    convert(prepared)(batch(1))
    assert calls == [{}, {}]


def test_a_shared_module_is_converted_once() -> None:
    prepared = trained()
    prepared.other = prepared.fc
    converted = convert(prepared)
    assert converted.other is converted.fc


def test_static_and_dynamic_parts_mix() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.quant, self.dequant = QuantStub(), DeQuantStub()
            self.fc, self.lstm = nn.Linear(6, 8), nn.LSTM(8, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.lstm(self.dequant(self.fc(self.quant(x))))[0]
            return y

    model: Any = Mixed().eval()
    model.qconfig = get_default_qconfig()
    model.lstm.qconfig = default_dynamic_qconfig
    prepared = prepare(model)
    x = torch.randn(4, 3, 6)
    prepared(x)
    converted = convert(prepared)
    assert isinstance(converted.fc, nnq.Linear)
    assert isinstance(converted.lstm, nnqd.LSTM)
    exported = export(converted, x, dynamic_axes={"x": {1: "batch"}})
    kinds = {use.op_type for use in integer_nodes(optimized_graph(exported))}
    assert {"QGemm", "DynamicQuantizeLSTM"} <= kinds


def test_dynamic_parts_need_no_data() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    propagate_qconfig_(model, {nn.Linear: default_dynamic_qconfig})
    converted = convert(model)
    assert [type(m) for m in converted.children()] == [nnqd.Linear, nn.ReLU, nnqd.Linear]


def test_a_leaf_is_swapped_itself() -> None:
    leaf = nn.Linear(3, 4)
    leaf.qconfig = default_dynamic_qconfig  # type: ignore[assignment]
    assert isinstance(convert(leaf), nnqd.Linear)


def test_no_data_names_the_module() -> None:
    model: Any = fuse_modules(Net().train(), ["conv", "norm", "relu"])
    model.qconfig = get_default_qat_qconfig()
    with pytest.raises(CalibrationError, match=r"'quant'.*no data was seen"):
        convert(prepare_qat(model))


def test_a_layer_whose_input_is_not_known_names_the_remedy() -> None:
    prepared = trained()
    prepared.fc.bind_input(None)
    with pytest.raises(CalibrationError, match=r"'fc'.*put a QuantStub in front"):
        convert(prepared)


def test_weights_without_quantized_form_are_refused_by_name() -> None:
    model: Any = nn.Sequential(nn.RMSNorm(4))
    model[0].qconfig = get_default_qconfig()
    with pytest.raises(UnsupportedError, match=r"'0 \(RMSNorm\)'.*qconfig to None"):
        convert(model)


def test_mappings_are_checked() -> None:
    model = trained()
    with pytest.raises(QConfigError, match="wanted a dict"):
        convert(model, mapping=[nn.Linear])  # type: ignore[arg-type]
    with pytest.raises(QConfigError, match="no module type"):
        convert(model, mapping={"fc": nnq.Linear})  # type: ignore[dict-item]
    with pytest.raises(QConfigError, match="Did you mean 'Conv2d'"):
        convert(model, mapping={nn.Conv2d: "Conv2D"})  # type: ignore[dict-item]
    with pytest.raises(QConfigError, match="from_float"):
        swap_module(nn.ReLU(), {nn.ReLU: nn.ReLU})
    with pytest.raises(UnsupportedError, match="wanted a module"):
        convert("model")  # type: ignore[arg-type]


def test_swap_module_swaps_what_was_prepared_and_nothing_else() -> None:
    prepared = trained()
    assert isinstance(swap_module(prepared.fc, STATIC_MAPPING), nnq.Linear)
    plain = nn.Linear(2, 2)
    assert swap_module(plain, STATIC_MAPPING) is plain


def test_a_mapping_of_the_users_own_is_followed() -> None:
    class Mine(nnq.Linear):
        pass

    mapping = {**STATIC_MAPPING}
    mapping[type(trained().fc)] = Mine
    assert type(convert(trained(), mapping).fc) is Mine


def test_custom_modules_are_made_from_observed_ones() -> None:
    class Observed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    class Quantized(Observed):
        @classmethod
        def from_observed(cls, observed: Observed) -> Quantized:
            assert type(observed) is Observed
            return cls()

    config = {"observed_to_quantized_custom_module_class": {Observed: Quantized}}
    converted = convert(nn.Sequential(Observed()), convert_custom_config_dict=config)
    assert [type(m) for m in converted.children()] == [Quantized]
    with pytest.raises(QConfigError, match="not known"):
        convert(nn.ReLU(), convert_custom_config_dict={"float_to_observed": {}})


def test_a_module_that_was_never_prepared_is_refused() -> None:
    torch.manual_seed(0)
    with_qconfig: Any = Net().eval()
    with_qconfig.qconfig = get_default_qconfig()
    for model in (Net().eval(), with_qconfig, nn.Linear(3, 4), nn.Sequential(nn.MaxPool2d(2))):
        before = [type(part) for part in model.modules()]
        for inplace in (False, True):
            with pytest.raises(ModelError, match=r"nothing in .* is prepared.*prepare\(model\)"):
                convert(model, inplace=inplace)
        assert [type(part) for part in model.modules()] == before
    with pytest.raises(ModelError, match="quantize_dynamic"):
        convert(nn.Linear(3, 4), mapping=DYNAMIC_MAPPING)


def test_a_module_with_qconfigs_that_was_never_prepared_is_refused() -> None:
    model: Any = Net().eval()
    model.qconfig = get_default_qconfig()
    propagate_qconfig_(model)
    with pytest.raises(UnsupportedError, match="Call prepare or prepare_qat"):
        convert(model)


def test_a_converted_module_stays_as_it_is() -> None:
    once = convert(trained())
    again = convert(once)
    assert [type(part) for part in again.modules()] == [type(part) for part in once.modules()]


def test_a_prepared_module_of_which_nothing_is_quantized_is_said_to_be() -> None:
    x = torch.randn(4, 3)
    prepared = prepare(nn.Linear(3, 4), inputs=x, qconfig=QConfigMapping(None))
    prepared(x)
    with pytest.warns(UserWarning, match="nothing in Linear is quantized.*annotate"):
        made = convert(prepared)
    assert torch.equal(made(x), prepared(x))


def test_layers_between_regions_stay_float() -> None:
    class Between(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.quant, self.dequant, self.back = QuantStub(), DeQuantStub(), QuantStub()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3)
            self.end = DeQuantStub()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.dequant(self.first(self.quant(x)))
            z: torch.Tensor = self.end(self.second(self.back(torch.sigmoid(y))))
            return z

    model: Any = Between().eval()
    model.qconfig = get_default_qconfig()
    prepared = prepare(model)
    prepared(torch.randn(32, 4))
    exported = export(prepared, torch.randn(3, 4))
    uses = {use.op_type: use.kind for use in integer_nodes(optimized_graph(exported))}
    assert uses["Sigmoid"] is NodeKind.FLOAT
    assert "QLinearSigmoid" not in uses
    marks = [node for node in exported.graph if node.op_type == "Max"]
    assert len(marks) == 1  # none at the end of the model


class Block(nn.Module):
    """MobileNetV2's block: one that changes the shape has no residual connection to add."""

    def __init__(self, channels: int, residual: object) -> None:
        super().__init__()
        self.residual = residual
        self.conv, self.skip_add = nn.Conv2d(3, channels, 1), FloatFunctional()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.conv(x)
        return self.skip_add.add(x, y) if self.residual else y


def test_a_float_functional_that_is_never_called_stays_and_says_so_if_it_is() -> None:
    net: Any = nn.Sequential(QuantStub(), Block(3, "yes"), Block(4, None), DeQuantStub()).eval()
    net.qconfig = get_default_qconfig()
    prepared = prepare(net)
    x = torch.randn(2, 3, 4, 4)
    prepared(x)
    quantized: Any = convert(prepared)
    assert isinstance(quantized[1].skip_add, nnq.QFunctional)
    assert quantized(x).shape == (2, 4, 4, 4)
    with pytest.raises(CalibrationError, match=r"'2.skip_add'.*was not called"):
        quantized[2].skip_add.add(x, x)


def test_a_float_functional_is_refused_where_no_data_was_seen() -> None:
    net: Any = nn.Sequential(Block(3, "yes")).eval()
    net.qconfig = get_default_qconfig()
    with pytest.raises(CalibrationError, match="no data was seen"):
        convert(prepare(net))
