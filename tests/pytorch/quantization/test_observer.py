from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from onnxq import observers
from onnxq.errors import UnsupportedError
from onnxq.pytorch.quantization.observer import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    NoopObserver,
    PerChannelMinMaxObserver,
    RecordingObserver,
    default_observer,
    of_spec,
)

BATCHES = [torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(i)) * 3 for i in range(4)]
KINDS: list[Any] = [
    MinMaxObserver,
    PerChannelMinMaxObserver.with_args(ch_axis=1),
    MovingAverageMinMaxObserver.with_args(averaging_constant=0.25),
    MovingAveragePerChannelMinMaxObserver.with_args(ch_axis=2, averaging_constant=0.25),
    MinMaxObserver.with_args(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric),
    HistogramObserver,
    default_observer,
]


@pytest.mark.parametrize("maker", KINDS, ids=repr)
def test_a_module_decides_as_the_observer_of_its_name(maker: Any) -> None:
    module = maker()
    observer = module.spec()
    for index, batch in enumerate(BATCHES):
        assert module(batch) is batch
        observer.observe(batch.numpy(), index)
    scale, zero_point = module.calculate_qparams()
    wanted = observer.calculate_qparams()
    assert np.array_equal(scale.numpy(), np.atleast_1d(wanted.scale))
    assert np.array_equal(zero_point.numpy(), np.atleast_1d(wanted.zero_point))


@pytest.mark.parametrize("maker", KINDS, ids=repr)
def test_what_was_seen_is_in_the_state_dict(maker: Any) -> None:
    seen, loaded = maker(), maker()
    for batch in BATCHES:
        seen(batch)
    loaded.load_state_dict(copy.deepcopy(seen.state_dict()))
    assert torch.equal(loaded.min_val, seen.min_val)
    for ours, theirs in zip(loaded.calculate_qparams(), seen.calculate_qparams(), strict=True):
        assert torch.equal(ours, theirs)


def test_observers_without_ranges_say_no_scale() -> None:
    recording = RecordingObserver()
    recording(BATCHES[0])
    assert torch.equal(recording.get_tensor_value()[0], BATCHES[0])
    for observer in (recording, NoopObserver()):
        assert observer(BATCHES[0]) is BATCHES[0]
        with pytest.raises(UnsupportedError, match="computes no scale"):
            observer.calculate_qparams()


def test_every_spec_of_a_documented_observer_has_a_module() -> None:
    spec = observers.PerChannelMinMaxObserver.with_args(
        dtype="int8", qscheme="per_channel_symmetric"
    )
    made = of_spec(spec)()
    assert (made.dtype, made.qscheme) == (torch.qint8, torch.per_channel_symmetric)
    with pytest.raises(UnsupportedError, match="EntropyObserver has no module"):
        of_spec(observers.EntropyObserver.with_args())


def test_a_histogram_of_few_bins_has_as_many_as_it_needs() -> None:
    few, least = HistogramObserver(bins=8), HistogramObserver(bins=64)
    x = torch.randn(100, generator=torch.Generator().manual_seed(0))
    few(x), least(x)
    assert few.calculate_qparams() == least.calculate_qparams()


def test_a_histogram_says_its_bins_and_a_noop_its_operator() -> None:
    assert HistogramObserver(bins=512).bins == 512
    assert HistogramObserver().bins == observers.HistogramObserver().bins
    assert NoopObserver(torch.float16, "name").custom_op == "name"
