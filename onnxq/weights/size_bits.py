"""Bits of a static model's weights, chosen so that the file has the size asked for.

    noise(w, b)    of the outputs, where weight w alone is rounded to b bits; measured
    noise(w, 8)    noise(w, 4) * |W - W8|^2 / |W - W4|^2        Wb: rounded to b bits
    least sum of noise(w, b)    where the file is at most as large as asked for

Noises of weights add up at the outputs, as they are small and independent. 2 bits are measured as
4 are: their errors are no longer small, and cost ResNet-20 10 dB more than |W - W2|^2 says.
Algorithms that round by samples leave the order as it is.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from onnxq.affine import dequantize, quantize
from onnxq.core.arrays import Array, Singles
from onnxq.core.brief import size_text
from onnxq.core.knapsack import Knapsack, Option
from onnxq.dtypes import BYTE_BITS
from onnxq.errors import QConfigError
from onnxq.graph.saving import saved_bytes
from onnxq.graph.walk import node_name, walk
from onnxq.graph.weights import constant_array
from onnxq.observers.weight_observation import WeightKey, observe_weight
from onnxq.operator.nodes import tensor_of
from onnxq.ort import runtime
from onnxq.qconfig.weight_bits import BY_BITS, narrowed
from onnxq.samples.inputs import Batch
from onnxq.samples.state import State
from onnxq.static.insertion.decision import Quantize, weight_observer, weight_of
from onnxq.static.plan import plan
from onnxq.static.planning.constants import weight_key
from onnxq.static.prepare import prepared_again
from onnxq.static.prepared import Prepared
from onnxq.static.rewrite import rewrite
from onnxq.static.statistics import Statistics
from onnxq.weights.bit_noise import MEASURED_BATCHES, judged_outputs

CAST_BYTES = 130
"""Bytes of the Cast and the names of a packed weight."""
CHOICES = tuple(BY_BITS)
FEW = 4


def with_size(
    prepared: Prepared, statistics: Statistics, batches: Iterable[Batch], size: float
) -> Prepared:
    """The Prepared with bits for each weight, by which its file is as small as is wanted."""
    if not 0 < size <= 1:
        raise QConfigError(
            f"size: got {size:g}; wanted a part of the float model's size, above 0 and at most 1."
        )
    mapping = prepared.qconfig.set_weight_bits(BYTE_BITS)
    whole = prepared_again(prepared, prepared.model, mapping=mapping)
    written = saved_bytes(rewrite(whole, plan(whole, statistics)))
    keys = _keys(whole)
    elements = {name: constant_array(value).size for name, (value, _) in keys.items()}
    budget = size * saved_bytes(prepared.model) - (written - sum(elements.values()))
    least = sum(_cost(count, CHOICES[0]) for count in elements.values())
    if budget < least:
        raise QConfigError(
            f"size {size:g}: the weights that can have fewer bits take {size_text(least)} at "
            f"{CHOICES[0]} bits, and {size_text(max(int(budget), 0))} are left for them. Ask for "
            f"{size + (least - budget) / saved_bytes(prepared.model):.3f} or more."
        )
    noise = _noises(whole, keys, list(itertools.islice(batches, MEASURED_BATCHES)))
    options = [[Option(_cost(elements[n], b), noise[n][b]) for b in CHOICES] for n in keys]
    taken = Knapsack(options).least_noise(budget) if keys else []
    bits = {name: CHOICES[index] for name, index in zip(keys, taken, strict=True)}
    named = {name: spec for name, b in bits.items() if (spec := BY_BITS[b]) is not None}
    made = prepared_again(
        prepared, prepared.model, mapping=replace(mapping, tensors={**mapping.tensors, **named})
    )
    counts = [f"{list(bits.values()).count(b)} at {b} bits" for b in CHOICES]
    note = f"size {size:g}: of {len(bits)} weights {', '.join(counts)}"
    return replace(made, notes=(*made.notes, note))


def _cost(elements: int, bits: int) -> int:
    """Bytes of a weight in the file."""
    return -(-elements * bits // BYTE_BITS) + (CAST_BYTES if bits < BYTE_BITS else 0)


def _keys(prepared: Prepared) -> dict[str, tuple[ir.Value, WeightKey]]:
    """Weight that may have fewer bits -> its float constant, and how it is observed."""
    found: dict[str, tuple[ir.Value, WeightKey]] = {}
    for node, _ in walk(prepared.model.graph):
        decision = prepared.decisions[node_name(node)]
        if not isinstance(decision, Quantize) or decision.folded_into:
            continue
        if decision.rule.weight is None:
            continue
        value = weight_of(node, decision.rule)
        spec = weight_observer(node, decision.rule, prepared.qconfig)
        named = prepared.qconfig.for_tensor(str(value.name))
        if spec != named and narrowed(spec, FEW, tensor_of(value).size) != spec:
            key = weight_key(prepared, node, decision.rule)
            found[key.tensor] = value, key
    return found


def _noises(
    prepared: Prepared, keys: Mapping[str, tuple[ir.Value, WeightKey]], batches: Sequence[Batch]
) -> dict[str, dict[int, float]]:
    """Weight -> bits -> noise of the outputs over their power."""
    outputs = judged_outputs(prepared.model)
    wanted = _results(prepared, prepared.model, batches, outputs)
    found: dict[str, dict[int, float]] = {}
    for name, (value, key) in keys.items():
        w = constant_array(value)
        rounded = {bits: _rounded(w, key, bits) for bits in CHOICES}
        own = {bits: float(np.square(w - x, dtype=np.float64).sum()) for bits, x in rounded.items()}
        noise = found[name] = {}
        for bits in CHOICES[:-1]:
            model = prepared.model.clone()
            model.graph.initializers[name].const_value = ir.Tensor(rounded[bits], name=name)
            noise[bits] = _share(wanted, _results(prepared, model, batches, outputs))
        noise[BYTE_BITS] = noise[FEW] * own[BYTE_BITS] / own[FEW] if own[FEW] else 0.0
    return found


def _rounded(w: Singles, key: WeightKey, bits: int) -> Singles:
    spec = BY_BITS[bits]
    qparams, _ = observe_weight(w, key if spec is None else replace(key, observer=spec))
    real: Singles = dequantize(quantize(w, qparams), qparams).astype(np.float32)
    return real


def _results(
    prepared: Prepared, model: ir.Model, batches: Sequence[Batch], outputs: Sequence[str]
) -> list[list[Array]]:
    """Batch -> arrays of the outputs."""
    state = State(prepared.inputs, prepared.feedback)
    found = []
    with runtime.open_session(model, threads=1) as session:
        for batch in batches:
            every = session.run_named(state.feeds(batch))
            state.keep(every)
            found.append([every[name] for name in outputs])
    return found


def _share(wanted: Sequence[Sequence[Array]], got: Sequence[Sequence[Array]]) -> float:
    """Noise over power, the mean over outputs."""
    shares = []
    for ours, theirs in zip(zip(*wanted, strict=True), zip(*got, strict=True), strict=True):
        pairs = list(zip(ours, theirs, strict=True))
        noise = sum(float(np.square(y.astype(np.float64) - x).sum()) for x, y in pairs)
        power = sum(float(np.square(x.astype(np.float64)).sum()) for x, _ in pairs)
        shares.append(noise / power if power else 0.0)
    return float(np.mean(shares)) if shares else 0.0
