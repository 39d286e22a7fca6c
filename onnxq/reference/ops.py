"""The kernels as OpRun classes, the extension point of onnx.reference.

An operator on integers (QLinearConv) has its kernel alone. An operator that the float model has too
(MaxPool) runs on its kernel where it moves or bounds integers, else on onnx's own implementation.
"""

import difflib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import onnx
from onnx.reference.op_run import OpRun, RuntimeContextError
from onnx.reference.ops import load_op

from onnxq import catalog
from onnxq.errors import OnnxqError, UnsupportedError
from onnxq.operator import Array, AttributeValue, IntegerCall, IntegerOperator, Operator
from onnxq.operator.nodes import ONNX_DOMAINS
from onnxq.operator.site import MICROSOFT
from onnxq.ort.node_kinds import INTEGER_TYPES
from onnxq.reference.float_ops import FLOAT_OPS, OLD_OPS, PLAIN_OPS
from onnxq.reference.loops import LOOPS
from onnxq.reference.schema import check_call, check_proto
from onnxq.targets.accumulation import Accumulator, Overflows, SaturationEffect, SaturationMode

Kernel = Callable[[Sequence[Array | None], Mapping[str, AttributeValue]], tuple[Array, ...]]


Hear = Callable[[onnx.NodeProto, Overflows], None]
"""Hears which pairs of a node's products left int16."""

INTEGER_DTYPES = frozenset(dtype.name.lower() for dtype in INTEGER_TYPES)
"""Names of the NumPy (and ml_dtypes) types that integers have."""

ADDING = frozenset({"Attention", "GRU", "RNN"})
"""Operators whose kernels of onnxq compute floats too, by sums."""


def where(node: onnx.NodeProto) -> str:
    """Name by which a message calls a node."""
    return f"{node.op_type} '{node.name or (node.output[0] if node.output else '')}'"


class KernelOp(OpRun):
    """A node that runs on a kernel of onnxq; `op_classes` makes a subclass per operator."""

    operator: ClassVar[IntegerOperator]

    def __init__(
        self, onnx_node: onnx.NodeProto, run_params: dict[str, Any], schema: Any = None
    ) -> None:
        check_proto(onnx_node, run_params.get("opsets", {}))
        super().__init__(onnx_node, run_params, schema)
        # not those that onnx adds from the schema: a kernel knows the defaults of its domain
        self._given = {a.name: _value(a) for a in onnx_node.attribute if not a.ref_attr_name}
        self._linked = [a.name for a in onnx_node.attribute if a.ref_attr_name]
        if onnx_node.op_type in ("Split", "MaxPool"):  # only the node tells how many are wanted
            self._given["num_outputs"] = len(onnx_node.output)
        own = onnx_node.domain in ONNX_DOMAINS
        opset = run_params.get("opsets", {}).get(onnx_node.domain, onnx.defs.onnx_opset_version())
        self._move = move_of(onnx_node.op_type, opset) if own else NOTHING

    def uses_kernel(self, inputs: Sequence[Array | None]) -> bool:
        """Whether onnxq's kernel serves these inputs; else onnx's own implementation runs."""
        return self.operator.serves(self._call(inputs))

    def adds_floats(self, inputs: Sequence[Array | None]) -> bool:
        """Whether that kernel is right to rounding alone: it adds floats in an order of its own."""
        given = [x for x in inputs if x is not None]
        return self.op_type in ADDING and all(x.dtype.name not in INTEGER_DTYPES for x in given)

    def bound(self, inputs: Sequence[Array | None]) -> Array | None:
        """`IntegerOperator.bound` of this node."""
        return self.operator.bound(self._call(inputs))

    def _call(
        self, inputs: Sequence[Array | None], linked: Mapping[str, AttributeValue] | None = None
    ) -> IntegerCall:
        given = {**self._given, **(linked or {})}
        return IntegerCall(
            self.onnx_node.op_type,
            self._move.newest_inputs(inputs, given),
            attributes=self._move.newest_attributes(given),
        )

    def _compute(self, call: IntegerCall) -> tuple[Array, ...]:
        return self.operator.kernel(call)

    def _run(self, *inputs: Array | None, **attributes: Any) -> tuple[Array, ...]:
        linked = {name: attributes[name] for name in self._linked}
        arrays = [None if x is None else np.asarray(x) for x in inputs]
        if not self.uses_kernel(arrays):
            plain = load_plain(self.onnx_node, self.run_params, arrays)
            result: tuple[Array, ...] = plain.run(*inputs)  # type: ignore[no-untyped-call]  # onnx's
            return result
        try:
            outputs = self._compute(self._call(arrays, linked))
        except OnnxqError as error:
            raise type(error)(f"node {where(self.onnx_node)}: {error}") from error
        return tuple(outputs[: len(self.onnx_node.output)])


class MachineOp(KernelOp):
    """A KernelOp whose products are added as a machine adds them."""

    saturation_mode: ClassVar[SaturationMode]
    hear: ClassVar[Hear | None]
    effect: ClassVar[SaturationEffect]

    def bound(self, inputs: Sequence[Array | None]) -> Array | None:
        """`IntegerOperator.bound_on` of this node."""
        return self.operator.bound_on(self._call(inputs), Accumulator(type(self).saturation_mode))

    def _compute(self, call: IntegerCall) -> tuple[Array, ...]:
        hear, node = type(self).hear, self.onnx_node
        note = None if hear is None else functools.partial(hear, node)
        accumulator = Accumulator(type(self).saturation_mode, note, type(self).effect)
        return self.operator.kernel_on(call, accumulator)


class PlainOp(OpRun):
    """A node of an operator that no kernel of onnxq knows: see `load_plain`."""

    op_domain = ""

    def _run(self, *inputs: Any, **_: Any) -> tuple[Any, ...]:
        plain = load_plain(self.onnx_node, self.run_params, inputs)
        outputs: tuple[Any, ...] = plain.run(*inputs)  # type: ignore[no-untyped-call]  # onnx's
        return outputs


def load_plain(
    node: onnx.NodeProto, run_params: Mapping[str, Any], inputs: Sequence[Array | None]
) -> OpRun:
    """A node on onnx's own implementation: of the default domain, in its opset."""
    nothing = f"node {where(node)}: neither onnxq nor onnx.reference has a kernel for it."
    if node.domain:
        raise UnsupportedError(nothing)
    try:
        plain: OpRun = _load_class(node, run_params, inputs)(node, run_params)
    except (NotImplementedError, RuntimeContextError, KeyError) as error:
        raise UnsupportedError(nothing) from error
    return plain


def _load_class(
    node: onnx.NodeProto, run_params: Mapping[str, Any], inputs: Sequence[Array | None]
) -> Callable[..., OpRun]:
    if node.op_type in PLAIN_OPS:
        return PLAIN_OPS[node.op_type]
    version, cls = run_params["opsets"][""], run_params["evaluator_cls"]
    if node.op_type in OLD_OPS and version < OLD_OPS[node.op_type][0]:
        return OLD_OPS[node.op_type][1]
    try:
        return load_op("", node.op_type, version, evaluator_cls=cls)  # type: ignore[no-any-return]  # onnx's
    except RuntimeContextError:
        types = [
            onnx.helper.make_tensor_type_proto(
                onnx.helper.np_dtype_to_tensor_dtype(x.dtype), x.shape
            )
            for x in inputs
            if x is not None
        ]
        found: Callable[..., OpRun] = load_op(
            "", node.op_type, version, node=node, input_types=types, evaluator_cls=cls
        )
        return found


def _value(attribute: onnx.AttributeProto) -> AttributeValue:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    plain: AttributeValue = value.decode() if isinstance(value, bytes) else value
    return plain


def op_classes() -> tuple[type[OpRun], ...]:
    """One OpRun class per operator and domain, for `new_ops` of a ReferenceEvaluator.

    Besides the kernels, the few float operators of com.microsoft that ONNX Runtime's optimized
    graphs have and that a line of NumPy computes.
    """
    return tuple(by_name().values())


def by_name() -> Mapping[tuple[str, str], type[OpRun]]:
    """(domain, op_type) -> class, of all operators that are registered by now."""
    operators = {
        (domain, op.op_type): op for op in catalog.all_integer_operators() for domain in op.domains
    }
    plain = {
        (op.domain, op.op_type): op
        for op in catalog.all_operators()
        if op.has_kernel() or hasattr(op, "float_kernel")
    }
    return _classes(tuple(operators.items()), tuple(plain.items()))


def on_machine(
    saturation_mode: SaturationMode,
    hear: Hear | None = None,
    effect: SaturationEffect = SaturationEffect.APPLIED,
) -> Mapping[tuple[str, str], type[OpRun]]:
    """Operators by name, as `by_name`, with the products of integers as a machine adds them."""
    made = dict(by_name())
    if saturation_mode is SaturationMode.EXACT:
        return made
    for key, cls in made.items():
        if issubclass(cls, KernelOp) and cls.operator.depends_on_machine():
            members = {
                "op_domain": key[0],
                "operator": cls.operator,
                "saturation_mode": saturation_mode,
                "hear": None if hear is None else staticmethod(hear),
                "effect": effect,
                "__module__": __name__,
            }
            made[key] = type(key[1], (MachineOp,), members)
    return made


@functools.lru_cache(maxsize=1)
def _classes(
    operators: tuple[tuple[tuple[str, str], IntegerOperator], ...],
    plain: tuple[tuple[tuple[str, str], Operator], ...],
) -> Mapping[tuple[str, str], type[OpRun]]:
    """The classes; made anew when operators were registered since."""
    on_integers = {key: catalog.find_integer(op.op_type, op.domain) for key, op in plain}
    served = {key: op for key, op in on_integers.items() if op is not None} | dict(operators)
    made = {(cls.op_domain, cls.__name__): cls for cls in (*FLOAT_OPS, *LOOPS)}
    for op_type in OLD_OPS:
        made["", op_type] = type(op_type, (PlainOp,), {"__module__": __name__})
    for (domain, op_type), op in sorted(served.items(), key=lambda item: item[0]):
        members = {"op_domain": domain, "operator": op, "__doc__": op.__doc__}
        made[domain, op_type] = type(op_type, (KernelOp,), members | {"__module__": __name__})
    return MappingProxyType(made)


def op_class(op_type: str, domain: str = "") -> type[OpRun]:
    """The OpRun class of one operator.

    Raises:
        UnsupportedError: there is none.
    """
    found = by_name().get((domain, op_type))
    if found is None:
        raise UnsupportedError(_unknown(op_type, domain))
    return found


def kernel(op_type: str, domain: str | None = None) -> Kernel:
    """The kernel of one operator on integers, as a function of arrays.

        (y,) = kernel("QLinearConv")([x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero], {})

    Args:
        op_type: "QLinearConv", or of the float model what runs on integers as it is ("MaxPool").
        domain: "" for ai.onnx; None: ai.onnx, or else com.microsoft.
    Returns:
        (inputs, attributes) -> all outputs; absent inputs are None. It raises ModelError where
        the operator has no such input or attribute in any version.
    Raises:
        UnsupportedError: there is none.
    """
    for place in ("", MICROSOFT) if domain is None else (domain,):
        found = catalog.find_integer(op_type, place)
        if found is not None:
            return _Call(op_type, place, found)
    raise UnsupportedError(_unknown(op_type, domain))


@dataclass(frozen=True, slots=True)
class _Call:
    """A kernel that refuses what its operator does not have, in place of ignoring it."""

    op_type: str
    domain: str
    operator: IntegerOperator

    def __call__(
        self, inputs: Sequence[Array | None], attributes: Mapping[str, AttributeValue]
    ) -> tuple[Array, ...]:
        check_call(self.domain, self.op_type, len(inputs), attributes)
        return self.operator.kernel(IntegerCall(self.op_type, inputs, attributes=attributes))


def _unknown(op_type: str, domain: str | None) -> str:
    known: dict[str, str] = {}
    for place, name in by_name():
        known[name] = "" if name in known and not known[name] else place
    (near, *_) = [*difflib.get_close_matches(op_type, known, n=1), ""]
    hint = f" Did you mean '{near}' of {known[near] or 'ai.onnx'}?" if near else ""
    what = op_type if domain is None else f"{domain or 'ai.onnx'} {op_type}"
    return f"onnxq has no kernel for {what}.{hint}"


# --- Nodes of older opsets as their newest schema has them, which is the one that kernels read
#
#     Split<split = [1, 3]>(x)     ->     Split(x, [1, 3])           opset 2 to 12
#     Resize(x, scales)            ->     Resize(x, -, scales)       opset 10
#
# ONNX made inputs of attributes (axes, pads, sizes), and put inputs between others. Both keep their
# names, so that the history of schemas in onnx.defs says where each belongs.


NEW_NAMES = {"value": "constant_value"}
"""Pad's attribute until opset 10 -> the input's name since; no other got a new one."""
MEANT = {
    ("Resize", 10): {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "opset 10"}
}
"""(op type, since_version) -> attributes that say what the operator did before it had them."""


@dataclass(frozen=True, slots=True)
class Move:
    """Places of a node's arguments in the newest schema.

    Attributes:
        inputs: new slot of each old one.
        attributes: name of an attribute -> slot of the input that it became.
        meant: attributes that the newest schema needs for the same meaning.
    """

    inputs: tuple[int, ...] = ()
    attributes: Mapping[str, int] = field(default_factory=dict)
    meant: Mapping[str, AttributeValue] = field(default_factory=dict)

    def newest_attributes(
        self, attributes: Mapping[str, AttributeValue]
    ) -> dict[str, AttributeValue]:
        """The attributes that stay attributes, and what the old schema meant without saying."""
        return {**self.meant, **{n: v for n, v in attributes.items() if n not in self.attributes}}

    def newest_inputs(
        self, inputs: Sequence[Array | None], attributes: Mapping[str, AttributeValue]
    ) -> list[Array | None]:
        """The inputs in their new slots, and those that were attributes.

        Lists of numbers become int64, single floats the type of the first input.
        """
        slots = [self.inputs[i] if i < len(self.inputs) else i for i in range(len(inputs))]
        taken = {slot: attributes[n] for n, slot in self.attributes.items() if n in attributes}
        found: list[Array | None] = [None] * (1 + max([*slots, *taken], default=-1))
        for slot, x in zip(slots, inputs, strict=True):
            found[slot] = x
        for slot, value in taken.items():
            found[slot] = _as_input(value, inputs)
        return found


NOTHING = Move()
"""Nodes whose arguments lie where the newest schema has them."""


def move_of(op_type: str, version: int) -> Move:
    """The way from the schema that an operator of ai.onnx had in an opset to its newest."""
    try:
        old = onnx.defs.get_schema(op_type, version)
    except onnx.defs.SchemaError:
        return NOTHING
    return _move(op_type, old.since_version)


@functools.cache
def _move(op_type: str, since: int) -> Move:
    old, new = onnx.defs.get_schema(op_type, since), onnx.defs.get_schema(op_type)
    slots = {formal.name.lower(): i for i, formal in enumerate(new.inputs)}
    inputs = tuple(slots.get(formal.name.lower(), i) for i, formal in enumerate(old.inputs))
    lost = [name for name in old.attributes if name not in new.attributes]
    became = {name: slots.get(NEW_NAMES.get(name, name).lower()) for name in lost}
    attributes = {name: slot for name, slot in became.items() if slot is not None}
    meant = MEANT.get((op_type, since), {})
    if not attributes and not meant and inputs == tuple(range(len(inputs))):
        return NOTHING
    return Move(inputs, attributes, meant)


def _as_input(value: AttributeValue, inputs: Sequence[Array | None]) -> Array:
    """The array that the newest operator gets in place of an attribute."""
    if not isinstance(value, float):
        return np.asarray(value, np.int64)
    first = inputs[0] if inputs else None
    return np.asarray(value, np.float32 if first is None else first.dtype)
