from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import pytest

import onnxq.observers as public
from onnxq.dtypes import UINT8
from onnxq.errors import CalibrationError, QConfigError
from onnxq.observers import HistogramObserver, MinMaxObserver, Observer, ObserverSpec, find_observer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxq.qparams import QParams

SPECS = [
    public.MinMaxObserver.with_args(),
    public.MinMaxObserver.with_args(dtype="qint8", qscheme="per_tensor_symmetric"),
    public.MovingAverageMinMaxObserver.with_args(averaging_constant=0.1),
    public.PerChannelMinMaxObserver.with_args(ch_axis=1),
    public.MovingAveragePerChannelMinMaxObserver.with_args(ch_axis=1),
    public.HistogramObserver.with_args(bins=512),
    public.ChannelHistogramObserver.with_args(ch_axis=1, bins=512),
    public.ChannelMeanObserver.with_args(),
    public.ChannelMeanObserver.with_args(ch_axis=1),
    public.FloatHistogramObserver.with_args(),
    public.NormalizationObserver.with_args(),
    public.NormalizationObserver.with_args(axis=2, ch_axis=1, epsilon=1e-3),
    public.NormalizationObserver.with_args(axis=2, ch_axis=1, groups=3),
    public.NormalizationObserver.with_args(centred=False),
    public.PercentileObserver.with_args(percentile=99.0),
    public.EntropyObserver.with_args(bins=512),
    public.NarrowRangeObserver.with_args(ch_axis=1, quant_max=64),
    public.LeastErrorObserver.with_args(ch_axis=1, dtype="qint8"),
    public.LeastErrorObserver.with_args(ch_axis=-1, dtype="uint4", qscheme="per_channel_affine"),
    public.AmaxObserver.with_args(ch_axis=1, scale_amax=0.5),
    public.AmaxObserver.with_args(method="percentile", percentile=99.0),
    public.AmaxObserver.with_args(method="entropy", quant_max=7),
    public.RecordingObserver.with_args(),
    public.StepSizeObserver.with_args(ch_axis=1),
    public.StepSizeObserver.with_args(ch_axis=None, quant_max=127),
    public.NoopObserver.with_args(),
    public.FixedQParamsObserver.with_args(scale=0.25, zero_point=3),
]
"""One or more of each observer: the contract below runs over all of them."""
WITHOUT_QPARAMS = ("RecordingObserver", "NoopObserver")


def batches(count: int = 6) -> list[npt.NDArray[np.float32]]:
    rng = np.random.default_rng(7)
    return [rng.normal(size=(4, 3, 5)).astype(np.float32) * 2.0**i for i in range(count)]


def observed(spec: ObserverSpec, indices: list[int]) -> Observer:
    observer, data = spec(), batches()
    for index in indices:
        observer.observe(data[index], index)
    return observer


def assert_same_state(left: Observer, right: Observer) -> None:
    a, b = left.state(), right.state()
    assert a.keys() == b.keys()
    for key in a:
        assert a[key].dtype == b[key].dtype
        np.testing.assert_array_equal(a[key], b[key])


def test_every_public_observer_is_held_to_the_contract() -> None:
    classes = [getattr(public, name) for name in public.__all__]
    observers = {c.__name__ for c in classes if isinstance(c, type) and issubclass(c, Observer)}
    assert observers - {"Observer"} == {spec.name for spec in SPECS}


@pytest.mark.parametrize("spec", SPECS, ids=repr)
class TestEveryObserver:
    def test_state_does_not_depend_on_split_or_order(self, spec: ObserverSpec) -> None:
        whole = observed(spec, [0, 1, 2, 3, 4, 5])
        backwards = observed(spec, [5, 4, 3, 2, 1, 0])
        parts = [observed(spec, part) for part in ([4, 0], [5], [], [2, 1, 3])]
        left = parts[0].merge(parts[1]).merge(parts[2]).merge(parts[3])
        right = parts[3].merge(parts[2].merge(parts[1].merge(parts[0])))
        for other in (backwards, left, right):
            assert_same_state(whole, other)

    def test_merge_leaves_both_as_they_were(self, spec: ObserverSpec) -> None:
        left, right = observed(spec, [0, 1]), observed(spec, [4])
        left.merge(right)
        assert_same_state(left, observed(spec, [0, 1]))
        assert_same_state(right, observed(spec, [4]))

    def test_restored_state_goes_on_as_the_original(self, spec: ObserverSpec) -> None:
        observer = observed(spec, [0, 1, 2])
        restored = spec.restore(observer.state())
        assert restored.spec == spec
        assert_same_state(observer, restored)
        for other in (observer, restored):
            other.observe(batches()[5], 5)
        assert_same_state(observer, restored)

    def test_state_holds_arrays_before_any_data_and_after(self, spec: ObserverSpec) -> None:
        for observer in (spec(), observed(spec, [0]), observed(spec, [0]).merge(spec())):
            assert {type(array) for array in observer.state().values()} <= {np.ndarray}

    def test_state_of_an_observer_that_saw_nothing_restores(self, spec: ObserverSpec) -> None:
        assert_same_state(spec(), spec.restore(spec().state()))

    def test_empty_batch_changes_no_qparams(self, spec: ObserverSpec) -> None:
        if spec.name in WITHOUT_QPARAMS:
            return
        observer = observed(spec, [0])
        before = observer.calculate_qparams()
        observer.observe(np.empty((0, 3, 5), np.float32), 1)
        assert observer.calculate_qparams() == before

    def test_warns_and_gives_the_default_before_any_data(self, spec: ObserverSpec) -> None:
        if spec.name in (*WITHOUT_QPARAMS, "FixedQParamsObserver"):
            return
        with pytest.warns(UserWarning, match="has seen no data"):
            qparams = spec().calculate_qparams()
        assert (qparams.scale == 1).all()
        assert (qparams.zero_point == 0).all()

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39])
    def test_refuses_what_is_not_finite_and_names_the_batch(
        self, spec: ObserverSpec, value: float
    ) -> None:
        if spec.name in WITHOUT_QPARAMS:
            return
        observer, x = spec(), np.ones((4, 3, 5))
        x[1, 2, 3] = value  # 1e39 is finite in float64 only
        with pytest.raises(CalibrationError, match=r"batch 17: 1 of 60 values.*\[1, 2, 3\]"):
            observer.observe(x, 17)
        assert_same_state(observer, spec())  # a refused batch leaves no trace

    def test_compacting_after_each_batch_changes_no_qparams(self, spec: ObserverSpec) -> None:
        if spec.name in WITHOUT_QPARAMS:
            return
        observer, sizes = spec(), []
        for index, x in enumerate(batches()):
            observer.observe(x, index)
            observer.compact()
            sizes.append(sum(array.size for array in observer.state().values()))
        assert observer.calculate_qparams() == observed(spec, [*range(6)]).calculate_qparams()
        if observer.needs_range_alone:
            assert len(set(sizes)) == 1, "compact leaves a state of fixed size"

    def test_min_and_max_of_a_batch_stand_for_it_where_they_are_all_that_counts(
        self, spec: ObserverSpec
    ) -> None:
        if not find_observer(spec.name).needs_range_alone:
            return
        observer = spec()
        others = (0, 2) if observer.qscheme.per_channel else (0, 1, 2)
        for index, x in enumerate(batches()):
            low, high = (f(x, axis=others, keepdims=True) for f in (np.min, np.max))
            observer.observe(np.concatenate([low, high]), index)
        assert_same_state(observer, observed(spec, [*range(6)]))

    def test_spec_survives_json(self, spec: ObserverSpec) -> None:
        assert ObserverSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec

    def test_spec_makes_observers_that_know_it(self, spec: ObserverSpec) -> None:
        assert spec().spec == spec
        assert hash(spec().spec) == hash(spec)

    def test_refuses_to_merge_with_another_spec(self, spec: ObserverSpec) -> None:
        other = MinMaxObserver.with_args(quant_min=0, quant_max=100)()
        with pytest.raises(CalibrationError, match="cannot merge"):
            spec().merge(other)

    def test_travels_to_another_process(self, spec: ObserverSpec) -> None:
        observer = observed(spec, [0, 3])
        assert_same_state(observer, pickle.loads(pickle.dumps(observer)))


class AbsMeanObserver(Observer):
    """An observer of the user's own: the range is [-k, k] times the mean absolute value.

    Sums are kept as integers of 2^-40, since float sums depend on the order.
    """

    def __init__(self, factor: float = 4.0) -> None:
        super().__init__("qint8", "per_tensor_symmetric")
        self.factor = factor
        self.total, self.count = 0, 0

    def observe(self, x: npt.NDArray[np.generic], index: int) -> None:
        if not np.isfinite(x).all():
            raise CalibrationError(f"batch {index}: not finite")
        self.total += int(np.rint(np.abs(x).astype(np.float64) * 2.0**40).sum())
        self.count += x.size

    def merge(self, other: Self) -> Self:
        merged = self._fresh_for(other)
        merged.total, merged.count = self.total + other.total, self.count + other.count
        return merged

    def calculate_qparams(self) -> QParams:
        if not self.count:
            return self.range.default()
        end = np.float32(self.factor * self.total / self.count / 2.0**40)
        return self.range.qparams(-end, end)

    def state(self) -> dict[str, npt.NDArray[np.generic]]:
        return {"total": np.asarray(self.total), "count": np.asarray(self.count)}

    def load_state(self, state: Mapping[str, npt.NDArray[np.generic]]) -> None:
        self.total, self.count = int(state["total"]), int(state["count"])


def test_a_subclass_is_an_observer_by_its_definition_alone() -> None:
    spec = ObserverSpec.from_dict({"observer": "AbsMeanObserver", "factor": 2.0})
    assert spec == AbsMeanObserver.with_args(factor=2.0)
    merged = observed(spec, [0]).merge(observed(spec, [1]))
    assert_same_state(merged, observed(spec, [1, 0]))
    assert spec.restore(merged.state()).calculate_qparams() == merged.calculate_qparams()


def test_unknown_observer_is_an_error_with_the_nearest() -> None:
    with pytest.raises(QConfigError, match="Did you mean 'HistogramObserver'"):
        find_observer("HistogrammObserver")


def test_two_observers_of_one_name_are_an_error() -> None:
    with pytest.raises(QConfigError, match="'MinMaxObserver' exists already"):
        type("MinMaxObserver", (AbsMeanObserver,), {})


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"averagingconstant": 0.1}, "Did you mean 'averaging_constant'"),
        ({"factory_kwargs": None}, "has no meaning here"),
        ({"is_dynamic": True}, "has no meaning here"),
        ({"dtype": "quint9"}, "Did you mean 'quint8'"),
        ({"qscheme": "per_tensor_afine"}, "Did you mean 'per_tensor_affine'"),
        ({"eps": object()}, "can be saved"),
    ],
)
def test_wrong_arguments_are_named(args: dict[str, object], message: str) -> None:
    with pytest.raises(QConfigError, match=message):
        public.MovingAverageMinMaxObserver.with_args(**args)


def test_wrong_argument_of_the_constructor_is_named_too() -> None:
    arguments: dict[str, Any] = {"reduced_range": True}
    with pytest.raises(QConfigError, match="Did you mean 'reduce_range'"):
        MinMaxObserver(**arguments)


def test_defaults_do_not_tell_specs_apart() -> None:
    assert MinMaxObserver.with_args(dtype="quint8") == MinMaxObserver.with_args()
    assert MinMaxObserver(UINT8).spec == MinMaxObserver.with_args()


def test_with_args_goes_on_from_a_spec() -> None:
    spec = HistogramObserver.with_args(bins=128).with_args(reduce_range=True)
    assert repr(spec) == "HistogramObserver(bins=128, reduce_range=True)"
    assert spec.accepts("bins")
    assert not spec.accepts("ch_axis")


def test_calling_observes_and_returns_the_tensor() -> None:
    observer = public.MovingAverageMinMaxObserver()
    by_hand = public.MovingAverageMinMaxObserver()
    for index, x in enumerate(batches()):
        assert observer(x) is x
        by_hand.observe(x, index)
    assert_same_state(observer, by_hand)


def test_documented_defaults() -> None:
    assert public.default_observer == MinMaxObserver.with_args(reduce_range=True)
    weight = public.default_weight_observer()
    assert (weight.dtype.name, weight.qscheme.value) == ("int8", "per_tensor_symmetric")
    assert public.ObserverBase is public.Observer


def test_public_names_are_complete_and_sorted() -> None:
    assert public.__all__ == sorted(public.__all__)
    own = {c.__name__ for c in Observer.__subclasses__() if c.__module__.startswith("onnxq.")}
    assert own <= set(public.__all__)


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torch_dtypes_and_qschemes_are_understood() -> None:
    import torch

    given = MinMaxObserver.with_args(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric)
    assert given == public.default_weight_observer
    noop = public.NoopObserver.with_args(dtype=torch.float16)
    assert noop == public.NoopObserver.with_args()
