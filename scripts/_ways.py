"""Ways to quantize a float file: onnxq's default and its other ways, onnxruntime.quantization's."""

from __future__ import annotations

import enum
import warnings
from typing import TYPE_CHECKING

import numpy as np

import onnxq
from onnxq.graph.io import save
from onnxq.graph.walk import node_name, walk
from onnxq.observers import MinMaxObserver, NarrowRangeObserver
from onnxq.operator.nodes import is_constant
from onnxq.qconfig import Choice, QConfig, QConfigMapping, default_qconfig_mapping
from scripts._peer import dynamic_peer, static_peer
from scripts._timing import session

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from onnxq.core.arrays import Array

    Batch = Mapping[str, Array]

TARGET = "x86-vnni"


class Way(enum.Enum):
    """A file beside the float one; the value heads its columns."""

    DEFAULT = "default"
    PORTABLE = "portable"
    INTEGERS = "all integers"
    LINEAR_LAYERS = "linear layers only"
    DYNAMIC = "dynamic"
    SMALL = "dynamic, size"
    PEER_STATIC = "quantize_static"
    PEER_DYNAMIC = "quantize_dynamic"


DYNAMIC = {Way.DYNAMIC: "speed", Way.SMALL: "size"}


def write(
    way: Way,
    source: Path,
    calibration: Sequence[Batch],
    path: Path,
    feedback: Mapping[str, str] | None = None,
) -> None:
    """Writes the quantized file; whatever the peer raises passes.

    Args:
        way: which one.
        source: the float file.
        calibration: batches.
        path: of the file.
        feedback: {output: input} of state that goes round; the peer is given what it was in float.
    """
    if way is Way.PEER_STATIC:
        return static_peer(source, path, singly(with_state(source, calibration, feedback)))
    if way is Way.PEER_DYNAMIC:
        return dynamic_peer(source, path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it warns of is in the table
        if way in DYNAMIC:
            made = onnxq.quantize_dynamic(source, target=TARGET, objective=DYNAMIC[way])
            return save(made, path)
        qconfigs = {
            Way.INTEGERS: lambda: default_qconfig_mapping().set_choice(Choice.ALL_INTEGERS),
            Way.LINEAR_LAYERS: lambda: linear_layers_alone(source),
        }
        made = onnxq.quantize(
            source,
            onnxq.Samples(list(calibration), feedback=feedback or {}),
            qconfig=qconfigs[way]() if way in qconfigs else None,
            target="portable" if way is Way.PORTABLE else TARGET,
        )
        return save(made, path)


def linear_layers_alone(source: Path) -> QConfigMapping:
    """MatMul and Gemm with constant weights in integers, by MinMax; everything else in float."""
    linear = QConfig(MinMaxObserver.with_args(), NarrowRangeObserver.with_args())
    mapping = QConfigMapping(None)
    for node, _ in walk(onnxq.prepare(source).model.graph):
        if node.op_type in {"MatMul", "Gemm"} and is_constant(node, 1):
            mapping = mapping.set_node(node_name(node), linear)
    return mapping


def with_state(
    source: Path, batches: Sequence[Batch], feedback: Mapping[str, str] | None
) -> Sequence[Batch]:
    """The batches with the state that float handed on to each."""
    if not feedback:
        return batches
    floats = session(source)
    names = [output.name for output in floats.get_outputs()]
    told: list[Batch] = []
    state: Batch = {}
    for batch in batches:
        told.append({**state, **batch})
        outputs = dict(zip(names, floats.run(None, told[-1]), strict=True))
        state = {fed: np.asarray(outputs[output]) for output, fed in feedback.items()}
    return told


def singly(batches: Sequence[Batch]) -> Iterator[dict[str, Array]]:
    """Their samples one at a time, as the peer's examples have them; numbers are given to each.

    Batches whose inputs begin with axes of unlike sizes are one sample each.
    """
    for batch in batches:
        sizes = {len(x) for x in batch.values() if x.ndim}
        if len(sizes) > 1:
            yield dict(batch)
            continue
        for i in range(max(sizes, default=1)):
            yield {name: x[i : i + 1] if x.ndim else x for name, x in batch.items()}
