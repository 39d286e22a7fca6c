"""Sides of a comparison: a float and a quantized model, and the tensors that are compared."""

import fnmatch
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnxq.checking.findings import Unmatched
from onnxq.checking.integers import SUFFIX, find_integers
from onnxq.checking.side_by_side import Pair
from onnxq.errors import ModelError, QConfigError, nearest
from onnxq.graph.canonical import canonicalize
from onnxq.graph.edit import all_values
from onnxq.graph.io import load, model_hash
from onnxq.graph.passes.names import UniqueNames
from onnxq.graph.passes.pad_channels import padded_channels
from onnxq.graph.pixels import pixels_of, take_pixels
from onnxq.graph.quantized import INPUTS_KEY, OUTPUTS_KEY, QuantizedIO, read_quantized_io
from onnxq.graph.untrusted.problem import WHERE_KEY
from onnxq.ort import facts
from onnxq.ort.expose import observable
from onnxq.ort.types_by_run import types_by_run
from onnxq.qdq.narrow import unpacked
from onnxq.samples import input_specs
from onnxq.static.prepared import ModelSource

FLOAT_HASH_KEY = "onnxq.float_model_hash"  # rewrite names the float model in the quantized one

EVERYTHING = ("*",)


@dataclass(frozen=True)
class Sides:
    """A float model and a quantized one that belong together.

    Attributes:
        source: the canonical float model, which takes pixels where the quantized one does.
        target: the quantized model, in which every value has a name of its own.
        float_hash: of the canonical float model.
        tensors: that both have, one with integers; their sums are those of this comparison.
    """

    model: ModelSource
    quantized: ModelSource
    only: tuple[str, ...]
    source: ir.Model
    target: ir.Model
    float_hash: str
    quantized_hash: str
    tensors: tuple[Pair, ...]
    outputs: tuple[Pair, ...]
    unmatched: tuple[Unmatched, ...]

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The tensors, then the outputs."""
        return (*self.tensors, *self.outputs)


def sides_of(model: ModelSource, quantized: ModelSource, only: Sequence[str] = EVERYTHING) -> Sides:
    """The two models, matched by the names of their tensors."""
    if isinstance(only, str) or not isinstance(only, Sequence):
        raise QConfigError(f"only: got {only!r}; wanted a list of globs, such as ['logits'].")
    loaded = load(quantized)
    given = load(model)
    check_order(given, loaded)
    target = _with_own_names(unpacked(loaded))
    source = _float_side(given, target)
    # its hash is asked for once: it reads every weight
    float_hash = model_hash(source)
    _check_belong(source, target, float_hash)
    return _matched((model, quantized), (source, target), (float_hash, model_hash(loaded)), only)


def sides_in_memory(source: ir.Model, quantized: ir.Model) -> Sides:
    """A model as it was prepared, and what was made of it a moment ago: no hash is compared."""
    target = _with_own_names(unpacked(quantized))
    return _matched((source, quantized), (source, target), ("", ""), EVERYTHING)


def _matched(
    given: tuple[ModelSource, ModelSource],
    models: tuple[ir.Model, ir.Model],
    hashes: tuple[str, str],
    only: Sequence[str],
) -> Sides:
    source, target = models
    tensors, unmatched = _match_tensors(source, target)
    outputs, without_numbers = _match_outputs(source, read_quantized_io(target, OUTPUTS_KEY))
    _check_globs(only, [p.name for p in (*tensors, *outputs)])
    tensors, outputs = _selected(tensors, only), _selected(outputs, only)
    missing = (*unmatched, *without_numbers)
    return Sides(
        *given, tuple(only), source, target, *hashes, tuple(tensors), tuple(outputs), missing
    )


def _with_own_names(target: ir.Model) -> ir.Model:
    """The model, or a copy with other names where two branches of an If share one.

    The float side is renamed by the same rule, so that tensors still find each other.
    """
    names = [value.name for graph in target.graphs() for value in all_values(graph) if value.name]
    if len(names) == len(set(names)):
        return target
    return UniqueNames()(target.clone()).model


def check_order(given: ir.Model, target: ir.Model) -> None:
    """Refuses a model of onnxq in the float model's place, and a float one in its own."""
    if FLOAT_HASH_KEY not in given.metadata_props or FLOAT_HASH_KEY in target.metadata_props:
        return
    ours, theirs = (model.meta.get(WHERE_KEY, "a model") for model in (given, target))
    raise ModelError(
        f"{ours} is quantized, and {theirs} was not made by onnxq: they look swapped. Give the "
        "float model first, then the quantized one."
    )


def _float_side(model: ir.Model, target: ir.Model) -> ir.Model:
    """The canonical float model, which takes pixels where the quantized one does."""
    source = canonicalize(model, types_by_run).model
    floats = {v.name for v in source.graph.inputs} - read_quantized_io(source, INPUTS_KEY).keys()
    take_pixels(source, {n: quantized for n, quantized in pixels_of(target).items() if n in floats})
    return source


def _check_belong(source: ir.Model, target: ir.Model, float_hash: str) -> None:
    made_from = target.metadata_props.get(FLOAT_HASH_KEY)
    if made_from is not None and made_from != float_hash:
        raise ModelError(
            f"the quantized model was made from float model {made_from[:12]}; the one given is "
            f"{float_hash[:12]}. Give the float model that it was made from."
        )
    names = (_input_names(source), _input_names(target))
    _check_names("inputs", *names)
    _check_names("outputs", *({str(v.name) for v in m.graph.outputs} for m in (source, target)))


def _input_names(model: ir.Model) -> set[str]:
    return {spec.name for spec in input_specs(model)}


def _check_names(kind: str, ours: set[str], theirs: set[str]) -> None:
    if ours == theirs:
        return
    raise ModelError(
        f"the models do not belong together: {kind} of the float model are "
        f"{', '.join(sorted(ours))}; of the quantized one {', '.join(sorted(theirs))}. "
        "Give the model that it was made from."
    )


def _match_tensors(source: ir.Model, target: ir.Model) -> tuple[list[Pair], list[Unmatched]]:
    ours = {*observable(source), *_input_names(source)}
    pairs: list[Pair] = []
    unmatched: list[Unmatched] = []
    outputs = read_quantized_io(target, OUTPUTS_KEY)  # compared as outputs
    channels = padded_channels(target)
    makers = _makers(source)
    kept = {*observable(target)}
    clamped = _clamped(source, kept | {name.removesuffix(SUFFIX) for name in kept})
    for found in find_integers(target):
        if found.name in outputs:
            continue
        if found.qparams is None:
            unmatched.append(Unmatched(found.name, found.problem))
        elif found.tensor not in ours:
            reason = f"the float model has no tensor '{found.tensor}'"
            unmatched.append(Unmatched(found.name, reason))
        else:
            name = clamped.get(found.tensor, found.tensor)
            had, node = channels.get(name), makers.get(name, "")
            pairs.append(
                Pair(name, name, found.name, found.qparams, found.channel_scale, had, node=node)
            )
    return pairs, unmatched


def _clamped(source: ir.Model, kept: Collection[str]) -> dict[str, str]:
    """Tensor -> result of the Relu or Clip behind it that the quantized model lacks.

    ONNX Runtime's QOperator format drops a Relu where the integers end at 0, and names the integers
    after what it read.
    """
    found: dict[str, str] = {}
    for node in reversed([*source.graph.all_nodes()]):
        if not facts.of(node).swallowed or node.inputs[0] is None:
            continue
        read, result = node.inputs[0], str(node.outputs[0].name)
        if len(read.uses()) == 1 and not read.is_graph_output() and result not in kept:
            found[str(read.name)] = found.get(result, result)
    return found


def _makers(source: ir.Model) -> dict[str, str]:
    """Tensor -> the node that computes it: the Conv, where a Relu behind it is a part of it."""
    found: dict[str, str] = {}
    for node in source.graph.all_nodes():
        read = node.inputs[0] if node.inputs else None
        ahead = "" if read is None or len(read.uses()) > 1 else found.get(str(read.name), "")
        name = (facts.of(node).swallowed and ahead) or str(node.name)
        found |= {str(value.name): name for value in node.outputs}
    return found


def _match_outputs(
    source: ir.Model, quantized: Mapping[str, QuantizedIO]
) -> tuple[list[Pair], list[Unmatched]]:
    pairs: list[Pair] = []
    unmatched: list[Unmatched] = []
    for value in source.graph.outputs:
        name = str(value.name)
        if isinstance(value.type, ir.TensorType) and value.dtype != ir.DataType.STRING:
            pairs.append(Pair(name, name, name, None, quantized=quantized.get(name)))
            continue
        reason = f"an output of type {value.type} holds no numbers"
        unmatched.append(Unmatched(name, reason))
    return pairs, unmatched


def _selected(pairs: list[Pair], only: Sequence[str]) -> list[Pair]:
    return [p for p in pairs if any(fnmatch.fnmatchcase(p.name, glob) for glob in only)]


def _check_globs(only: Sequence[str], names: list[str]) -> None:
    for glob in only:
        if glob != "*" and not any(fnmatch.fnmatchcase(name, glob) for name in names):
            raise QConfigError(
                f"no compared tensor or output matches '{glob}'.{nearest(glob, names)}"
            )
