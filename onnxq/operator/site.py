"""Where a lowering writes: the float node, what is known of it, and the tape for the new nodes.

NodeSite         tape, node, inputs: constants, the float node itself on other inputs
├── Site         + NodePlan: for `Operator.lower`
└── DynamicSite  + DynamicNodePlan: for `Operator.lower_dynamic`
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir
from onnx_ir.tape import Tape

from onnxq.core.arrays import Array
from onnxq.dtypes import QDType
from onnxq.errors import UnsupportedError
from onnxq.operator.node_plan import DynamicNodePlan, NodePlan
from onnxq.qparams import QParams

MICROSOFT = "com.microsoft"
REAL = ir.TensorType(ir.DataType.FLOAT)


@dataclass(frozen=True, slots=True, eq=False)
class NodeSite:
    """A float node that is written anew.

    Attributes:
        tape: records the new nodes and initializers.
        node: the float node; gives names, attributes, number and shapes of outputs.
        inputs: per input slot, the value that the new nodes read.
    """

    tape: Tape
    node: ir.Node
    inputs: Sequence[ir.Value | None]

    def attributes(self, *names: str) -> dict[str, ir.Attr]:
        """The node's own attributes; with names, those of them that it has."""
        known = self.node.attributes.items()
        return {key: value for key, value in known if not names or key in names}

    def constant(self, suffix: str, array: Array) -> ir.Value:
        """An initializer named `<node>_<suffix>`: unique as long as node names are."""
        return self.tape.initializer(ir.tensor(array), name=f"{self.node.name}_{suffix}")

    def initializer(self, suffix: str, array: Array, qdtype: QDType) -> ir.Value:
        """Integers as an initializer named `<node>_<suffix>`."""
        tensor = ir.tensor(array, dtype=ir.DataType[qdtype.onnx])
        return self.tape.initializer(tensor, name=f"{self.node.name}_{suffix}")

    def scale_and_zero_point(self, label: str, qparams: QParams) -> tuple[ir.Value, ir.Value]:
        """Initializers `<node>_<label>_scale` and `<node>_<label>_zero_point`."""
        scale = self.constant(f"{label}_scale", qparams.scale)
        return scale, self.initializer(f"{label}_zero_point", qparams.zero_point, qparams.dtype)

    def step(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        name: str,
        kind: ir.TypeProtocol | None = REAL,
        attributes: Mapping[str, ir.Attr | int | Sequence[int]] | None = None,
    ) -> ir.Value:
        """The one output of a new node of ai.onnx, typed; float32 unless `kind` says otherwise."""
        value = self.tape.op(op_type, list(inputs), attributes, name=name)
        value.type = kind
        return value

    def float_node(self, inputs: Sequence[ir.Value | None]) -> list[ir.Value]:
        """The outputs of the float node on other inputs, typed and shaped as they were."""
        outputs = self.tape.op_multi_out(
            self.node.op_type,
            inputs,
            self.attributes(),
            num_outputs=len(self.node.outputs),
            domain=self.node.domain,
            name=self.node.name,
        )
        for value, old in zip(outputs, self.node.outputs, strict=True):
            value.type, value.shape = old.type, old.shape
        return list(outputs)


@dataclass(frozen=True, slots=True, eq=False)
class DynamicSite(NodeSite):
    """A float node whose weights are stored as integers; the results stay float.

    Attributes:
        inputs: for a weight of `dynamic_rule`, the initializer of its integers (float16 for
            Precision.WEIGHT_ONLY_FLOAT16) in its stored layout; else the value as it is.
        plan: precision, and qparams of the weights.
    """

    plan: DynamicNodePlan


@dataclass(frozen=True, slots=True, eq=False)
class Site(NodeSite):
    """A float node that is written in integers.

    Attributes:
        inputs: the integer value where plan.inputs has qparams, else the value as it is.
        plan: qparams per slot.
    """

    plan: NodePlan

    def qparams_in(self, slot: int) -> QParams:
        """Per-tensor qparams of an input.

        Raises:
            ShapeError: there are none, or they are not per-tensor.
        """
        return self.plan.per_tensor_in(self.node.op_type, slot)

    def qparams_out(self, slot: int = 0) -> QParams:
        """Per-tensor qparams of an output.

        Raises:
            ShapeError: there are none, or they are not per-tensor.
        """
        return self.plan.per_tensor_out(self.node.op_type, slot)

    def shared(self, slots: Sequence[int] = (0,)) -> QParams:
        """The qparams that the inputs in `slots` and all outputs have in common.

        Raises:
            ShapeError: they differ: integers can be copied only between tensors of equal qparams.
        """
        return self.plan.shared(self.node.op_type, slots)

    def emit(
        self,
        inputs: Sequence[ir.Value | None],
        *,
        op_type: str | None = None,
        domain: str = "",
        attributes: Mapping[str, ir.Attr | int] | None = None,
    ) -> list[ir.Value]:
        """Adds one node that stands for the float node; its outputs have the plan's types.

        Args:
            inputs: of the new node.
            op_type: default: the float node's own, with its attributes.
            domain: of the new node.
            attributes: of the new node; default: the float node's.
        """
        outputs = self.tape.op_multi_out(
            op_type or self.node.op_type,
            inputs,
            self.attributes() if attributes is None else attributes,
            num_outputs=len(self.node.outputs),
            domain=domain,
            name=self.node.name,
        )
        known = self.plan.outputs
        for slot, (value, old) in enumerate(zip(outputs, self.node.outputs, strict=True)):
            qparams = known[slot] if slot < len(known) else None
            value.shape = old.shape
            value.type = ir.TensorType(ir.DataType[qparams.dtype.onnx]) if qparams else old.type
        return list(outputs)

    def on_integers(self) -> list[ir.Value]:
        """The same operator, with the same attributes, on integers in place of reals.

        Raises:
            ShapeError: qparams differ, so that integers cannot be copied.
        """
        self.shared([i for i, qparams in enumerate(self.plan.inputs) if qparams is not None])
        return self.emit(self.inputs)

    def qlinear(self, op_type: str, attributes: Mapping[str, ir.Attr | int]) -> list[ir.Value]:
        """A com.microsoft QLinear operator: integers, scale, zero point per operand, the result's.

        Raises:
            UnsupportedError: operands and result are not all uint8 or all int8.
            ShapeError: an operand or the result has no per-tensor qparams.
        """
        self.check_same_type()
        slots: list[ir.Value | None] = []
        for i, value in enumerate(self.inputs):
            slots += [value, *self.scale_and_zero_point(f"in{i}", self.qparams_in(i))]
        slots += self.scale_and_zero_point("out0", self.qparams_out())
        return self.emit(slots, op_type=op_type, domain=MICROSOFT, attributes=attributes)

    def check_pair(self, first: int = 0, second: int = 1) -> None:
        """Guards the types that ONNX Runtime's MatMuls exist for.

        Raises:
            UnsupportedError: not uint8 with uint8 or int8, nor int8 with int8.
        """
        x, w = self.plan.inputs[first], self.plan.inputs[second]
        # a registered type of 6 bits, say, is the ONNX type that stores it
        names = (str(x.dtype) if x else "float32", w.dtype.onnx.lower() if w else "float32")
        if names not in {("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8")}:
            raise UnsupportedError(
                f"{self._where}: ONNX Runtime has no kernel for {names[0]} activations "
                f"with {names[1]} weights; choose uint8 activations, or int8 for both."
            )
        y = self.plan.outputs[0]
        if y is not None and x is not None and y.dtype != x.dtype:
            raise UnsupportedError(
                f"{self._where}: input {x.dtype}, output {y.dtype}; "
                "ONNX Runtime's kernel wants the same type for both."
            )

    def check_same_type(self) -> None:
        """Guards element-wise kernels, which take uint8 or int8, the same for all operands.

        Raises:
            UnsupportedError: types differ, or are none of the two.
        """
        known = (*self.plan.inputs, *self.plan.outputs)
        names = {str(p.dtype) for p in known if p is not None}
        if len(names) != 1 or not names <= {"uint8", "int8"}:
            raise UnsupportedError(
                f"{self._where}: operands and result are {', '.join(sorted(names))}; "
                "ONNX Runtime's kernel wants uint8 or int8, the same for all."
            )

    @property
    def _where(self) -> str:
        return f"{self.node.op_type} '{self.node.name}'"
