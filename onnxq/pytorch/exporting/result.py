"""The model that the exporter returned: held against what was asked, and cleaned up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxq.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Machine paths of the author, and other text at every run: not for a file that is handed on.
_STACK_TRACE = "pkg.torch.onnx.stack_trace"


def check_request(
    model: ir.Model,
    inputs: Sequence[str],
    axes: Mapping[str, Mapping[int, str]],
    opset: int,
    output_names: Sequence[str] | None,
) -> None:
    """Holds the model against the request: the exporter may return another opset, or fix an axis.

    Args:
        model: as the exporter returned it.
        inputs: names, in order.
        axes: input name -> {axis: name} of the axes that are to be dynamic.
        opset: of ai.onnx.
        output_names: in order; None: any.
    """
    got = model.opset_imports.get("")
    if got != opset:
        raise UnsupportedError(
            f"the exporter returned opset {got} where {opset} was asked: it could not convert a "
            f"node. Ask for opset {got}."
        )
    names = [value.name for value in model.graph.inputs]
    if names != list(inputs):
        raise UnsupportedError(
            f"the exporter gave inputs {names}; forward takes {list(inputs)}. An input that "
            "forward does not use is dropped: remove it from forward or use it."
        )
    for value in model.graph.inputs:
        shape = value.shape
        for axis in axes.get(value.name or "", {}):
            if shape is None or isinstance(shape[axis], int):
                raise UnsupportedError(
                    f"the exporter fixed axis {axis} of input '{value.name}' (shape {shape}), that "
                    "was to be dynamic. Make forward general in it, or fix the axis "
                    "(dynamic_axes={})."
                )
    outputs = [value.name for value in model.graph.outputs]
    if output_names is not None and outputs != list(output_names):
        raise UnsupportedError(
            f"the exporter gave outputs {outputs}; asked were {list(output_names)}."
        )


def tidy(model: ir.Model) -> None:
    """Removes stack traces; gives each value a name of its own, inputs and outputs keep theirs."""
    outer = {*model.graph.inputs, *model.graph.outputs}
    taken = {value.name for value in outer}
    nodes = list(ir.traversal.RecursiveGraphIterator(model.graph))
    inner = [value for node in nodes for value in node.outputs if value not in outer]
    for value in [*model.graph.initializers.values(), *inner]:
        name = value.name
        while name in taken:
            name = f"{name}_inner"
        taken.add(name)
        if name != value.name:
            value.name = name
    for node in nodes:
        node.metadata_props.pop(_STACK_TRACE, None)


def own_weights(model: ir.Model) -> None:
    """Replaces initializers that share memory with the module's parameters by copies."""
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is not None and type(tensor) is not ir.Tensor:  # TorchTensor is a subclass
            value.const_value = ir.Tensor(
                tensor.numpy().copy(), dtype=tensor.dtype, name=tensor.name
            )
