"""The evaluation of a graph node by node, which gives memory back and names a node that fails."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from onnxq.core.threads import workers
from onnxq.errors import CalibrationError, OnnxqError, UnsupportedError, kind_of, nearest
from onnxq.graph.skeleton import proto_graphs
from onnxq.operator import Array
from onnxq.reference.ops import where

RunOne = Callable[["OpRun", Sequence[Any], "Mapping[str, Any]"], tuple[Any, ...]]
"""(node, inputs, extra) -> outputs, as `run_node` has them."""
_IN_BODIES: ContextVar[RunOne | None] = ContextVar("_IN_BODIES", default=None)


@contextmanager
def bodies_run_by(run: RunOne) -> Iterator[None]:
    """Lets `run` compute the nodes in bodies of If, Loop and Scan, in place of `run_node`."""
    token = _IN_BODIES.set(run)
    try:
        yield
    finally:
        _IN_BODIES.reset(token)


class Evaluator(ReferenceEvaluator):
    """A ReferenceEvaluator that frees arrays, names the node of an error, and has worker threads.

    Args:
        proto, opsets, functions, verbose, new_ops, check_shape_annotations: as its base.
        weights: arrays of the initializers whose protobuf says that they are elsewhere.
        threads: that convolutions and MatMuls use.
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
        in_body = not isinstance(self.proto_, onnx.ModelProto)
        run = (_IN_BODIES.get() if in_body else None) or run_node
        for i, node in enumerate(self.rt_nodes_):
            extra: dict[str, Any] = {}
            if node.has_linked_attribute and attributes:
                extra["linked_attributes"] = attributes
            if node.need_context():
                extra["context"] = results
            outputs = run(node, [results[name] for name in node.input], extra)
            check_imported(node, outputs)
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


def check_imported(node: OpRun, outputs: Sequence[Any]) -> None:
    """Passes outputs of a node among which is every one that has a name."""
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
        outputs: tuple[Any, ...] = node.run(*inputs, **extra)  # type: ignore[no-untyped-call]  # onnx's
    except OnnxqError:
        raise
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        kinds = ", ".join(
            f"{x.dtype} {x.shape}" if isinstance(x, np.ndarray) else type(x).__name__
            for x in inputs
        )
        raise UnsupportedError(
            f"node {where(node.onnx_node)}: the reference cannot run it on {kinds}: {error}"
        ) from error
    return outputs


def _outer_reads(node: OpRun) -> Iterator[str]:
    """Every name that graphs inside the node read; some are their own, which does no harm."""
    held = (a.g for a in node.onnx_node.attribute if a.type == onnx.AttributeProto.GRAPH)
    for graph in (inner for outer in held for inner in proto_graphs(outer)):
        yield from (value.name for value in graph.output)
        yield from (name for inner in graph.node for name in inner.input)


# --- Inputs beside what the model declares of them, as ONNX Runtime checks them


def check_input(declared: onnx.ValueInfoProto, x: object) -> None:
    """Passes an array of the declared type, rank and static sizes, and what is no tensor."""
    if not declared.type.HasField("tensor_type"):
        return
    kind = declared.type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type) if kind.elem_type else None
    if not isinstance(x, np.ndarray | np.generic):
        what = f"an array of {dtype}" if dtype else "an array"
        raise CalibrationError(
            f"input '{declared.name}' is {kind_of(x)}; wanted {what}. Pass np.asarray(...)."
        )
    text = kind.elem_type == onnx.TensorProto.STRING
    if dtype is not None and x.dtype != dtype and not (text and x.dtype.kind in "OSUT"):
        raise CalibrationError(
            f"input '{declared.name}' is {x.dtype}; wanted {dtype}. Pass x.astype(...)."
        )
    if not kind.HasField("shape"):
        return
    sizes = [size.dim_value if size.dim_value > 0 else None for size in kind.shape.dim]
    if len(sizes) != x.ndim or any(
        size not in (None, got) for size, got in zip(sizes, x.shape, strict=True)
    ):
        wanted = ", ".join(
            str(size or dim.dim_param or "?")
            for size, dim in zip(sizes, kind.shape.dim, strict=True)
        )
        raise CalibrationError(
            f"input '{declared.name}' has shape {x.shape}; wanted ({wanted}), as the model says."
        )
