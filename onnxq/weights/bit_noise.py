"""Noise that each layer brings to the outputs, by the bits of its weight: measured and predicted.

    carried(n)    noise of the outputs where layer n alone has integers of REFERENCE bits,
    measured own(n, b)     tr((W - Q) H (W - Q)'), noise at the layer itself, from the Hessian H
    noise(n, b)   carried(n) * own(n, b) / own(n, REFERENCE)

One walk measures `carried` of all layers: each has a cache of its own, which leaves the float
model's behind that layer. All are rounded to nearest: it is their order that matters.
"""

import contextlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from onnxq.core.arrays import Reals, Singles
from onnxq.core.threads import workers
from onnxq.graph.walk import node_name, value_name, walk
from onnxq.qparams.group_spec import BITS, GroupSpec, Method
from onnxq.samples.inputs import Batch
from onnxq.weights.find_integers import find_integers, parts_of
from onnxq.weights.hessian import PartHessians, noise_in
from onnxq.weights.quantized_weights_file import QuantizedWeightsFile
from onnxq.weights.sequential import SequentialPipeline, last_reads, stages_of
from onnxq.weights.solve import Nearest
from onnxq.weights.subgraphs import ActivationCache, SpilledArrays, Subgraph, cut, opened
from onnxq.weights.weight_plan import Groupwise, WeightPlan
from onnxq.weights.write_weights import FLOAT_ACCURACY, GroupwiseWriter

REFERENCE = 4
"""Bits whose noise is measured: enough to stand out of rounding, too few to be lost in it."""
MEASURED_BATCHES = 2
"""Batches that caches run where there are many."""


@dataclass(frozen=True, slots=True)
class BitNoise:
    """Noise of a layer by the bits of its weight.

    Attributes:
        own: bits -> mean square of the error of its results, over their own.
        carried: noise of the outputs over their power, with REFERENCE bits.
    """

    own: Mapping[int, float]
    carried: float

    def at(self, bits: int) -> float:
        """Noise of the outputs over their power."""
        reference = self.own[REFERENCE]
        return self.carried * self.own[bits] / reference if reference else 0.0


def bit_noise(
    model: ir.Model, plan: WeightPlan, batches: Iterable[Batch], few: Sequence[Batch]
) -> dict[str, BitNoise]:
    """Layer -> its noise by bits.

    `few`: some of them, that the caches run: each layer costs as many runs of what is behind
    it.
    """
    own = own_noise(model, plan, batches)
    alone = [{name: plan.quantized[name].spec} for name in plan.quantized]
    reference = [{n: s.at(REFERENCE) for n, s in each.items()} for each in alone]
    measured = output_noise(model, plan, few, reference)
    return {n: BitNoise(own[n], c) for n, c in zip(plan.quantized, measured, strict=True)}


def own_noise(
    model: ir.Model, plan: WeightPlan, batches: Iterable[Batch]
) -> dict[str, dict[int, float]]:
    """Layer -> bits -> mean square of the error of its results, over their own; rounded."""
    nodes = {node_name(node): node for node, _ in walk(model.graph)}
    found = {}
    for group, inputs in SequentialPipeline(model, plan, batches).groups([*plan.quantized]):
        hessians = None if inputs is None else inputs.all()
        for name in group.nodes:
            found[name] = _own(nodes[name], plan.quantized[name], hessians)
    return found


def _own(node: ir.Node, decision: Groupwise, hessians: PartHessians | None) -> dict[int, float]:
    signal, noise = 0.0, dict.fromkeys(BITS, 0.0)
    solve = Nearest()
    with workers(1):
        for part in parts_of(node, decision):
            signal += _power(part.rows, hessians)
            for bits in BITS:
                integers = solve(part.rows, part.spec.at(bits))
                noise[bits] += _power(part.rows - integers.dequantized, hessians)
    return {bits: each / signal if signal else 0.0 for bits, each in noise.items()}


def _power(rows: Singles, hessians: PartHessians | None) -> float:
    """tr(W H W'), H the Hessian of the inputs; the identity where there are none."""
    seen: Reals = rows.astype(np.float64)
    return float(np.square(seen).sum()) if hessians is None else noise_in(seen, hessians)


def output_noise(
    model: ir.Model,
    plan: WeightPlan,
    batches: Sequence[Batch],
    variants: Sequence[Mapping[str, GroupSpec]],
) -> list[float]:
    """Noise of the outputs over their power, of each variant of the model.

    `variants`: layer -> spec of its integers, rounded to nearest; all others stay in float.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(workers(1))
        return _Variants(model, plan, batches, variants, stack).noises()


class _Variants:
    """Caches of all variants, beside that of the float model."""

    def __init__(
        self,
        model: ir.Model,
        plan: WeightPlan,
        batches: Sequence[Batch],
        variants: Sequence[Mapping[str, GroupSpec]],
        stack: contextlib.ExitStack,
    ) -> None:
        self.model, self.plan, self.batches = model, plan, batches
        self.variants, self.stack = variants, stack
        self.stages = stages_of(model, plan)
        self.last = last_reads(self.stages)
        self.outputs = judged_outputs(model)
        self.nodes = {node_name(node): node for node in model.graph}
        feeds = stack.enter_context(SpilledArrays())
        for batch in batches:
            for tensor, array in batch.items():
                feeds.add(tensor, array)
        self.floats = stack.enter_context(ActivationCache(feeds, len(batches)))
        self.caches: dict[int, ActivationCache] = {}

    def noises(self) -> list[float]:
        """Noise of each variant at the outputs."""
        for index, stage in enumerate(self.stages):
            if stage.subgraph is None:
                continue
            gives = [t for t in stage.subgraph.gives if t in self.last or t in self.outputs]
            if gives:
                self._advance(stage.subgraph, gives)
            for tensor in stage.subgraph.reads:
                if self.last[tensor] == index and tensor not in self.outputs:
                    for cache in (self.floats, *self.caches.values()):
                        cache.drop(tensor)
        return [self._noise(self.caches.get(i)) for i in range(len(self.variants))]

    def _advance(self, subgraph: Subgraph, gives: Sequence[str]) -> None:
        part = cut(self.model, self.nodes, subgraph, gives)
        inside = {node_name(node) for node, _ in walk(part.graph)}
        with opened(part) as session:
            self.floats.run(session)
            for index, cache in self.caches.items():
                if not inside.intersection(self.variants[index]):
                    cache.run(session)
        for index, specs in enumerate(self.variants):
            changed = {name: spec for name, spec in specs.items() if name in inside}
            if changed:
                self._cache(index).advance(self._rounded(subgraph, gives, changed))

    def _cache(self, index: int) -> ActivationCache:
        """The cache of a variant, begun where its first layer runs."""
        if index not in self.caches:
            cache = ActivationCache(self.floats, len(self.batches), 1 / len(self.variants))
            self.caches[index] = self.stack.enter_context(cache)
        return self.caches[index]

    def _rounded(
        self, subgraph: Subgraph, gives: Sequence[str], specs: Mapping[str, GroupSpec]
    ) -> ir.Model:
        """The subgraph with these layers in groups."""
        decisions = {
            name: replace(self.plan.quantized[name], spec=spec, method=Method.RTN)
            for name, spec in specs.items()
        }
        integers = find_integers(
            self.model, replace(self.plan, decisions=decisions), (), QuantizedWeightsFile()
        )
        part = cut(self.model, self.nodes, subgraph, gives)
        writer = GroupwiseWriter(part, FLOAT_ACCURACY)
        for node, _ in list(walk(part.graph)):
            if (name := node_name(node)) in integers:
                writer.write(node, integers[name], decisions[name])
        return part

    def _noise(self, cache: ActivationCache | None) -> float:
        """Mean over outputs of noise over power; 0 where no output has any."""
        if cache is None:
            return 0.0
        shares = []
        for tensor in self.outputs:
            noise, power = 0.0, 0.0
            for batch in range(len(self.batches)):
                wanted = self.floats.get(tensor, batch).astype(np.float64)
                got = cache.get(tensor, batch).astype(np.float64)
                noise += float(np.square(got - wanted).sum())
                power += float(np.square(wanted).sum())
            shares.append(noise / power if power else 0.0)
        return float(np.mean(shares)) if shares else 0.0


def judged_outputs(model: ir.Model) -> list[str]:
    """Names of the outputs of floats that noise is judged by: all but state that goes round.

    What a cache holds is seen in the other outputs. Where all look like state, these are all.
    """
    floats = [v for v in model.graph.outputs if v.dtype == ir.DataType.FLOAT]
    final = [v for v in floats if not any(_may_feed(v, x) for x in model.graph.inputs)]
    return [value_name(v) for v in final or floats]


def _may_feed(output: ir.Value, given: ir.Value) -> bool:
    """Whether an output has an input's type and sizes, sizes that grow aside."""
    if output.shape is None or given.shape is None or output.dtype != given.dtype:
        return False
    pairs = list(itertools.zip_longest(output.shape, given.shape))
    fixed = [(a, b) for a, b in pairs if isinstance(a, int) and isinstance(b, int)]
    return len(output.shape) == len(given.shape) and all(a == b for a, b in fixed)
