"""One node by itself, without a graph around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnxq.reference.evaluation import Evaluator
from onnxq.reference.ops import by_name, load_plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx
    from onnx.reference.op_run import OpRun

    from onnxq.operator import Array


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
