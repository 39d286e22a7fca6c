"""Names in an exported model are the translation's: no value of a parameter changes them.

    Conv conv2d (bias of 0)            -->  Conv node_Conv_29        -->  Conv node_conv2d
    Conv conv2d, BatchNormalization    -->  Conv node_Conv_30        -->  Conv node_conv2d
    Add x, a.bias; Add y, b.bias       -->  both read a.bias         -->  x, a.bias; y, b.bias

torch's optimizer numbers the nodes that it writes, and what it writes depends on values: it leaves
out biases of 0, and merges equal parameters. A qconfig that names a node or a tensor of a fresh
module has to hold for the trained one, and where it is trained.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import onnx_ir as ir
from torch.onnx import ONNXProgram

from onnxq.errors import UnsupportedError
from onnxq.graph.edit import all_nodes

NAME_BEFORE = "pkg.torch.onnx.original_node_name"
"""Key of the name that a value had before it got an output's, as torch's exporter writes it."""


class _Written(NamedTuple):
    """A node as it was translated."""

    name: str
    op_type: str
    read: str


def optimize(made: ONNXProgram) -> None:
    """Lets torch optimize a program's model, in place; nodes and parameters keep their names.

    A node that is written anew is called like the node of its type that it stands for, else like
    the node whose result it gives. Parameters are merged where they are one in the module.
    """
    written = {
        str(value.name): _Written(
            str(node.name), node.op_type, next((str(x.name) for x in node.inputs[:1] if x), "")
        )
        for node in all_nodes(made.model)
        for value in node.outputs
    }
    reads = list(_parameter_reads(made))
    made.optimize()
    _name(made.model, written)
    _part(made.model, reads)


def name_inputs_and_outputs(
    model: ir.Model, inputs: Sequence[str], outputs: Sequence[str] | None
) -> None:
    """Names a model's inputs and outputs, in order; one result may be several outputs."""
    named = [*zip(model.graph.inputs, inputs, strict=False)]
    for value, name in [*named, *zip(model.graph.outputs, outputs or (), strict=False)]:
        value.metadata_props[NAME_BEFORE] = str(value.name)
        value.name = name


def _name(model: ir.Model, written: dict[str, _Written]) -> None:
    """Names nodes that the optimizer wrote."""
    names = {one.name for one in written.values()}
    gone = names - {str(node.name) for node in all_nodes(model)}
    for node in all_nodes(model):
        if node.name in names:
            continue
        replaced = list(_replaced(node, written, gone))
        alike = [one for one in replaced if one.op_type == node.op_type]
        stands_for = next(iter((*alike, *replaced)), None)
        if stands_for is not None:
            node.name = stands_for.name
            gone.remove(stands_for.name)


def _replaced(node: ir.Node, written: dict[str, _Written], gone: set[str]) -> Iterator[_Written]:
    """Nodes that are gone, from the one whose result a node gives, up along first inputs."""
    one = written.get(str(node.outputs[0].name))
    while one is not None and one.name in gone:
        yield one
        one = written.get(one.read)


class _Read(NamedTuple):
    """A parameter as an input of a node."""

    node: ir.Node
    position: int
    parameter: ir.Value


def _parameter_reads(made: ONNXProgram) -> Iterator[_Read]:
    assert made.exported_program is not None, "it was exported by way of one"
    parameters = set(made.exported_program.graph_signature.parameters)
    for node in all_nodes(made.model):
        for position, value in enumerate(node.inputs):
            if value is not None and value.is_initializer() and value.name in parameters:
                yield _Read(node, position, value)


def _part(model: ir.Model, reads: list[_Read]) -> None:
    """Gives nodes their own parameters again, where those were merged with equal ones."""
    left = set(all_nodes(model))
    parameters = {read.parameter for read in reads}
    for node, position, parameter in reads:
        if node not in left:
            continue
        found = node.inputs[position]
        if found is not parameter and found in parameters:
            model.graph.initializers.setdefault(str(parameter.name), parameter)
            node.replace_input_with(position, parameter)


# --- The model that the exporter returned: held against what was asked, and cleaned up.

# Machine paths of the author, and other text at every run: not for a file that is handed on.
_STACK_TRACE = "pkg.torch.onnx.stack_trace"


def check_request(
    model: ir.Model,
    inputs: Sequence[str],
    axes: Mapping[str, Mapping[int, str]],
    opset: int,
    output_names: Sequence[str] | None,
) -> None:
    """Refuses a model in another opset than asked for, or with a fixed axis."""
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
