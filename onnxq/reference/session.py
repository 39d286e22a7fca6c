"""ONNX's ReferenceEvaluator with onnxq's kernels, large weights, and memory that is given back."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun, RuntimeContextError
from onnx.reference.ops import load_op

from onnxq.core.threads import workers
from onnxq.errors import CalibrationError, OnnxqError, UnsupportedError, listed, nearest
from onnxq.graph.io import load
from onnxq.graph.passes.inline import InlineFunctions
from onnxq.qdq.fuse import Int8Codes, fuse_as_loaded
from onnxq.reference.blocks import write_block_products
from onnxq.reference.declared import check_input
from onnxq.reference.elsewhere import FloatNodes, float_classes
from onnxq.reference.ops import Hear, by_name, on_machine, where
from onnxq.reference.schema import check_nodes
from onnxq.targets.accumulation import Arithmetic, Effect

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from onnxq.operator import Array

IN_MEMORY = "in_memory"
"""Location of the weights that stay outside the protobuf."""
INLINE_BYTES = 1024
"""Smaller weights stay in the protobuf."""


def evaluator(
    model: str | Path | onnx.ModelProto | ir.Model,
    *,
    threads: int = 1,
    float_nodes: FloatNodes | None = None,
    arithmetic: Arithmetic = Arithmetic.EXACT,
    hear: Hear | None = None,
    effect: Effect = Effect.APPLIED,
) -> Evaluator:
    """A ReferenceEvaluator that runs a quantized model on onnxq's kernels.

    A QDQ model is brought into its integer form, which is what ONNX Runtime executes after fusion.
    Operators that onnxq has no kernel for run on onnx's own implementation: float ones, in float32
    (equal to ONNX Runtime's within rounding), and integer ones that only move numbers.

    Args:
        model: QDQ, QOperator, mixed, or what ONNX Runtime wrote as its optimized graph; path,
            ModelProto or onnx_ir.Model. It is not changed.
        threads: that convolutions and matrix products use.
        float_nodes: runs the float nodes that onnxq has no kernel for, in place of onnx's own
            implementation; see onnxq.reference.elsewhere.
        arithmetic: how the machine adds products of codes; a Target says its own.
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
        integer_form(load(model), arithmetic),
        threads=threads,
        float_nodes=float_nodes,
        arithmetic=arithmetic,
        hear=hear,
        effect=effect,
    )


def integer_evaluator(
    integer: ir.Model,
    *,
    threads: int = 1,
    float_nodes: FloatNodes | None = None,
    arithmetic: Arithmetic = Arithmetic.EXACT,
    hear: Hear | None = None,
    effect: Effect = Effect.APPLIED,
) -> Evaluator:
    """Evaluator of a model that `integer_form` returned; several may share it. See `evaluator`.

    Raises:
        UnsupportedError: as `evaluator`.
    """
    by_key = on_machine(arithmetic, hear, effect)
    classes = list(by_key.values())
    if float_nodes is None:
        check_operators(integer)
    else:  # the first of a name counts
        classes = [*float_classes(integer, float_nodes, by_key), *classes]
    proto, weights = _hand_over(integer)
    return Evaluator(proto, new_ops=classes, weights=weights, threads=threads)


def integer_form(model: ir.Model, arithmetic: Arithmetic = Arithmetic.EXACT) -> ir.Model:
    """A copy with its functions inlined, each DQ -> op -> Q fused, and products by blocks too.

    Float weights between DQ and Q are quantized, as ONNX Runtime does when it loads the model. On
    ARM, int8 activations stay int8; on x86 they become uint8.

    Raises:
        ModelError: the model has one of the problems of `graph.door`, or a node inputs, outputs or
            attributes that its operator does not have.
    """
    model = load(model)
    check_nodes(model)
    if model.functions:
        model = model.clone()
        InlineFunctions()(model)
    int8 = Int8Codes.KEPT if arithmetic.fixed_point else Int8Codes.SHIFTED
    fused = fuse_as_loaded(model, int8).model
    write_block_products(fused)
    return fused


def check_operators(model: ir.Model) -> None:
    """Passes a model whose operators all have an implementation.

    Raises:
        UnsupportedError: those that have none, each with a node.
    """
    missing: dict[tuple[str, str], list[str]] = {}
    for node in model.graph.all_nodes():
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


class Evaluator(ReferenceEvaluator):
    """A ReferenceEvaluator that frees arrays, names the node of an error, and has worker threads.

    Args:
        proto, opsets, functions, verbose, new_ops, check_shape_annotations: as its base.
        weights: arrays of the initializers whose protobuf says that they are elsewhere.
        threads: that convolutions and matrix products use.

    Attributes:
        reads: of each node, the names that it and graphs inside of it read.
    """

    def __init__(
        self,
        proto: Any,
        *arguments: Any,
        weights: Mapping[str, Array] | None = None,
        threads: int = 1,
        **options: Any,
    ) -> None:
        self._weights = dict(weights or {})
        self._threads = threads
        with workers(threads):  # refuses a wrong number now
            super().__init__(proto, *arguments, **options)
        self.reads = [set(node.input) | set(_outer_reads(node)) for node in self.rt_nodes_]

    def retrieve_external_data(self, initializer: onnx.TensorProto) -> Array:
        """The array of an initializer that is not in the protobuf."""
        found = self._weights.get(initializer.name)
        return super().retrieve_external_data(initializer) if found is None else found

    def run(  # type: ignore[override]  # onnx before 1.23 has fewer options
        self,
        output_names: Sequence[str] | None,
        feed_inputs: Mapping[str, Any],
        attributes: Mapping[str, Any] | None = None,
        intermediate: bool = False,
        **options: Any,
    ) -> Any:
        """The outputs, as the base gives them.

        Raises:
            CalibrationError: an input is missing, unknown, or of another type or shape.
            ShapeError: arrays that do not fit together, with the node.
            UnsupportedError: what a node cannot do, with the node.
        """
        feeds = dict(feed_inputs)
        if isinstance(self.proto_, onnx.ModelProto):
            self.check_feeds(feeds)
        special = intermediate or self.check_shape_annotations_ or any(options.values())
        # a body of If runs in the workers of its model
        whole = isinstance(self.proto_, onnx.ModelProto)
        with workers(self._threads) if whole else nullcontext():
            if special or self.verbose:
                return super().run(
                    output_names,
                    feeds,
                    attributes=None if attributes is None else dict(attributes),
                    intermediate=intermediate,
                    **options,
                )
            wanted = self.output_names if output_names is None else list(output_names)
            return self._run_nodes(wanted, feeds, attributes)

    def check_feeds(self, feeds: Mapping[str, Any]) -> None:
        """Passes inputs of the model that are all there, of its types and shapes.

        Raises:
            CalibrationError: they are not.
        """
        self._check_names(feeds)
        for value in self.proto_.graph.input:
            if value.name in feeds:
                check_input(value, feeds[value.name])

    def last_readers(self, wanted: Sequence[str]) -> dict[str, int]:
        """Name -> index of the last node that reads it; those that are wanted: behind all nodes."""
        last = dict.fromkeys(wanted, len(self.rt_nodes_))
        for i, reads in enumerate(self.reads):
            for name in reads:
                last[name] = max(i, last.get(name, 0))
        return last

    def _check_names(self, feeds: Mapping[str, Any]) -> None:
        for name in feeds:
            if name not in self.input_names:
                hint = nearest(name, self.input_names)
                raise CalibrationError(
                    f"the model has no input '{name}'; it has {', '.join(self.input_names)}.{hint}"
                )
        missing = [n for n in self.input_names if n not in feeds and n not in self.rt_inits_]
        if missing:
            raise CalibrationError(
                f"input '{missing[0]}' is missing; got {', '.join(feeds) or 'none'}."
            )

    def _run_nodes(
        self, wanted: Sequence[str], feeds: Mapping[str, Any], attributes: Mapping[str, Any] | None
    ) -> list[Any]:
        """The base's loop over the nodes; each array goes when its last reader has run."""
        last = self.last_readers(wanted)
        results: dict[str, Any] = {"": None, **self.rt_inits_, **feeds}
        kept = set(results)
        for i, node in enumerate(self.rt_nodes_):
            extra: dict[str, Any] = {}
            if node.has_linked_attribute and attributes:
                extra["linked_attributes"] = attributes
            if node.need_context():
                extra["context"] = results
            outputs = run_node(node, [results[name] for name in node.input], extra)
            check_given(node, outputs)
            results.update(zip(node.output, outputs, strict=False))
            results[""] = None  # an output without a name is no input of anyone
            for name in (*self.reads[i], *node.output):
                if last.get(name, -1) <= i and name not in kept:
                    results.pop(name, None)
        for name in wanted:
            if name not in results:
                raise CalibrationError(
                    f"the model has no output '{name}'.{nearest(name, self.output_names)}"
                )
        return [results[name] for name in wanted]


def check_given(node: OpRun, outputs: Sequence[Any]) -> None:
    """Passes outputs of a node among which is every one that has a name.

    Raises:
        UnsupportedError: one was not computed.
    """
    missing = [name for name in node.output[len(outputs) :] if name]
    if missing:
        raise UnsupportedError(
            f"node {where(node.onnx_node)}: its kernel gives {len(outputs)} output(s), and not "
            f"'{missing[0]}'."
        )


def run_node(node: OpRun, inputs: Sequence[Any], extra: Mapping[str, Any]) -> tuple[Any, ...]:
    """Outputs of one node.

    Raises:
        OnnxqError: as the kernel raises it.
        UnsupportedError: onnx's own implementation cannot run it.
    """
    try:
        outputs: tuple[Any, ...] = node.run(*inputs, **extra)  # type: ignore[no-untyped-call]
    except OnnxqError:
        raise
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        kinds = ", ".join(_kind(x) for x in inputs)
        raise UnsupportedError(
            f"node {where(node.onnx_node)}: the reference cannot run it on {kinds}: {error}"
        ) from error
    return outputs


def _kind(x: object) -> str:
    return f"{x.dtype} {x.shape}" if isinstance(x, np.ndarray) else type(x).__name__


def _outer_reads(node: OpRun) -> Iterator[str]:
    """Every name that graphs inside the node read; some are their own, which does no harm."""
    for attribute in node.onnx_node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield from _names_read(attribute.g)


def _names_read(graph: onnx.GraphProto) -> Iterator[str]:
    yield from (value.name for value in graph.output)
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _names_read(attribute.g)
