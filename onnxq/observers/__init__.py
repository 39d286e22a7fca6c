"""Observers: each watches one tensor over the calibration samples, and then says its qparams.

    spec = HistogramObserver.with_args(dtype="qint8", qscheme="per_tensor_symmetric")   # a value
    observer = spec()
    for index, batch in enumerate(batches):
        observer.observe(batch, index)
    qparams = observer.calculate_qparams()

An observer of your own: subclass Observer, implement its five abstract methods.
"""

from onnxq.observers._base import Observer, ObserverBase, ObserverSpec, find_observer
from onnxq.observers.amax import AmaxObserver
from onnxq.observers.channel_mean import ChannelMeanObserver
from onnxq.observers.fixed_qparams import FixedQParamsObserver
from onnxq.observers.float_histogram import FloatHistogramObserver
from onnxq.observers.histogram import (
    ChannelHistogramObserver,
    EntropyObserver,
    HistogramObserver,
    PercentileObserver,
)
from onnxq.observers.least_error import LeastErrorObserver
from onnxq.observers.minmax import MinMaxObserver, PerChannelMinMaxObserver
from onnxq.observers.moving_average import (
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
)
from onnxq.observers.narrow_range import NarrowRangeObserver
from onnxq.observers.normalization import NormalizationObserver
from onnxq.observers.recording import NoopObserver, RecordingObserver
from onnxq.observers.step_size import StepSizeObserver

default_observer = MinMaxObserver.with_args(reduce_range=True)
default_weight_observer = MinMaxObserver.with_args(dtype="qint8", qscheme="per_tensor_symmetric")

__all__ = [
    "AmaxObserver",
    "ChannelHistogramObserver",
    "ChannelMeanObserver",
    "EntropyObserver",
    "FixedQParamsObserver",
    "FloatHistogramObserver",
    "HistogramObserver",
    "LeastErrorObserver",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "MovingAveragePerChannelMinMaxObserver",
    "NarrowRangeObserver",
    "NoopObserver",
    "NormalizationObserver",
    "Observer",
    "ObserverBase",
    "ObserverSpec",
    "PerChannelMinMaxObserver",
    "PercentileObserver",
    "RecordingObserver",
    "StepSizeObserver",
    "default_observer",
    "default_weight_observer",
    "find_observer",
]
