"""PT2E programs: torch.export graphs with quantize and dequantize operators, in onnxq's operators.

    quantized_decomposed.quantize_per_tensor(x, scale, zp, qmin, qmax, dtype)   quantize_linear
    quantized_decomposed.dequantize_per_channel(w, scales, zps, axis, ...)      dequantize_linear
    torchao.quantize_affine(x, block_size, scale, zp, dtype, ...)               quantize_linear

Scales and zero points become buffers. A weight that is still quantized when the program runs
(convert_pt2e(fold_quantize=False)) becomes integers here. qmin and qmax are not clipped to:
observers with reduce_range give 0..127, and a Clip in front of a QuantizeLinear would keep ONNX
Runtime from its integer kernels; values beyond the observed range then use the integers that are
left.
"""

import copy
import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram

from onnxq.errors import UnsupportedError
from onnxq.pytorch.importers.region import STORED
from onnxq.pytorch.numerics.rounding_ops import NO_AXIS
from onnxq.pytorch.programs.leaf_calls import arguments

_NAMESPACES = ("quantized_decomposed", "torchao")
_QUANTIZE = ("quantize_per_tensor", "quantize_per_channel", "quantize_affine")
_DEQUANTIZE = ("dequantize_per_tensor", "dequantize_per_channel", "dequantize_affine")
_REMEDY = (
    "Quantize the program with 8-bit static quantizers, or export the float module and let onnxq "
    "quantize it."
)


@dataclass(frozen=True, slots=True)
class _QParams:
    """Arguments of a quantize or dequantize node."""

    scale: Tensor
    zero_point: Tensor
    axis: int


def is_program(model: nn.Module) -> bool:
    """Whether a module is a graph of torch.export with quantize operators."""
    return isinstance(model, fx.GraphModule) and any(_operator(n) for n in model.graph.nodes)


def is_prepared_program(model: nn.Module) -> bool:
    """Whether a module is what prepare_pt2e or prepare_qat_pt2e returned."""
    if not isinstance(model, fx.GraphModule):
        return False
    return "_observed_graph_module_attrs" in model.meta and any(
        isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == "aten"
        for node in model.graph.nodes
    )


def convert_program(model: fx.GraphModule) -> fx.GraphModule:
    """convert_pt2e of a copy of a prepared program."""
    try:
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e
    except ImportError as error:
        raise UnsupportedError(
            "the program is prepared, not converted: converting it needs torchao, which is not "
            "installed. Run: pip install --no-deps torchao, or convert it where it was prepared."
        ) from error
    return convert_pt2e(copy.deepcopy(model))  # type: ignore[no-any-return]  # of an untyped call


def has_dynamic_shapes(model: fx.GraphModule) -> bool:
    """Whether the program takes another number of rows than it was exported with."""
    values = [node.meta.get("val") for node in model.graph.nodes if node.op == "placeholder"]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    return any(not isinstance(size, int) for value in tensors for size in value.shape)


def traceable_program(program: fx.GraphModule | ExportedProgram) -> fx.GraphModule:
    """A copy of the program with onnxq's operators."""
    made = copy.deepcopy(program) if isinstance(program, fx.GraphModule) else program.module()
    assert isinstance(made, fx.GraphModule)
    for mode in ("train", "eval"):  # of a program they raise; its operators have one mode only
        vars(made).pop(mode, None)
    for node in list(made.graph.nodes):
        if node.op == "call_module" and str(node.target).startswith("_guards"):
            made.graph.erase_node(node)
            continue
        name = _operator(node)
        if name is None:
            continue
        if name not in (*_QUANTIZE, *_DEQUANTIZE):
            raise UnsupportedError(
                f"node '{node.name}': {node.target} cannot be imported. {_REMEDY}"
            )
        _replace(made, node, name)
    made.graph.eliminate_dead_code()
    made.delete_all_unused_submodules()
    made.recompile()
    return made


def _operator(node: fx.Node) -> str | None:
    """Name of the quantization operator that a node calls; None: it calls something else."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in _NAMESPACES:
        return None
    return target._schema.name.partition("::")[2]


def _replace(module: fx.GraphModule, node: fx.Node, name: str) -> None:
    """Puts onnxq's operator in the place of a node."""
    qparams = _affine(module, node) if name.endswith("affine") else _decomposed(module, node, name)
    source = node.args[0]
    assert isinstance(source, fx.Node)
    graph = module.graph
    constant = _value(module, source) if name in _QUANTIZE else None
    with graph.inserting_before(node):
        if constant is not None:
            made = _buffer(module, node, "integers", _computed(module, node))
        else:
            scale = _buffer(module, node, "scale", qparams.scale)
            zero_point = _buffer(module, node, "zero_point", qparams.zero_point)
            ops = torch.ops.onnxq
            called = ops.quantize_linear if name in _QUANTIZE else ops.dequantize_linear
            made = graph.call_function(called.default, (source, scale, zero_point, qparams.axis))
    made.meta = dict(node.meta)
    node.replace_all_uses_with(made)
    graph.erase_node(node)


def _computed(module: fx.GraphModule, node: fx.Node) -> Tensor:
    """Value of a node of constants, by torch's own kernel."""
    assert isinstance(node.target, torch._ops.OpOverload)
    found = [_value(module, argument) for argument in node.args]
    arguments = [old if new is None else new for old, new in zip(node.args, found, strict=True)]
    integers: Tensor = node.target(*arguments, **node.kwargs)
    return integers


def _buffer(module: fx.GraphModule, node: fx.Node, ending: str, value: Tensor) -> fx.Node:
    name = f"{node.name}_{ending}"
    module.register_buffer(name, value.detach().clone())
    made = module.graph.get_attr(name)
    made.meta["val"] = value
    return made


def _value(module: fx.GraphModule, node: object) -> Tensor | None:
    """The tensor that a get_attr node names; None: it is computed."""
    if not isinstance(node, fx.Node) or node.op != "get_attr":
        return None
    found = operator.attrgetter(str(node.target))(module)
    return found.detach() if isinstance(found, torch.Tensor) else None


def _number(module: fx.GraphModule, node: fx.Node, value: object) -> Tensor:
    """A scale or zero point as a tensor."""
    if isinstance(value, int | float):
        return torch.tensor(value)
    found = _value(module, value)
    if found is None:
        raise UnsupportedError(
            f"node '{node.name}': its scale or zero point is computed when the program runs "
            f"(dynamic quantization). {_REMEDY}"
        )
    return found


def _decomposed(module: fx.GraphModule, node: fx.Node, name: str) -> _QParams:
    given = arguments(node)
    per_channel = name.endswith("channel")
    scale = _number(module, node, given["scales" if per_channel else "scale"])
    zero = given["zero_points" if per_channel else "zero_point"]
    zero_point = torch.zeros_like(scale) if zero is None else _number(module, node, zero)
    dtype = _stored(node, given["dtype"])
    if not per_channel:
        return _QParams(scale.float().reshape(()), zero_point.to(dtype).reshape(()), NO_AXIS)
    _check_whole(node, zero_point)
    return _QParams(scale.float(), zero_point.to(dtype), int(given["axis"]))


def _affine(module: fx.GraphModule, node: fx.Node) -> _QParams:
    given = arguments(node)
    scale = _number(module, node, given["scale"])
    zero = given["zero_point"]
    zero_point = torch.zeros_like(scale) if zero is None else _number(module, node, zero)
    dtype = _stored(
        node, given.get("output_dtype") if "input_dtype" not in given else given["input_dtype"]
    )
    _check_whole(node, zero_point)
    if scale.numel() == 1:
        return _QParams(scale.float().reshape(()), zero_point.to(dtype).reshape(()), NO_AXIS)
    axes = [axis for axis, size in enumerate(given["block_size"]) if size == 1]
    source = node.args[0].meta["val"] if isinstance(node.args[0], fx.Node) else None
    wanted = [a for a in axes if source is None or source.shape[a] == scale.numel()]
    if len(wanted) != 1:
        raise UnsupportedError(
            f"node '{node.name}': blocks of {list(given['block_size'])}; wanted one scale per "
            f"tensor or per channel. {_REMEDY}"
        )
    return _QParams(scale.float().reshape(-1), zero_point.to(dtype).reshape(-1), wanted[0])


def _stored(node: fx.Node, dtype: Any) -> torch.dtype:
    if dtype not in (*STORED.values(), torch.int32):
        raise UnsupportedError(f"node '{node.name}': integers of type {dtype}. {_REMEDY}")
    return torch.int32 if dtype == torch.int32 else STORED[dtype]


def _check_whole(node: fx.Node, zero_point: Tensor) -> None:
    if not bool((zero_point == zero_point.round()).all()):
        raise UnsupportedError(
            f"node '{node.name}': its zero points are no integers, which ONNX has no form for. "
            f"{_REMEDY}"
        )
