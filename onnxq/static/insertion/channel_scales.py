"""A range per channel, at no cost in the graph, for tensors that depthwise convolutions alone read.

    T'[c] = g[c] * T[c]     rows c of the producer's weight and bias times g[c],
                            rows of the readers that see channel c divided by g[c]

T' has one scale, as ONNX Runtime's kernels want; with g[c] = top / absmax(T[c]) every channel uses
all of its integers, where T would leave a weak channel a few. Weights have a scale per row, so that
the factors go into these scales: not one integer of a weight changes. Networks that were trained
long have expand convolutions whose channels differ by orders of magnitude (Nagel et al. 2019,
"Data-Free Quantization Through Weight Equalization and Bias Correction", section 4.1, scale the
same pair of layers, from the weights' ranges).

Only tensors with a lower bound of exactly 0, from a Relu or a Clip, qualify: g[c] > 0 goes through
a Relu, and the upper bound becomes the saturation of the integers, at absmax(T[c]), which is within
the Clip's bound.
"""

import base64
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq.graph.walk import node_name, value_name, walk
from onnxq.observers import ChannelHistogramObserver, HistogramObserver, Observer, ObserverSpec
from onnxq.qconfig import QConfigMapping
from onnxq.qparams import QParams
from onnxq.static.insertion.decision import Quantize, weight_observer
from onnxq.static.insertion.insert_quantizers import QuantizerInsertion

CHANNEL_AXIS = 1  # of what a convolution writes and reads
CHANNEL_SCALES_KEY = "onnxq.channel_scale"
"""Metadata of a quantized tensor: one factor per channel, as `written_channel_scales`."""
UNCLAMPED = (float("-inf"), float("inf"))
MAX_CHANNEL_SCALE = 1024.0  # a channel that hardly ever spoke is not blown up beyond 10 bits


@dataclass(frozen=True, slots=True)
class ChannelScale:
    """A tensor that may carry a factor per channel.

    Attributes:
        producer: the node whose weight rows are multiplied.
        readers: the nodes whose weight rows are divided.
    """

    tensor: str
    producer: str
    readers: tuple[str, ...]


def find_channel_scales(
    model: ir.Model, insertion: QuantizerInsertion, qconfig: QConfigMapping
) -> dict[str, ChannelScale]:
    """Tensor -> ChannelScale, for every tensor that qualifies; one sweep."""
    found: dict[str, ChannelScale] = {}
    nodes = [node for node, _ in walk(model.graph)]
    values = {value_name(v): v for node in nodes for v in node.outputs if v.name}
    sizes: dict[str, int] = {}
    for tensor in insertion.quantized:
        sizes[insertion.root(tensor)] = sizes.get(insertion.root(tensor), 0) + 1
    for node in nodes:
        decision = insertion.decisions[node_name(node)]
        if not isinstance(decision, Quantize) or decision.folded_into or not decision.results:
            continue
        tensor = decision.results[0]
        if not _has_rows(node, decision, qconfig) or sizes[insertion.root(tensor)] > 1:
            continue
        if insertion.clamps.get(tensor, UNCLAMPED)[0] != 0:
            continue
        if not _is_histogram(tensor, insertion, qconfig):
            continue
        readers = _channelwise_readers(values[tensor], insertion, qconfig)
        if readers:
            found[tensor] = ChannelScale(tensor, node_name(node), readers)
    return found


def _has_rows(node: ir.Node, decision: Quantize, qconfig: QConfigMapping) -> bool:
    """Whether the node's weight has a scale per row, and rows are the result's channels."""
    if decision.rule.weight is None or decision.rule.weight.axis != 0:
        return False
    return weight_observer(node, decision.rule, qconfig)().qscheme.per_channel


def _is_histogram(tensor: str, insertion: QuantizerInsertion, qconfig: QConfigMapping) -> bool:
    """Other observers are documented to give the qparams that they give."""
    override = qconfig.for_tensor(tensor)
    entry = qconfig.for_node(*insertion.owners[tensor])
    if isinstance(override, ObserverSpec):
        return override.name == HistogramObserver.__name__
    return entry is not None and entry.activation_observer.name == HistogramObserver.__name__


def _channelwise_readers(
    value: ir.Value, insertion: QuantizerInsertion, qconfig: QConfigMapping
) -> tuple[str, ...]:
    """Names of the readers, if each is a depthwise convolution in integers; else nothing."""
    readers = []
    for use in value.uses():
        decision = insertion.decisions[node_name(use.node)]
        if not isinstance(decision, Quantize) or not decision.rule.channelwise:
            return ()
        if use.idx not in decision.rule.activations or not _has_rows(use.node, decision, qconfig):
            return ()
        readers.append(node_name(use.node))
    return () if value.is_graph_output() else tuple(readers)


def channel_observer(spec: ObserverSpec) -> ObserverSpec:
    """The HistogramObserver's spec, as one that keeps each channel's absmax too."""
    return ChannelHistogramObserver.with_args(**dict(spec.args), ch_axis=CHANNEL_AXIS)


def channel_scales_of(observer: Observer, qparams: QParams) -> npt.NDArray[np.float32]:
    """g[c] = top / min(top, absmax[c]), at most MAX_CHANNEL_SCALE.

    1 for a channel that was always 0.

    Args:
        observer: a ChannelHistogramObserver that has seen the tensor.
        qparams: its choice for the whole tensor; top is what its last integer stands for.
    Returns:
        float32 (channels,), each at least 1.
    """
    assert isinstance(observer, ChannelHistogramObserver)
    steps = qparams.dtype.qmax - int(qparams.zero_point)
    top = np.float32(qparams.scale) * np.float32(steps)
    absmax = np.minimum(observer.channel_absmax, top)
    channel_scales = top / np.maximum(absmax, top / np.float32(MAX_CHANNEL_SCALE))
    return np.where(absmax > 0, channel_scales, np.float32(1)).astype(np.float32)


def written_channel_scales(channel_scales: Iterable[float]) -> str:
    """Text of the factors: their float32 bytes, little-endian, in base 85 (5 characters each)."""
    return base64.b85encode(np.array(list(channel_scales), "<f4").tobytes()).decode()


def read_channel_scales(text: str) -> tuple[float, ...]:
    """The factors of a text of `written_channel_scales`."""
    return tuple(np.frombuffer(base64.b85decode(text), "<f4").astype(float).tolist())
