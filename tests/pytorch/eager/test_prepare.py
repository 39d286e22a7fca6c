from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onnxq.errors import CalibrationError, ModelError, QConfigError, ShapeError, UnsupportedError
from onnxq.observers import HistogramObserver, MinMaxObserver, NoopObserver
from onnxq.pytorch import (
    DeQuantStub,
    FakeQuantize,
    FloatFunctional,
    QuantStub,
    QuantWrapper,
    add_observer_,
    add_quant_dequant,
    disable_observer,
    fuse_modules,
    get_observer_dict,
    prepare,
    prepare_qat,
    propagate_qconfig_,
)
from onnxq.pytorch.eager.convert import convert
from onnxq.pytorch.nn import intrinsic, qat
from onnxq.pytorch.nn.intrinsic import qat as fused
from onnxq.pytorch.nn.quantized import Requantize
from onnxq.pytorch.nn.quantized.observed import observe_output
from onnxq.qconfig import (
    QConfig,
    default_qconfig,
    default_weight_fake_quant,
    get_default_qat_qconfig,
    get_default_qconfig,
)

FUSED = [["stem", "bn", "relu"], ["branch.0", "branch.1"]]
X = torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """Convolutions with batch norm, a residual sum, a concatenation, poolings, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = QuantStub(), DeQuantStub()
        self.stem, self.bn, self.relu = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()
        self.branch = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8))
        self.add, self.cat = FloatFunctional(), FloatFunctional()
        self.max, self.pool, self.drop = nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Dropout(0.1)
        self.fc = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Any:
        x = self.max(self.relu(self.bn(self.stem(self.quant(x)))))
        y = self.add.add_relu(self.branch(x), x)
        x = self.pool(self.cat.cat([x, y], 1)).flatten(1)
        return self.dequant(self.fc(self.drop(x)))


def trainable(qconfig: QConfig | None = None) -> Any:
    torch.manual_seed(0)
    net: Any = fuse_modules(Net().train(), FUSED)
    net.qconfig = get_default_qat_qconfig() if qconfig is None else qconfig
    return net


def fakes(net: nn.Module) -> set[str]:
    """Names of the modules that have a FakeQuantize for their result."""
    found: dict[str, nn.Module] = {}
    get_observer_dict(net, found)
    assert all(isinstance(fake, FakeQuantize) for fake in found.values())
    return {name.removesuffix(".activation_post_process") for name in found}


COMPUTING = {"quant", "stem", "branch.0", "add", "cat", "pool", "fc"}


# --- prepare_qat


def test_each_computed_tensor_gets_one_fake_quantize() -> None:
    net = prepare_qat(trainable())
    assert fakes(net) == COMPUTING
    assert isinstance(net.stem, fused.ConvBnReLU2d)
    assert isinstance(net.branch[0], fused.ConvBn2d)  # type: ignore[index]
    assert type(net.fc) is qat.Linear


def test_training_and_conversion_agree_to_the_bit() -> None:
    net = prepare_qat(trainable())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    targets = torch.arange(8)
    losses = []
    for step in range(6):
        if step == 4:
            net.apply(fused.freeze_bn_stats)
        loss = nn.functional.cross_entropy(net(X), targets)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    net.eval()(X)
    net.apply(disable_observer)
    assert torch.equal(convert(net)(X), net(X))


def test_the_sources_of_biases_are_found() -> None:
    net: Any = prepare_qat(trainable())
    net(X)
    sources = {"stem": "quant", "fc": "pool"}
    for layer, source in sources.items():
        made = net.get_submodule(source).activation_post_process
        assert net.get_submodule(layer).input_fake_quant is made
    assert net.branch[0].input_fake_quant is net.stem.activation_post_process


def test_the_model_itself_is_left_as_it_is_unless_in_place() -> None:
    net = trainable()
    prepare_qat(net)
    assert type(net.stem) is intrinsic.ConvBnReLU2d
    assert prepare_qat(net, inplace=True) is net
    stem = net.get_submodule("stem")
    assert type(stem) is fused.ConvBnReLU2d


def test_a_layer_alone_becomes_its_quantized_module() -> None:
    layer: Any = nn.Linear(2, 2)
    layer.qconfig = get_default_qat_qconfig()
    assert type(prepare_qat(layer)) is qat.Linear


def test_a_module_in_two_places_stays_one() -> None:
    linear = nn.Linear(4, 4)
    net: Any = nn.Sequential(QuantStub(), nn.Sequential(linear), nn.ModuleList([linear]))
    net.qconfig = get_default_qat_qconfig()
    made: Any = prepare_qat(net)
    assert made[1][0] is made[2][0]
    assert type(made[1][0]) is qat.Linear


def test_a_part_without_qconfig_stays_in_float() -> None:
    net = trainable()
    net.fc.qconfig = None
    assert type(prepare_qat(net).fc) is nn.Linear


def test_a_part_can_have_a_qconfig_of_its_own() -> None:
    net = trainable()
    net.fc.qconfig = get_default_qat_qconfig("qnnpack")
    made: Any = prepare_qat(net)
    assert not made.fc.weight_fake_quant.is_per_channel
    assert made.stem.weight_fake_quant.is_per_channel


def test_another_mapping() -> None:
    made = prepare_qat(trainable(), mapping={nn.Linear: qat.Linear})
    assert type(made.fc) is qat.Linear
    assert type(made.stem) is intrinsic.ConvBnReLU2d


def test_hooks_are_kept_and_see_what_is_rounded() -> None:
    net, seen = trainable(), []
    net.fc.register_forward_hook(lambda _m, _x, y: seen.append(y))
    made: Any = prepare_qat(net)
    result = made(X)
    assert torch.equal(seen[0], result)
    assert [h is observe_output for h in made.fc._forward_hooks.values()] == [True, False]


def test_weights_of_the_fused_float_model_load() -> None:
    net = trainable()
    made: Any = prepare_qat(trainable())
    with torch.no_grad():
        made.stem.weight.zero_()
        made.stem.bn.running_mean.fill_(7)
    result = made.load_state_dict(net.state_dict(), strict=False)
    assert not result.unexpected_keys
    assert all("fake_quant" in k or "post_process" in k for k in result.missing_keys)
    assert torch.equal(made.stem.weight, net.stem[0].weight)
    assert torch.equal(made.stem.bn.running_mean, net.stem[1].running_mean)


def test_a_checkpoint_gives_the_same_results() -> None:
    first = prepare_qat(trainable())
    first(X)
    first.eval()(X)
    second = prepare_qat(trainable())
    second.load_state_dict(first.state_dict())
    for net in (first, second):
        net.eval().apply(disable_observer)
    second(X)  # finds the sources
    assert torch.equal(second(X), first(X))


def test_batch_norm_by_itself_is_a_layer_between_integers() -> None:
    net: Any = nn.Sequential(QuantStub(), nn.BatchNorm2d(3), nn.Conv2d(3, 4, 1)).train()
    net.qconfig = get_default_qat_qconfig()
    made = prepare_qat(net)
    made(X)
    assert fakes(made) == {"0", "1", "2"}


def test_an_embedding_trains_with_a_rounded_weight() -> None:
    qconfig = QConfig(get_default_qat_qconfig().activation, default_weight_fake_quant)
    net: Any = nn.Sequential(nn.Embedding(10, 4, padding_idx=0), nn.Linear(4, 2), DeQuantStub())
    net.qconfig = qconfig
    made: Any = prepare_qat(net)
    made(torch.arange(10)).sum().backward()
    assert type(made[0]) is qat.Embedding
    assert made[1].input_fake_quant is made[0].activation_post_process
    assert made[0].weight.grad is not None
    rounded = made[0].weight_fake_quant.integers(made[0].weight.detach())
    assert rounded.dtype == torch.int8


def test_a_noop_observer_leaves_a_result_as_it_is() -> None:
    spec = QConfig(NoopObserver.with_args(), default_weight_fake_quant)
    net: Any = nn.Sequential(QuantStub(), nn.Linear(4, 2), DeQuantStub())
    net.qconfig = get_default_qat_qconfig()
    net[1].qconfig = spec
    assert fakes(prepare_qat(net)) == {"0"}


# --- prepare


def observed(net: nn.Module | None = None) -> Any:
    net = fuse_modules(Net().eval(), FUSED) if net is None else net
    net.qconfig = get_default_qconfig()  # type: ignore[assignment]
    return prepare(net)


def test_prepare_observes_and_rounds_nothing() -> None:
    torch.manual_seed(0)
    net = Net().eval()
    made = observed(fuse_modules(net, FUSED))
    assert fakes(made) == COMPUTING
    assert torch.allclose(made(X), net(X), atol=1e-5)
    assert made.fc.activation_post_process.has_observed


def test_what_was_observed_converts() -> None:
    torch.manual_seed(0)
    made = observed()
    with torch.no_grad():
        reference = made(X)
        result = convert(made)(X)
    step = made.fc.activation_post_process.calculate_qparams()[0]
    assert float((result - reference).abs().max()) < 8 * step


def test_the_activation_observer_is_the_qconfigs() -> None:
    net: Any = Net().eval()
    net.qconfig = QConfig(HistogramObserver.with_args(bins=512), MinMaxObserver.with_args())
    made: Any = prepare(net)
    assert made.fc.activation_post_process.observer.spec == HistogramObserver.with_args(bins=512)


def test_only_types_of_the_allow_list_are_observed() -> None:
    net: Any = Net().eval()
    net.qconfig = default_qconfig
    assert fakes(prepare(net, allow_list=[QuantStub, nn.Linear])) == {"quant", "fc", "add", "cat"}


def test_modules_with_modules_in_them_are_observed_on_request() -> None:
    net: Any = Net().eval()
    net.qconfig = default_qconfig
    made = prepare(net, observer_non_leaf_module_list=[nn.Sequential])
    assert "branch" in fakes(made)
    assert "branch.0" not in fakes(made)


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


class ObservedDoubled(nn.Module):
    @classmethod
    def from_float(cls, mod: nn.Module) -> ObservedDoubled:  # noqa: ARG003
        return cls()

    def forward(self, x: Tensor) -> Tensor:
        return x * 2


def test_a_misspelt_key_of_custom_modules_is_refused() -> None:
    net: Any = nn.Sequential(QuantStub(), Doubled()).eval()
    net.qconfig = default_qconfig
    custom = {"float_to_observed_custom_module_clas": {Doubled: ObservedDoubled}}
    with pytest.raises(QConfigError, match=r"not known.*float_to_observed_custom_module_class"):
        prepare(net, prepare_custom_config_dict=custom)


def test_custom_modules_are_replaced_and_observed() -> None:
    net: Any = nn.Sequential(QuantStub(), Doubled(), nn.Linear(4, 2)).eval()
    net.qconfig = default_qconfig
    custom = {"float_to_observed_custom_module_class": {Doubled: ObservedDoubled}}
    made: Any = prepare(net, prepare_custom_config_dict=custom)
    assert type(made[1]) is ObservedDoubled
    made(torch.randn(3, 4))
    assert made[2].input_fake_quant is made[1].activation_post_process


def test_averages_are_quantized_once_they_are_converted() -> None:
    made = observed()
    made(X)
    assert isinstance(convert(made).pool.activation_post_process, Requantize)  # type: ignore[union-attr]


# --- the smaller functions


def test_add_quant_dequant_wraps_leaves_with_a_qconfig() -> None:
    net: Any = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    net[0].qconfig = default_qconfig
    made: Any = add_quant_dequant(net)
    assert isinstance(made[0], QuantWrapper)
    assert type(made[1]) is nn.Linear
    leaf: Any = nn.Linear(4, 4)
    leaf.qconfig = default_qconfig
    assert isinstance(add_quant_dequant(leaf), QuantWrapper)


def test_add_quant_dequant_wraps_a_leaf_in_all_its_places() -> None:
    shared: Any = nn.Linear(4, 4)
    shared.qconfig = default_qconfig
    made: Any = add_quant_dequant(nn.Sequential(shared, nn.ReLU(), nn.Sequential(shared), shared))
    assert isinstance(made[0], QuantWrapper)
    assert made[0].module is shared
    assert made[0] is made[2][0] is made[3]


def test_a_wrapped_model_prepares_and_converts() -> None:
    linear: Any = nn.Linear(4, 4)
    linear.qconfig = get_default_qconfig()
    wrapped = QuantWrapper(linear).eval()
    made = prepare(wrapped)
    x = torch.randn(16, 4)
    made(x)
    assert torch.allclose(convert(made)(x), wrapped(x), atol=0.1)


def test_add_observer_observes_in_place() -> None:
    net = Net().eval()
    propagate_qconfig_(net, {"": default_qconfig})
    add_observer_(net)
    assert {"quant", "stem", "bn", "fc"} <= fakes(net)


def test_get_observer_dict_puts_a_prefix_before_the_names() -> None:
    found: dict[str, nn.Module] = {}
    get_observer_dict(observed(), found, "net")
    assert "net.branch.0.activation_post_process" in found


# --- bad input


def test_eval_mode_is_refused() -> None:
    with pytest.raises(ModelError, match=r"is in eval mode.*Call model.train\(\)"):
        prepare_qat(trainable().eval())


def test_train_mode_is_refused_after_training() -> None:
    with pytest.raises(ModelError, match=r"is in train mode.*Call model.eval\(\)"):
        prepare(trainable())


@pytest.mark.parametrize(("function", "training"), [(prepare, False), (prepare_qat, True)])
def test_a_model_without_any_qconfig_is_refused(function: Any, training: bool) -> None:
    with pytest.raises(QConfigError, match=r"no module has a qconfig.*inputs=example"):
        function(Net().train(training))


def test_observers_that_do_not_round_are_refused_in_training() -> None:
    with pytest.raises(QConfigError, match="'stem' has observers that do not round"):
        prepare_qat(trainable(default_qconfig))


def test_batch_norm_that_is_not_folded_is_refused_after_training() -> None:
    net = trainable(get_default_qconfig())
    with pytest.raises(ModelError, match=r"'stem', 'branch.0' hold batch norm"):
        prepare(net.eval())


def test_a_prepared_model_is_not_prepared_again() -> None:
    made = prepare_qat(trainable())
    with pytest.raises(UnsupportedError, match="the model is prepared"):
        prepare_qat(made)


@pytest.mark.parametrize(
    ("module", "x"),
    [
        (nn.LSTM(3, 4), torch.randn(5, 3)),
        (nn.RMSNorm(8), torch.randn(5, 8)),
        (nn.MultiheadAttention(3, 1, add_zero_attn=True), None),
    ],
)
def test_what_has_no_quantized_form_stays_in_float_and_is_named(
    module: nn.Module, x: Tensor | None
) -> None:
    net: Any = nn.Sequential(DeQuantStub(), module)
    net.qconfig = get_default_qat_qconfig()
    with pytest.warns(UserWarning, match=rf"'1 \({type(module).__name__}\)': no quantized form"):
        made: Any = prepare_qat(net)
    assert type(made[1]) is type(module)
    if x is not None:
        made(x)


def test_a_float_result_does_not_feed_a_quantized_layer() -> None:
    net: Any = nn.Sequential(QuantStub(), nn.RMSNorm(X.shape[-1]), nn.Conv2d(3, 4, 1))
    net.qconfig = get_default_qat_qconfig()
    with pytest.warns(UserWarning, match="stay in float"):
        made = prepare_qat(net)
    with pytest.raises(ModelError, match=r"'2' .Conv2d.: its input, from .*rms_norm"):
        made(X)


def test_a_missing_stub_is_named() -> None:
    net: Any = nn.Sequential(nn.Conv2d(3, 4, 1))
    net.qconfig = get_default_qat_qconfig()
    with pytest.raises(ModelError, match=r"from an input of the model.*Put a QuantStub before it"):
        prepare_qat(net)(X)


def test_a_layer_used_twice_on_different_tensors_is_refused() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.quant, self.fc = QuantStub(), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Any:
            return self.fc(self.fc(self.quant(x)))

    net: Any = Twice()
    net.qconfig = get_default_qat_qconfig()
    with pytest.raises(ModelError, match=r"'fc' .Linear. is called more than once"):
        prepare_qat(net)(torch.randn(2, 4))


@pytest.mark.parametrize("make", [lambda: prepare_qat(trainable()), observed])
def test_converting_before_any_data_is_refused(make: Any) -> None:
    with pytest.raises(CalibrationError, match=r"no data was seen"):
        convert(make())


def test_integers_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"torch.int64"):
        prepare_qat(trainable())(torch.arange(6).reshape(1, 3, 1, 2))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: qat.Conv2d(1, 1, 1), QConfigError, "got qconfig None; wanted a QConfig"),
        (lambda: qat.Linear(1, 1, qconfig=default_qconfig), QConfigError, "does not round"),
        (lambda: qat.Linear.from_float(nn.Conv2d(1, 1, 1)), ModelError, "got Conv2d; wanted Lin"),
        (lambda: qat.Linear.from_float(nn.Linear(1, 1)), QConfigError, "has no qconfig"),
        (lambda: FloatFunctional()(X), UnsupportedError, "has no forward; call one of add"),
    ],
)
def test_wrong_arguments(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_batch_norm_that_cannot_be_folded_is_refused() -> None:
    norm = nn.BatchNorm2d(4, track_running_stats=False)
    module: Any = intrinsic.ConvBn2d(nn.Conv2d(3, 4, 1), norm)
    module.qconfig = get_default_qat_qconfig()
    with pytest.raises(ModelError, match="wanted track_running_stats=True"):
        fused.ConvBn2d.from_float(copy.deepcopy(module))


def test_what_is_prepared_under_inference_mode_is_trained() -> None:
    model = nn.Linear(4, 2)
    with torch.inference_mode():
        prepared = prepare_qat(model, inputs=torch.randn(3, 4))
        unusable = nn.Linear(4, 2)
    prepared.train()(torch.randn(3, 4)).sum().backward()
    assert model.weight.grad is None
    assert all(x.grad is not None for x in prepared.parameters())
    with pytest.raises(ModelError, match=r"made under torch\.inference_mode"):
        prepare_qat(unusable, inputs=torch.randn(3, 4))
