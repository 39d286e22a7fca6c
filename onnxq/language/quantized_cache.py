"""A decoder whose cache is int8: keys and values in a fourth of the memory.

    q = clip(round(k / s), -127, 127)    s = max |k| / 127, per channel of each head

GroupQueryAttention quantizes what it adds to the cache, and reads the integers as they are. Its
other inputs and outputs stay in float.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq.core.threads import workers
from onnxq.dtypes import INT8
from onnxq.errors import CalibrationError, ModelError, UnsupportedError
from onnxq.graph import io
from onnxq.graph.edit import FreeNames, all_nodes, new_initializer
from onnxq.graph.walk import value_name
from onnxq.language.decoder import IDS, Decoder
from onnxq.ort.cached_attention import is_cached_attention
from onnxq.ort.runtime import open_session
from onnxq.qparams import MIN_SCALE
from onnxq.samples import Samples, input_specs, open_samples
from onnxq.samples.samples import without_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import onnx

    from onnxq.core.arrays import Array, Singles

    Batch = Mapping[str, Array]

PAST, PRESENT, SCALES = (3, 4), (1, 2), (12, 13)
"""Slots of keys and of values in GroupQueryAttention: inputs, outputs, and inputs of scales."""
BITS = 8


def quantize_cache(
    model: str | Path | onnx.ModelProto | ir.Model,
    samples: str | Path | Samples | Batch | Iterable[Batch],
) -> ir.Model:
    """The decoder with keys and values of its cache in int8.

    Inputs past_key_values.I.key and .value and outputs present.I.key and .value become int8;
    weights stay as they are, in float, int8 or blocks.

    Args:
        model: a decoder with its cache in GroupQueryAttention, as the builder of onnxruntime-genai
            writes it; it is not changed.
        samples: texts whose keys and values scales are made of, as `onnxq.metrics.as_samples` makes
            them: a file or folder, arrays, or batches.
    Returns:
        The model, to be written by `onnxq.save`.
    Raises:
        ModelError: it is no decoder with a cache, or its cache is int8 already.
        UnsupportedError: another operator computes its attention.
        CalibrationError: unusable samples, none at all, or keys that are NaN or Inf.
    """
    source = io.load(model)
    decoder = Decoder.of(source)
    _check(source, decoder)
    given = without_state(Samples.of(samples), "quantize_cache")
    maxima = _maxima(source, decoder, open_samples(given, input_specs(source)))
    made = source.clone()
    names = FreeNames(made)
    for node in all_nodes(made):
        if is_cached_attention(node):
            _rewrite(node, maxima, names)
    return made


def _check(model: ir.Model, decoder: Decoder) -> None:
    """Raises ModelError or UnsupportedError where the cache cannot become int8."""
    if not decoder.keys:
        raise ModelError(
            "the model has no cache: wanted inputs past_key_values.I.key and .value. Export it "
            "with its cache (docs/tutorials/language-models.md)."
        )
    users = {use.node for v in model.graph.inputs if v.name in decoder.keys for use in v.uses()}
    others = sorted({node.op_type for node in users if not is_cached_attention(node)})
    if others:
        raise UnsupportedError(
            f"{', '.join(others)} reads the cache; ONNX Runtime has an int8 cache in "
            "GroupQueryAttention alone. Let the model builder of onnxruntime-genai write the "
            "decoder."
        )
    kinds = {v.dtype for v in model.graph.inputs if v.name in decoder.keys}
    if kinds != {ir.DataType.FLOAT}:
        found = ", ".join(sorted(str(kind).lower() for kind in kinds))
        raise ModelError(f"the cache is {found}; wanted float32. Give the float file.")


def _maxima(model: ir.Model, decoder: Decoder, batches: Iterable[Batch]) -> dict[str, Singles]:
    """Largest magnitude per output of the cache, float32 (kv_heads, 1, head)."""
    found: dict[str, Singles] = {}
    with workers(1), open_session(model, threads=1) as session:
        for batch in batches:
            if IDS in batch:
                decoder.check(batch[IDS])
            outputs = session.run_named(batch)
            for name in decoder.keys.values():
                if not outputs[name].size:
                    continue
                seen = np.abs(outputs[name]).max(axis=(0, 2))[:, np.newaxis]
                found[name] = np.maximum(found.get(name, seen), seen)
    for name in decoder.keys.values():
        if name not in found:
            raise CalibrationError("samples have no token. Give texts of the kind it is for.")
        if not np.isfinite(found[name]).all():
            raise CalibrationError(f"tensor '{name}' holds NaN or Inf; look at the samples.")
    return found


def _rewrite(node: ir.Node, maxima: Mapping[str, Singles], names: FreeNames) -> None:
    """Lets a node keep its cache in int8."""
    node.resize_inputs(max(len(node.inputs), SCALES[-1] + 1))
    for kind, past, present, slot in zip("kv", PAST, PRESENT, SCALES, strict=True):
        before, after = node.inputs[past], node.outputs[present]
        assert before is not None, "the cache is an input of the model"
        before.type = after.type = ir.TensorType(ir.DataType.INT8)  # clones share types
        scale = np.maximum(maxima[value_name(after)] / np.float32(INT8.qmax), MIN_SCALE)
        name = names.value(f"{value_name(after)}_scale")
        assert node.graph is not None
        graph = node.graph
        assert isinstance(graph, ir.Graph)
        stored = new_initializer(graph, name, ir.tensor(np.asarray(scale, np.float32), name=name))
        node.replace_input_with(slot, stored)
        node.attributes.add(ir.AttrString(f"{kind}_quant_type", "PER_CHANNEL"))
    node.attributes.add(ir.AttrInt64("kv_cache_bit_width", BITS))
