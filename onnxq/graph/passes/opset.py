"""A newer opset, where an operator or a data type needs one."""

from collections.abc import Iterable

import onnx
import onnx_ir as ir

from onnxq.errors import UnsupportedError
from onnxq.graph.edit import all_nodes, all_values
from onnxq.graph.passes.lift_constants import LiftConstants
from onnxq.graph.passes.names import UniqueNames
from onnxq.graph.skeleton import skeleton
from onnxq.graph.types import infer_types

QUANTIZABLE_OPSET = 13  # the first whose DequantizeLinear takes one scale per channel
NEWEST_IR_VERSION = 13  # the last that ONNX Runtime 1.31 reads; 14 adds nothing that opset 26 needs
_IN_PLACE_FROM = 18  # onnxscript's converter, which keeps all objects; onnx's C++ converter below
_FREE_INITIALIZERS_IR = 4  # before, initializers had to be inputs, which canonical models undo
_GROUP_NORM_CHANGE = 21  # scale and bias per channel instead of per group


class UpgradeOpset(ir.passes.InPlacePass):
    """opset(ai.onnx) >= minimum, with every node rewritten to mean the same; bodies included.

    From opset 18 on nodes are changed in place. Below, the model gets a new graph (nodes and values
    are other objects, with the same names, weights and metadata).
    """

    def __init__(self, minimum: int = QUANTIZABLE_OPSET) -> None:
        super().__init__()
        self.minimum = minimum

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        before = (_opset(model), model.ir_version)
        if before[0] < min(self.minimum, _IN_PLACE_FROM):
            _convert_cpp(model, min(self.minimum, _IN_PLACE_FROM))
        if _opset(model) < self.minimum:
            _convert_in_place(model, self.minimum)
        oldest_ir = onnx.helper.find_min_ir_version_for(
            [onnx.helper.make_opsetid("", _opset(model))], ignore_unknown=True
        )
        model.ir_version = min(max(model.ir_version, oldest_ir), NEWEST_IR_VERSION)
        return ir.passes.PassResult(model, (_opset(model), model.ir_version) != before)


def upgrade_opset(model: ir.Model, minimum: int) -> ir.Model:
    """The model, changed in place, with opset(ai.onnx) >= minimum; no weight is read or copied.

    Names must be unique and functions inlined (canonical models are so). They are unique behind it,
    too, and constants, such as axes that were attributes, are initializers. Below opset 18
    references to the model's nodes and values no longer belong to it; look them up again by name.

    Raises:
        UnsupportedError: the converter cannot translate a node.
    """
    if UpgradeOpset(minimum)(model).modified:
        LiftConstants()(model)
        UniqueNames()(model)
    return model


def _opset(model: ir.Model) -> int:
    return model.opset_imports.get("", 0)


def _convert_in_place(model: ir.Model, target: int) -> None:
    from onnxscript.version_converter import convert_version

    source = _opset(model)
    if source < _GROUP_NORM_CHANGE <= target:
        _check_group_norms(model, source, target)
    try:
        convert_version(model, target)
    except Exception as error:  # the converter raises RuntimeError, ValueError, TypeError ...
        raise _unsupported(source, target, str(error)) from error


def _check_group_norms(model: ir.Model, source: int, target: int) -> None:
    """The converter skips a GroupNormalization of unknown size with a mere log line."""
    for node in all_nodes(model):
        if node.op_type != "GroupNormalization" or node.domain:
            continue
        x, scale = node.inputs[0], node.inputs[1]
        sizes = (
            None if v is None or v.shape is None or len(v.shape) <= axis else v.shape[axis]
            for v, axis in ((x, 1), (scale, 0))
        )
        if not all(isinstance(size, int) for size in sizes):
            raise _unsupported(
                source, target, f"the channels of GroupNormalization '{node.name}' are not known"
            )


def _convert_cpp(model: ir.Model, target: int) -> None:
    source, coordinates = _opset(model), has_old_resize(model)
    try:
        proto = skeleton(model)
        proto.ir_version = max(proto.ir_version, _FREE_INITIALIZERS_IR)
        converted = ir.from_proto(onnx.version_converter.convert_version(proto, target))
    except Exception as error:  # C++ errors arrive as RuntimeError, ConvertError, IndexError ...
        raise _unsupported(source, target, str(error)) from error
    _restore(converted, model)
    _drop_meaningless(converted)
    if coordinates:
        keep_coordinates(all_nodes(converted), model)
    model.graph = converted.graph


def _restore(converted: ir.Model, original: ir.Model) -> None:
    """Gives the converted graph what C++ drops: weights, node names, metadata, other opsets."""
    values = {v.name: v for graph in original.graphs() for v in all_values(graph) if v.name}
    for graph in converted.graphs():
        for value in all_values(graph):
            old = values.get(value.name or "")
            if old is None:
                continue
            value.metadata_props.update(old.metadata_props)
            if value.is_initializer() and old.const_value is not None:
                value.const_value = old.const_value
    for node in all_nodes(converted):
        first = values.get(node.outputs[0].name or "") if node.outputs else None
        old_node = first.producer() if first is not None else None
        if old_node is not None:
            node.name = old_node.name
            node.metadata_props.update(old_node.metadata_props)
    for domain, version in original.opset_imports.items():
        converted.opset_imports.setdefault(domain, version)


def _drop_meaningless(model: ir.Model) -> None:
    """Drops old attributes that meant nothing where they stood, and that ONNX Runtime refuses."""
    for node in all_nodes(model):
        if node.domain:
            continue
        node.attributes.pop("consumed_inputs", None)  # of opset 1: a hint about memory
        if node.op_type == "Pad" and node.attributes.get_string("mode", "constant") != "constant":
            node.attributes.pop("value", None)


def _unsupported(source: int, target: int, reason: str) -> UnsupportedError:
    line = reason.strip().splitlines()[0] if reason.strip() else "the converter gave no reason"
    return UnsupportedError(
        f"the model's opset {source} cannot be raised to {target}, which the quantized model "
        f"needs: {line}. Export the model with opset_version={target}."
    )


# --- Resize and Upsample from before opset 11, which onnx's converter turns into another
#     function
#
# It leaves the attributes that opset 11 brought at their defaults, coordinates of half pixels;
# until then, x_original = x_resized / scale, rounded down where nearest elements were asked for (by
# ONNX Runtime: up, where Resize-10 shrinks).


RESIZE, UPSAMPLE = "Resize", "Upsample"
NEW_COORDINATES = 11  # the opset from which on Resize says what its coordinates are
SCALES = 2


def keep_coordinates(nodes: Iterable[ir.Node], original: ir.Model) -> None:
    """Gives each Resize among the converted nodes the attributes that mean what it meant."""
    producers = {
        value.name: value.producer() for graph in original.graphs() for value in all_values(graph)
    }
    for node in nodes:
        if node.op_type != RESIZE or node.domain:
            continue
        node.attributes["coordinate_transformation_mode"] = ir.AttrString(
            "coordinate_transformation_mode", "asymmetric"
        )
        if node.attributes.get_string("mode", "nearest") == "nearest":
            old = producers.get(node.outputs[0].name)
            grows = old is not None and old.op_type == UPSAMPLE
            rounding = "floor" if grows else _rounding(node)
            node.attributes["nearest_mode"] = ir.AttrString("nearest_mode", rounding)


def _rounding(node: ir.Node) -> str:
    """Rounding mode of a Resize-10, by its scales."""
    value = node.inputs[SCALES]
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    scales = None if tensor is None else tensor.numpy()
    if scales is None or ((scales < 1).any() and (scales > 1).any()):
        found = "computed at run time" if scales is None else str(scales.tolist())
        raise UnsupportedError(
            f"Resize '{node.name}' of opset 10 takes nearest elements by scales {found}: ONNX "
            "Runtime rounds up where it shrinks and down where it grows, which no newer Resize "
            "does. Export the model with opset_version=13."
        )
    return "ceil" if (scales < 1).any() else "floor"


def has_old_resize(model: ir.Model) -> bool:
    """Whether `keep_coordinates` has anything to do after a conversion."""
    return model.opset_imports.get("", 0) < NEW_COORDINATES and any(
        node.op_type in (RESIZE, UPSAMPLE) and not node.domain for node in all_nodes(model)
    )


def raise_opset(model: ir.Model, minimum: int) -> bool:
    """Whether opset(ai.onnx) >= minimum now; a model that cannot be raised stays as it is.

    For what is better in a newer opset, but not needed. Names stay unique, constants initializers,
    types known; below opset 18 nodes and values are other objects then.
    """
    if model.opset_imports.get("", 0) >= minimum:
        return True
    try:
        upgrade_opset(model, minimum)
    except UnsupportedError:
        return False
    infer_types(model)
    return True
