from __future__ import annotations

import copy
import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from onnxq import affine, dtypes, qconfig, qparams
from onnxq.errors import CalibrationError, QConfigError, ShapeError, UnsupportedError
from onnxq.observers import (
    ChannelHistogramObserver,
    EntropyObserver,
    HistogramObserver,
    LeastErrorObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    NarrowRangeObserver,
    NoopObserver,
    ObserverSpec,
    PercentileObserver,
    PerChannelMinMaxObserver,
    RecordingObserver,
    default_observer,
)
from onnxq.pytorch import (
    FakeQuantize,
    LearnableFakeQuantize,
    disable_fake_quant,
    disable_observer,
    enable_fake_quant,
    enable_observer,
    fake_quantize_module,
    forget_left_out,
)
from onnxq.qconfig import FakeQuantSpec, QConfig, ScaleRule

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

SPECS = [
    MinMaxObserver.with_args(),
    MinMaxObserver.with_args(dtype="qint8", qscheme="per_tensor_symmetric"),
    MovingAverageMinMaxObserver.with_args(averaging_constant=0.3),
    PerChannelMinMaxObserver.with_args(ch_axis=1),
    PerChannelMinMaxObserver.with_args(dtype="qint8", qscheme="per_channel_symmetric", ch_axis=-1),
    MovingAveragePerChannelMinMaxObserver.with_args(averaging_constant=0.3),
    NarrowRangeObserver.with_args(),
    NarrowRangeObserver.with_args(quant_max=7),
    NarrowRangeObserver.with_args(ch_axis=None, dtype="int4", quant_max=7),
    MovingAverageMinMaxObserver.with_args(dtype="uint16"),
    MovingAverageMinMaxObserver.with_args(dtype="int16", qscheme="per_tensor_symmetric"),
    MovingAverageMinMaxObserver.with_args(dtype="uint4"),
    MovingAverageMinMaxObserver.with_args(quant_min=0, quant_max=100),
    MovingAverageMinMaxObserver.with_args(reduce_range=True),
    HistogramObserver.with_args(),
    PercentileObserver.with_args(),
    EntropyObserver.with_args(),
    LeastErrorObserver.with_args(),
    ChannelHistogramObserver.with_args(),
]
LABELS = [str(spec) for spec in SPECS]
KINDS = [FakeQuantize, LearnableFakeQuantize]


def batches(count: int = 4) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(4, 6, 5, generator=generator) * (i + 1) for i in range(count)]


def trained(spec: object, kind: type[FakeQuantize] = FakeQuantize) -> FakeQuantize:
    fake = kind(spec)
    for x in batches():
        fake(x)
    return fake


@pytest.mark.parametrize("spec", SPECS, ids=LABELS)
def test_scale_is_what_the_observer_says_of_the_same_batches(spec: ObserverSpec) -> None:
    observer = spec()
    fake = FakeQuantize(spec)
    for index, x in enumerate(batches()):
        rounded = fake(x)
        observer.observe(x.numpy(), index)
        wanted = observer.calculate_qparams()
        found = fake.qparams()
        np.testing.assert_array_equal(found.scale, wanted.scale)
        np.testing.assert_array_equal(found.zero_point, wanted.zero_point)
        assert (found.dtype, found.granularity) == (wanted.dtype, wanted.granularity)
        np.testing.assert_array_equal(fake.scale.numpy(), wanted.scale)
        np.testing.assert_array_equal(fake.zero_point.numpy(), wanted.zero_point)
        integers = np.clip(affine.quantize(x.numpy(), wanted), fake.quant_min, fake.quant_max)
        np.testing.assert_array_equal(rounded.numpy(), affine.dequantize(integers, wanted))
        np.testing.assert_array_equal(fake.integers(x).numpy(), integers)
    assert (fake.dtype, fake.qscheme) == (observer.dtype, observer.qscheme)
    assert fake.zero_point.dtype == torch.int32


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spec", SPECS, ids=LABELS)
def test_a_fresh_module_takes_over_the_state_and_goes_on_as_the_old_one(
    spec: ObserverSpec, kind: type[FakeQuantize]
) -> None:
    old, new = trained(spec, kind), kind(spec)
    file = io.BytesIO()
    torch.save(old.state_dict(), file)
    file.seek(0)
    new.load_state_dict(torch.load(file, weights_only=True))
    x = torch.randn(4, 6, 5)
    assert torch.equal(new.scale, old.scale)
    assert (new.has_observed, new.observer_enabled) == (True, kind is FakeQuantize)
    assert torch.equal(new(x), old(x))  # one more batch where the observer is on
    assert torch.equal(new.scale, old.scale)
    assert torch.equal(new.zero_point, old.zero_point)


@pytest.mark.parametrize("spec", SPECS, ids=LABELS)
def test_what_was_loaded_does_not_change_with_the_module(spec: ObserverSpec) -> None:
    state = trained(spec).state_dict()
    kept = {name: value.clone() for name, value in state.items()}
    fresh = FakeQuantize(spec)
    fresh.load_state_dict(dict(state))
    fresh(torch.full((4, 6, 5), 100.0))
    assert all(torch.equal(value, kept[name]) for name, value in state.items())


def test_switches_survive_the_state_dict() -> None:
    old, new = FakeQuantize(), FakeQuantize()
    old.disable_fake_quant().disable_observer()
    state = old.state_dict()
    new.load_state_dict(state)
    assert (new.fake_quant_enabled, new.observer_enabled, new.has_observed) == (False,) * 3
    assert all(isinstance(value, Tensor) for value in state.values())  # as safetensors wants
    assert set(state) == set(FakeQuantize().state_dict())


def test_a_state_dict_without_the_switches_is_told_what_is_missing() -> None:
    state = FakeQuantize().state_dict()
    del state["observer_enabled"]
    with pytest.raises(RuntimeError, match=r"Missing key.*observer_enabled"):
        FakeQuantize().load_state_dict(state)


def test_a_per_tensor_module_refuses_the_scales_of_channels() -> None:
    state = trained(PerChannelMinMaxObserver).state_dict()
    with pytest.raises(RuntimeError, match="size mismatch for scale"):
        FakeQuantize(MinMaxObserver).load_state_dict(state)


def test_state_of_a_model_is_loaded_in_place_and_a_copy_is_its_own() -> None:
    fake = trained(NarrowRangeObserver)
    model = nn.Sequential(fake, nn.Linear(5, 2))
    twin = copy.deepcopy(model)
    twin(torch.full((4, 6, 5), 100.0))
    moved = twin.state_dict()
    assert (moved["0.scale"] > fake.scale).all()
    model.load_state_dict(moved)
    assert torch.equal(fake.scale, moved["0.scale"])


@pytest.mark.parametrize("spec", SPECS[:9], ids=LABELS[:9])
def test_memory_and_state_do_not_grow_with_the_steps(spec: ObserverSpec) -> None:
    fake = FakeQuantize(spec)
    sizes = []
    for _ in range(20):
        fake(torch.randn(4, 6, 5))
        sizes.append({name: value.shape for name, value in fake.state_dict().items()})
    assert sizes[0] == sizes[-1]


def test_observer_and_rounding_are_switched_one_by_one() -> None:
    fake = FakeQuantize()
    x, wider = batches()[0], batches()[3] * 10
    assert not torch.equal(fake(x), x)
    before = fake.scale.clone()
    fake.disable_observer()
    fake(wider)
    assert torch.equal(fake.scale, before)
    fake.disable_fake_quant()
    assert fake(wider) is wider
    fake.enable_observer()
    assert fake(wider) is wider
    fake.enable_fake_quant()
    assert fake.qparams().scale > before.item()
    fake.enable_observer(False)
    assert not fake.observer_enabled


def test_model_apply_switches_every_module() -> None:
    model = nn.Sequential(FakeQuantize(), nn.Sequential(FakeQuantize(), nn.ReLU()))
    fakes = [m for m in model.modules() if isinstance(m, FakeQuantize)]
    switched: list[tuple[Callable[[nn.Module], None], str, bool]] = [
        (disable_observer, "observer_enabled", False),
        (enable_observer, "observer_enabled", True),
        (disable_fake_quant, "fake_quant_enabled", False),
        (enable_fake_quant, "fake_quant_enabled", True),
    ]
    for switch, flag, value in switched:
        model.apply(switch)
        assert [getattr(fake, flag) for fake in fakes] == [value] * 2
    by_name: Any = disable_observer
    by_name(mod=fakes[0])  # torch's name of the parameter
    assert [fake.observer_enabled for fake in fakes] == [False, True]


def test_before_any_data_the_levels_are_whole_numbers_and_qparams_warn() -> None:
    fake = FakeQuantize(PerChannelMinMaxObserver).disable_observer()
    x = torch.tensor([[0.4, 1.6], [-3.0, 300.0]])
    assert fake(x).tolist() == [[0.0, 2.0], [0.0, 255.0]]
    with pytest.warns(UserWarning, match="FakeQuantize has seen no data: returning scale 1"):
        scale, zero_point = fake.calculate_qparams()
    assert (scale.tolist(), zero_point.tolist(), fake.has_observed) == ([1.0], [0], False)


def test_an_empty_batch_changes_nothing() -> None:
    fake = FakeQuantize()
    assert fake(torch.empty(0, 3)).shape == (0, 3)
    assert not fake.has_observed


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_integers_are_refused_with_the_remedy(dtype: torch.dtype) -> None:
    for fake in (
        FakeQuantize(),
        FakeQuantize().disable_observer(),
        FakeQuantize(HistogramObserver),
    ):
        with pytest.raises(ShapeError, match=rf"got a tensor of {dtype}.*wanted floating.*float"):
            fake(torch.zeros(2, 3, dtype=dtype))


NOT_FINITE = [float("nan"), float("inf"), float("-inf")]


def with_one(value: float) -> Tensor:
    bad = torch.ones(4, 6, 5)
    bad[1, 2, 3] = value
    return bad


@pytest.mark.parametrize("value", NOT_FINITE)
def test_nan_and_inf_are_refused_by_numpy_observers_and_leave_no_trace(value: float) -> None:
    fake = trained(HistogramObserver)
    before = fake.state_dict()
    with pytest.raises(CalibrationError, match=r"FakeQuantize.*1 of 120 values.*\[1, 2, 3\]"):
        fake(with_one(value))
    for name, kept in fake.state_dict().items():
        assert torch.equal(kept, before[name]), name


@pytest.mark.parametrize("spec", SPECS[:9], ids=LABELS[:9])
@pytest.mark.parametrize("value", NOT_FINITE)
def test_nan_and_inf_are_left_out_on_the_device_and_refused_when_asked(
    spec: ObserverSpec, value: float
) -> None:
    fake = trained(spec)
    before = fake.state_dict()
    fake(with_one(value))
    after = fake.state_dict()
    assert int(after.pop("left_out")) == 1
    for name, kept in after.items():
        assert torch.equal(kept, before[name]), name
    for ask in (fake.qparams, fake.calculate_qparams):
        with pytest.raises(CalibrationError, match=r"1 of the batches .* NaN or infinite"):
            ask()
    fake.apply(forget_left_out)
    assert np.array_equal(fake.qparams().scale, before["scale"].numpy())


@pytest.mark.parametrize("spec", SPECS[:9], ids=LABELS[:9])
def test_a_first_batch_that_is_left_out_does_not_count(spec: ObserverSpec) -> None:
    fake = FakeQuantize(spec)
    fake(with_one(float("nan")))
    for x in batches():
        fake(x)
    assert torch.equal(fake.scale, trained(spec).scale)


def test_another_number_of_channels_is_refused() -> None:
    fake = trained(NarrowRangeObserver)
    with pytest.raises(CalibrationError, match="got 3 channels on axis 0; before there were 4"):
        fake(torch.randn(3, 6, 5))


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"observer": MinMaxObserver, "dtype": "qint32"}, UnsupportedError, "does not give int32"),
    ({"observer": NoopObserver}, UnsupportedError, "stored as float16.*QConfigDynamic"),
    ({"dtype": "quint3"}, QConfigError, "dtype 'quint3' is not known"),
    ({"dtype": torch.float16}, UnsupportedError, "does not give float16; use quint8"),
    ({"qscheme": "per_channel_affine_float_qparams"}, QConfigError, "one range.*PerChannel"),
    ({"qscheme": "per_channel_affine"}, QConfigError, "one range.*PerChannelMinMaxObserver"),
    (
        {"observer": PerChannelMinMaxObserver, "qscheme": "per_tensor_affine"},
        QConfigError,
        "for each channel.*MinMaxObserver",
    ),
    ({"quant_min": 0}, QConfigError, "give both or none"),
    ({"quant_min": -8, "quant_max": 7}, QConfigError, "lies inside uint8"),
    (
        {"dtype": "quint8", "qscheme": "per_tensor_symmetric", "reduce_range": True},
        QConfigError,
        "outside the reduced range",
    ),
    ({"averaging": 0.1}, QConfigError, "Did you mean 'averaging_constant'"),
    ({"observer": MinMaxObserver()}, QConfigError, "pass the class"),
    ({"observer": 3}, QConfigError, "wanted an observer class"),
]


@pytest.mark.parametrize(("arguments", "error", "words"), REFUSED)
def test_what_onnx_lacks_is_refused_by_name(
    arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        FakeQuantize(**arguments)


def test_a_recorder_watches_and_computes_no_scale() -> None:
    fake = fake_quantize_module(RecordingObserver.with_args())
    fake(batches()[0])
    assert isinstance(fake.observer, RecordingObserver)
    np.testing.assert_array_equal(fake.observer.get_tensor_value()[0], batches()[0].numpy())
    with pytest.raises(UnsupportedError, match="computes no qparams"):
        fake.qparams()


class TestAsValue:
    def test_the_documented_qconfig_builds_the_documented_module(self) -> None:
        documented = QConfig(
            activation=FakeQuantize.with_args(
                observer=MovingAverageMinMaxObserver,
                quant_min=0,
                quant_max=255,
                reduce_range=True,
            ),
            weight=qconfig.default_weight_fake_quant,
        )
        assert documented == qconfig.default_qat_qconfig
        fake = fake_quantize_module(documented.activation)
        assert (fake.quant_min, fake.quant_max) == (0, 127)
        fake(torch.tensor([0.0, 127.0]))
        assert fake.scale.item() == 1.0

    @pytest.mark.parametrize(
        ("arguments", "integers"),
        [
            ({"quant_min": 0, "quant_max": 127}, (0, 127)),
            ({"quant_min": 0, "quant_max": 255}, (0, 127)),
            ({"quant_min": 0, "quant_max": 127, "reduce_range": True}, (0, 63)),
            ({}, (0, 127)),
        ],
    )
    def test_integers_that_are_given_are_not_halved_again(
        self, arguments: dict[str, Any], integers: tuple[int, int]
    ) -> None:
        fake = FakeQuantize(default_observer, **arguments)  # which reduces the range
        assert (fake.quant_min, fake.quant_max) == integers

    def test_a_class_stands_for_its_defaults(self) -> None:
        entry = QConfig(activation=FakeQuantize, weight=LearnableFakeQuantize)  # type: ignore[arg-type]
        assert entry.activation == FakeQuantSpec(MovingAverageMinMaxObserver.with_args())
        assert entry.weight == FakeQuantSpec(
            MovingAverageMinMaxObserver.with_args(), ScaleRule.LEARNED
        )
        with pytest.raises(QConfigError, match="wanted an observer class"):
            QConfig(activation=nn.ReLU, weight=FakeQuantize)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        "name",
        [
            "default_fake_quant",
            "default_weight_fake_quant",
            "default_per_channel_weight_fake_quant",
        ],
    )
    def test_the_documented_instances_make_modules(self, name: str) -> None:
        spec = getattr(qconfig, name)
        assert isinstance(spec, FakeQuantSpec)
        fake = fake_quantize_module(spec)
        assert type(fake) is FakeQuantize
        assert fake.spec == spec

    def test_more_arguments_can_follow(self) -> None:
        spec = FakeQuantize.with_args(observer=MinMaxObserver).with_args(dtype="qint8")
        assert fake_quantize_module(spec).dtype == dtypes.INT8
        learned = LearnableFakeQuantize.with_args(NarrowRangeObserver).with_args(quant_max=7)
        assert isinstance(fake_quantize_module(learned), LearnableFakeQuantize)

    def test_an_observer_alone_only_observes(self) -> None:
        fake = fake_quantize_module(HistogramObserver.with_args())
        x = batches()[0]
        assert fake(x) is x
        assert fake.has_observed
        assert fake.qparams().scale == scale_of_histogram(x)

    def test_torchs_own_dtypes_and_schemes_are_understood(self) -> None:
        fake = FakeQuantize(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric)
        assert (fake.dtype, fake.qscheme) == (dtypes.INT8, qparams.per_tensor_symmetric)

    def test_a_learned_scale_is_plain_data_too(self) -> None:
        spec = LearnableFakeQuantize.with_args(NarrowRangeObserver, quant_max=7)
        entry = QConfig(qconfig.default_fake_quant, spec)
        mapping = qconfig.QConfigMapping(entry)
        text = mapping.to_yaml()
        assert "scale: learned" in text
        assert qconfig.QConfigMapping.from_yaml(text) == mapping
        known = r"'learnt' is not known; known: observed, learned\. Did you mean 'learned'\?"
        with pytest.raises(QConfigError, match=known):
            qconfig.QConfigMapping.from_yaml(text.replace("learned", "learnt"))


def scale_of_histogram(x: Tensor) -> npt.NDArray[np.float32]:
    observer = HistogramObserver()
    observer.observe(x.numpy(), 0)
    return observer.calculate_qparams().scale


class TestDevices:
    def test_half_precision_keeps_scales_in_float32(self) -> None:
        for kind in KINDS:
            fake = trained(NarrowRangeObserver, kind)
            exact = fake.scale.detach().clone()
            model = nn.Sequential(fake, nn.Linear(5, 2)).to(torch.bfloat16)
            assert model[1].weight.dtype == torch.bfloat16
            assert fake.scale.dtype == torch.float32
            assert torch.equal(fake.scale, exact)
            x = torch.randn(4, 6, 5).to(torch.bfloat16)
            assert model(x).dtype == torch.bfloat16

    def test_moves_with_the_model(self) -> None:
        for kind in KINDS:
            fake = trained(NarrowRangeObserver, kind).disable_observer().to("meta")
            assert fake.scale.is_meta
            assert fake.zero_point.is_meta
            assert all(buffer.is_meta for buffer in fake.buffers())
            assert fake(torch.empty(4, 2, device="meta")).is_meta
            assert fake.integers(torch.empty(4, 2, device="meta")).is_meta

    def test_on_the_meta_device_there_is_nothing_to_observe(self) -> None:
        for spec in (MinMaxObserver, HistogramObserver):
            with pytest.raises(CalibrationError, match="meta device"):
                FakeQuantize(spec).to("meta")(torch.empty(4, 2, device="meta"))

    @pytest.mark.parametrize("spec", SPECS, ids=LABELS)
    def test_nothing_takes_the_tensor_for_one_in_main_memory(self, spec: ObserverSpec) -> None:
        """A tensor elsewhere, as on CUDA: .numpy() is an error before .cpu() or .to("cpu")."""
        fake = FakeQuantize(spec)
        for x in batches():
            fake(x.as_subclass(Elsewhere))
        wanted = trained(spec)
        assert torch.equal(fake.scale, wanted.scale)


class Elsewhere(Tensor):
    """A tensor on a device that NumPy cannot read."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in ("numpy", "__array__", "tolist"):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        kwargs = kwargs or {}
        if name == "cpu" or (name == "to" and "cpu" in map(str, (*args[1:], *kwargs.values()))):
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs).as_subclass(Tensor)
        return super().__torch_function__(func, types, args, kwargs)  # type: ignore[no-untyped-call]


class TestLearnable:
    def test_the_first_batch_starts_the_scale_and_training_goes_on_from_there(self) -> None:
        fake = LearnableFakeQuantize(NarrowRangeObserver, quant_max=7)
        parameters = list(fake.parameters())
        optimizer = torch.optim.Adam(parameters, 0.005)  # made before the channels are known
        x = batches()[0]
        start = trained_once(x).scale
        for _ in range(150):
            optimizer.zero_grad()
            loss = (fake(x) - x).square().mean()
            loss.backward()
            optimizer.step()
        assert fake.scale is parameters[0]
        assert not fake.observer_enabled
        assert start.shape == fake.scale.shape
        error = (trained_once(x)(x) - x).square().mean()
        assert loss < 0.9 * error  # absmax / 7 is not the best step
        assert isinstance(fake.scale, nn.Parameter)

    def test_enable_observer_asks_for_a_new_start(self) -> None:
        fake = trained(MinMaxObserver, LearnableFakeQuantize)
        with torch.no_grad():
            fake.scale.fill_(7.0)
        fake.enable_observer()
        fake(batches()[0])
        assert fake.scale.item() < 1
        assert not fake.observer_enabled

    def test_a_scale_below_zero_comes_back_to_the_smallest_scale(self) -> None:
        fake = trained(MinMaxObserver, LearnableFakeQuantize)
        with torch.no_grad():
            fake.scale.fill_(-1.0)
        fake(batches()[0])
        assert 0 < fake.qparams().scale < 1e-6


def trained_once(x: Tensor) -> FakeQuantize:
    fake = FakeQuantize(NarrowRangeObserver, quant_max=7)
    fake(x)
    return fake


def test_one_instance_for_two_tensors_of_a_step_gives_each_its_gradient() -> None:
    """The second tensor moves the scale before the first one's backward."""
    fake = FakeQuantize(MinMaxObserver)
    fake(torch.tensor([0.0, 1.0]))
    near = torch.tensor([0.5, -3.0], requires_grad=True)
    far = torch.tensor([-100.0, 90.0], requires_grad=True)
    fake.disable_observer()
    first = fake(near)
    fake.enable_observer()
    second = fake(far)
    (first.sum() + second.sum()).backward()
    assert near.grad is not None
    assert far.grad is not None
    assert near.grad.tolist() == [1.0, 0.0]
    assert far.grad.tolist() == [1.0, 1.0]


def test_repr_tells_what_it_rounds_to() -> None:
    text = repr(trained(MinMaxObserver.with_args(quant_min=0, quant_max=100)))
    assert "MinMaxObserver(quant_max=100, quant_min=0)" in text
    assert "integers=0..100" in text


def test_qparams_of_a_whole_tensor_are_vectors_of_one_as_torchs() -> None:
    fake = FakeQuantize()
    fake(torch.tensor([-1.0, 3.0]))
    scale, zero_point = fake.calculate_qparams()
    assert (scale.shape, zero_point.shape) == ((1,), (1,))
    assert scale.item() == fake.scale.item()
    assert scale.data_ptr() != fake.scale.data_ptr()
