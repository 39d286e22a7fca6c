"""Evaluators of quantized models: their integer form, run on onnxq's kernels."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
from onnx.reference.op_run import OpRun, RuntimeContextError
from onnx.reference.ops import load_op

from onnxq.errors import UnsupportedError, listed
from onnxq.graph.io import load
from onnxq.graph.passes.inline import InlineFunctions
from onnxq.graph.walk import bodies
from onnxq.operator import Array
from onnxq.ort.handing_over import IN_MEMORY, INLINE_BYTES
from onnxq.qdq.fuse import Int8Activations, fuse_as_loaded
from onnxq.qdq.narrow import unpacked
from onnxq.reference.elsewhere import FloatNodes, float_classes
from onnxq.reference.evaluation import Evaluator
from onnxq.reference.groupwise_matmul import write_groupwise_matmuls
from onnxq.reference.ops import Hear, by_name, load_plain, on_machine
from onnxq.reference.schema import check_nodes
from onnxq.targets.accumulation import SaturationEffect, SaturationMode


def evaluator(
    model: str | Path | onnx.ModelProto | ir.Model,
    *,
    threads: int = 1,
    float_nodes: FloatNodes | None = None,
    saturation_mode: SaturationMode = SaturationMode.EXACT,
    hear: Hear | None = None,
    effect: SaturationEffect = SaturationEffect.APPLIED,
) -> Evaluator:
    """A ReferenceEvaluator that runs a quantized model on onnxq's kernels.

    A QDQ model is brought into its integer form, which is what ONNX Runtime executes after fusion.
    Operators that onnxq has no kernel for run on onnx's own implementation: float ones, in float32
    (equal to ONNX Runtime's within rounding), and integer ones that only move numbers.

    Args:
        model: QDQ, QOperator, mixed, or what ONNX Runtime wrote as its optimized graph; path,
            ModelProto or onnx_ir.Model. It is not changed.
        threads: that convolutions and MatMuls use.
        float_nodes: runs the float nodes that onnxq has no kernel for, in place of onnx's own
            implementation; see onnxq.reference.elsewhere.
        saturation_mode: how the machine adds products of integers; a Target says its own.
        hear: is called with each node and the pairs of its products that left int16, from the
            threads that compute them.
        effect: whether results are the machine's, or exact.
    Returns:
        run(None, {input: array}) gives the outputs; an array is given back as soon as no later
        node needs it, unless intermediate=True asks for all.
    Raises:
        ModelError: the model cannot be read.
        UnsupportedError: operators that neither onnxq nor onnx has an implementation of.
    """
    return integer_evaluator(
        integer_form(load(model), saturation_mode),
        threads=threads,
        float_nodes=float_nodes,
        saturation_mode=saturation_mode,
        hear=hear,
        effect=effect,
    )


def integer_evaluator(
    integer: ir.Model,
    *,
    threads: int = 1,
    float_nodes: FloatNodes | None = None,
    saturation_mode: SaturationMode = SaturationMode.EXACT,
    hear: Hear | None = None,
    effect: SaturationEffect = SaturationEffect.APPLIED,
) -> Evaluator:
    """Evaluator of a model that `integer_form` returned; several may share it. See `evaluator`.

    Raises:
        UnsupportedError: as `evaluator`.
    """
    by_key = on_machine(saturation_mode, hear, effect)
    classes = list(by_key.values())
    nodes = integer.graph.all_nodes()
    check_operators(integer, nodes if float_nodes is None else filter(bodies, nodes))
    if float_nodes is not None:  # the first of a name counts
        classes = [*float_classes(integer, float_nodes, by_key), *classes]
    proto, weights = _hand_over(integer)
    return Evaluator(proto, new_ops=classes, weights=weights, threads=threads)


def integer_form(
    model: ir.Model, saturation_mode: SaturationMode = SaturationMode.EXACT
) -> ir.Model:
    """A copy with its functions inlined, each DQ -> op -> Q fused, and MatMuls by blocks too.

    Float weights between DQ and Q are quantized, as ONNX Runtime does when it loads the model. On
    ARM, int8 activations stay int8; on x86 they become uint8.

    Raises:
        ModelError: the model has one of the problems of `graph.untrusted`, or a node inputs,
            outputs or attributes that its operator does not have.
    """
    model = unpacked(load(model))
    check_nodes(model)
    if model.functions:
        model = model.clone()
        InlineFunctions()(model)
    int8 = Int8Activations.KEPT if saturation_mode.fixed_point else Int8Activations.SHIFTED
    fused = fuse_as_loaded(model, int8).model
    write_groupwise_matmuls(fused)
    return fused


def check_operators(model: ir.Model, nodes: Iterable[ir.Node]) -> None:
    """Passes where each of these nodes of a model has an implementation."""
    missing: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        if not _has_implementation(node, model.opset_imports.get(node.domain, 1)):
            missing.setdefault((node.domain, node.op_type), []).append(node.name or "")
    if not missing:
        return
    kinds = [
        f"{domain or 'ai.onnx'} {op_type} ({listed(names)})"
        for (domain, op_type), names in missing.items()
    ]
    raise UnsupportedError(
        "the reference has no implementation of "
        + "; ".join(kinds)
        + ". Give the model file itself rather than a graph that ONNX Runtime optimized, or add "
        "the operators as OpRun classes (onnxq.reference.op_classes)."
    )


def _has_implementation(node: ir.Node, version: int) -> bool:
    if (node.domain, node.op_type) in by_name():
        return True
    if node.domain.startswith("ai.onnx"):  # ai.onnx.ml and the like: onnx says itself
        return True
    try:
        load_op(node.domain, node.op_type, version, evaluator_cls=Evaluator)
    except RuntimeContextError:  # it depends on the types of the inputs, but there is one
        return True
    except (NotImplementedError, RuntimeError, ValueError):
        return False
    return True


def _hand_over(model: ir.Model) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The graph as a protobuf of any size, and the weights that are not in it."""
    copy = model.clone()
    for node in copy.graph.all_nodes():
        copy.opset_imports.setdefault(node.domain, 1)  # onnx looks none up that is not imported
    weights: dict[str, Array] = {}
    for graph in copy.graphs():
        for name, value in graph.initializers.items():
            tensor = value.const_value
            if tensor is None or tensor.dtype == ir.DataType.STRING:
                continue
            if graph is copy.graph and tensor.nbytes >= INLINE_BYTES:
                weights[name] = tensor.numpy()
                value.const_value = ir.ExternalTensor(
                    IN_MEMORY,
                    0,
                    tensor.nbytes,
                    tensor.dtype,
                    shape=ir.Shape(weights[name].shape),
                    name=name,
                )
            elif isinstance(tensor, ir.ExternalTensor):
                value.const_value = ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=name)
    return ir.to_proto(copy), weights


def node_runner(
    node: onnx.NodeProto,
    opsets: Mapping[str, int],
    inputs: Sequence[Array | None],
    classes: Mapping[tuple[str, str], type[OpRun]] | None = None,
) -> OpRun:
    """The node ready to run: runner.run(*inputs) gives its outputs.

    Args:
        node: without graphs in its attributes.
        opsets: domain -> version.
        inputs: an example of what it will get.
        classes: of `on_machine`; None: the kernels add exactly.
    Raises:
        UnsupportedError: neither onnxq nor onnx.reference has a kernel for it.
    """
    known = by_name() if classes is None else classes
    params: dict[str, Any] = {
        "log": lambda *_: None,
        "opsets": dict(opsets),
        "verbose": 0,
        "new_ops": dict(known),
        "existing_functions": {},
        "evaluator_cls": Evaluator,
    }
    cls = known.get((node.domain, node.op_type))
    return load_plain(node, params, inputs) if cls is None else cls(node, params)
