"""The start of training from improved weights: those that PTQ algorithms write.

    prepared module      scales of the example inputs, weights of the float model
    its ONNX form        calibrated on the same inputs, planned, improved (onnxq.weights)
    parameters, scales   <--  quantized weights and biases, scales and zero points of the plan

Converted without a step of training, the module has the integers of the improved plan; training
goes on from there. Improved weights are made for batch norm as it is, so that it is frozen.
"""

import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, fx, nn

from onnxq.affine import quantize
from onnxq.core.arrays import Singles
from onnxq.errors import QConfigError, listed
from onnxq.graph.canonical import canonicalize_module
from onnxq.observers import NarrowRangeObserver, StepSizeObserver
from onnxq.ort.types_by_run import types_by_run
from onnxq.pytorch.insertion.tensors import with_observer
from onnxq.pytorch.modules.parametrized_layer import ParametrizedLayer
from onnxq.pytorch.nn.intrinsic.qat import freeze_bn_stats
from onnxq.pytorch.nn.qat.base import QatModule
from onnxq.pytorch.numerics.fake_quantize import FakeQuantize
from onnxq.pytorch.programs.onnx_form import onnx_form
from onnxq.pytorch.programs.program import Program
from onnxq.pytorch.train.annotations import AnnotatedWeight, Annotations
from onnxq.pytorch.train.parametrizations import computed_parameters
from onnxq.qconfig import Choice, Entry, QConfig, QConfigMapping
from onnxq.quantized.outcome import summaries
from onnxq.samples import open_samples
from onnxq.static.calibrate import calibrate
from onnxq.static.plan import plan
from onnxq.static.prepare import prepare
from onnxq.targets import Target, resolve
from onnxq.targets.reduce_range import ReduceRange
from onnxq.weights.algorithm import Improved, WeightAlgorithm
from onnxq.weights.carry_out import improve_weights, wanted
from onnxq.weights.layers import Layer, layers_of

NO_LAYER = "its weight is computed, and no parameter"
NO_BIAS = "it has no bias to take what rounding moves, and none can be added to a bare weight"
TIED = "its weight has another place in the module, too"
OTHER_INTEGERS = "its integers are beyond those that the module trains"


def check_improve(names: Sequence[str]) -> None:
    """Passes PTQ algorithms that training can start from."""
    others = [one.name for one in wanted(names) if not isinstance(one, WeightAlgorithm)]
    if others:
        raise QConfigError(
            f"prepare_qat: improve: {listed(others)} makes an equal model with other nodes, which "
            "the module does not have; training starts from PTQ algorithms of weights, such as "
            "'round' and 'bias'. Leave it out."
        )


def improved_form(
    program: Program, qconfig: QConfigMapping, target: str | Target | None, found: Annotations
) -> Improved:
    """The ONNX form of a program, quantized and improved on its own example inputs.

    Where scales would start as LSQ's paper says, they start at the largest weight: PTQ algorithms
    search on from there, downwards, and training from what they find.
    """
    mapping = _from_the_largest(qconfig.set_choice(Choice.ALL_INTEGERS))
    for name in (name for one in found.unannotated for name in one.nodes):
        mapping = mapping.set_node(name, None)
    # trained weights are held within the integers of EVERYWHERE: pairs of them are not looked at
    within = replace(resolve(target), reduce_range=ReduceRange.EVERYWHERE)
    form = prepare(canonicalize_module(onnx_form(program), types_by_run), mapping, within)
    samples = open_samples([program.bound.arrays], form.inputs)
    return improve_weights(form, plan(form, calibrate(form, samples)), samples)


def _from_the_largest(qconfig: QConfigMapping) -> QConfigMapping:
    """The qconfig with NarrowRangeObserver in place of StepSizeObserver for weights."""

    def wide(entry: Entry) -> Entry:
        if not isinstance(entry, QConfig):
            return entry
        spec = entry.weight_observer
        if spec.name != StepSizeObserver.__name__:
            return entry
        largest = spec.argument("quant_max", StepSizeObserver().quant_max)
        wider = NarrowRangeObserver.with_args(**{**dict(spec.args), "quant_max": largest})
        return replace(entry, weight=with_observer(entry.weight, wider))

    of_types, of_nodes = (
        {name: wide(entry) for name, entry in entries.items()}
        for entries in (qconfig.op_types, qconfig.nodes)
    )
    overall = wide(qconfig.global_qconfig)
    return replace(qconfig, global_qconfig=overall, op_types=of_types, nodes=of_nodes)


def start_improved(
    prepared: fx.GraphModule, made: Improved, found: Annotations, fakes: Mapping[str, FakeQuantize]
) -> tuple[str, ...]:
    """Gives a prepared module the weights, biases and scales of an improved plan; notes."""
    for tensor, fake in fakes.items():
        qparams = made.plan.tensors.get(tensor)
        if qparams is not None and tensor not in made.plan.channel_scales:
            fake.start_at(qparams)
    layers = layers_of(made.prepared.model, made.plan)
    places = _Places(prepared)
    left: dict[str, list[str]] = {}
    for weight in found.weights:
        layer = layers.get(weight.exported)
        reason = "" if layer is None else places.give(weight, layer)
        if reason:
            left.setdefault(reason, []).append(weight.path)
    prepared.apply(freeze_bn_stats)
    notes = (*made.plan.notes[len(made.prepared.notes) :], *summaries(made.outcomes))
    return (*notes, *(f"{listed(names)}: starts unimproved: {r}." for r, names in left.items()))


class _Places:
    """The places of a prepared module that hold weights."""

    def __init__(self, prepared: fx.GraphModule) -> None:
        self._prepared = prepared
        self._nodes = {node.name: node for node in prepared.graph.nodes}
        self._uses: Counter[int] = Counter()  # address of a parameter -> places that read it
        for module in prepared.modules():
            self._uses.update(map(_address, module.parameters(recurse=False)))
        for node in prepared.graph.find_nodes(op="get_attr"):
            held = operator.attrgetter(str(node.target))(prepared)
            if isinstance(held, nn.Parameter):
                self._uses[_address(held)] += len(node.users) - 1

    def give(self, weight: AnnotatedWeight, layer: Layer) -> str:
        """Gives one layer its numbers; why it cannot take them, or the empty string."""
        module = self._prepared.get_submodule(weight.path)
        wrapper = self._prepared.get_submodule(weight.path.rpartition(".")[0])
        if not isinstance(module, QatModule):
            return NO_LAYER
        if not isinstance(wrapper, ParametrizedLayer):
            return self._given(module, layer)
        held, bias = computed_parameters(self._prepared, self._nodes[weight.node])
        assert held is not None, "the first of a layer's values"
        wrapper.set_parameters(held, bias)
        try:
            return NO_BIAS if _lacks_bias(module, layer) else self._given(module, layer)
        finally:
            wrapper.clear_parameters()

    def _given(self, module: QatModule, layer: Layer) -> str:
        uses = self._uses[_address(module.weight)]
        if uses != 1:
            return TIED if uses else NO_LAYER
        fake, qparams = module.weight_fake_quant, layer.plan.qparams
        integers = quantize(layer.weight, qparams)
        fits = fake.quant_min <= integers.min() and integers.max() <= fake.quant_max
        is_scaled = layer.plan.channel_scale is not None
        if is_scaled or layer.plan.bias_preserving is not None or not fits:
            return OTHER_INTEGERS
        bias = None if layer.bias_slot is None else torch.from_numpy(layer.bias.reshape(-1))
        module.start_at(torch.from_numpy(_in_layout(module, layer)), bias)
        fake.start_at(qparams).disable_observer()
        return ""


def _address(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


def _lacks_bias(module: QatModule, layer: Layer) -> bool:
    """Whether the layer's bias has no parameter, of the module or of a norm behind it."""
    norm = getattr(module, "bn", None)
    held = module.bias if norm is None or norm.bias is None else norm.bias
    return held is None and layer.bias_slot is not None and bool(layer.bias.any())


def _in_layout(module: nn.Module, layer: Layer) -> Singles:
    """The layer's weight as torch lays it out: a MatMul has its columns as rows."""
    assert layer.rule.weight is not None, "it has a quantized weight"
    columns = isinstance(module, nn.Linear) and layer.rule.weight.axis % 2 == 1
    return np.ascontiguousarray(layer.weight.T if columns else layer.weight)
