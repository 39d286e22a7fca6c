"""Long short-term memory."""

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from onnxq import operator as op
from onnxq.errors import UnsupportedError
from onnxq.operator.examples import ints32, normal
from onnxq.operator.nodes import is_constant, shape
from onnxq.operator.site import MICROSOFT, REAL
from onnxq.operators._activations import FUNCTIONS
from onnxq.operators._dynamic import INTEGERS_OR_STORED, STORED, stored_reals
from onnxq.operators._recurrent import dynamic_entry, is_batch_first, not_rows
from onnxq.qparams import PerChannel, PerTensor, QParams

STATES = (5, 6)  # initial_h, initial_c
TRANSPOSED = (0, 2, 1)  # (D, 4 H, I) -> (D, I, 4 H), as DynamicQuantizeLSTM wants its weights
MANY = 1024  # neurons from which on a scale per column costs nothing (.91 at 256, .96 at 512)
SWAPPED = (1, 0, 2)  # between (N, T, I) and (T, N, I), (N, D, H) and (D, N, H)
Y_BATCH_FIRST = (2, 0, 1, 3)  # (T, D, N, H) -> (N, T, D, H)


@op.register
class LSTM(op.Operator):
    """Y, Y_h, Y_c = LSTM(X, W, R, B, sequence_lens, initial_h, initial_c, P); ONNX LSTM-14.

    Dynamic: com.microsoft DynamicQuantizeLSTM, both MatMuls in integers, the whole X
    quantized at once and H at each step. Layout 1, which ONNX Runtime's LSTM lacks, by Transposes.
    """

    op_type = "LSTM"

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """No kernel has scales that are known before the model runs."""
        return op.Float.because(
            "ONNX Runtime has no LSTM with scales that are known ahead: its integer kernel "
            "quantizes activations when it runs. Dynamic quantization has it: "
            f"{dynamic_entry('LSTM')}"
        )

    def dynamic_rule(self, node: ir.Node) -> op.DynamicRule | op.Float:
        """Integers, but for activations that call the C library: no kernel can check those.

        One scale per gate and neuron; the two directions share it. A small R may have one for all
        where speed is asked for: it runs at each step.
        """
        if not (is_constant(node, 1) and is_constant(node, 2)):
            return op.Float.because(
                "its weights are computed at run time; constant ones are needed"
            )
        sizes = shape(node, 2)
        hidden = None if sizes is None or len(sizes) != 3 else sizes[2]
        weights = (
            op.DynamicWeight(1, 1, TRANSPOSED),
            op.DynamicWeight(2, 1, TRANSPOSED, few_rows=hidden is not None and hidden < MANY),
        )
        names = node.attributes.get_strings("activations", ())
        odd = [name for name in names if name.lower() not in FUNCTIONS]
        if odd:
            return op.DynamicRule(
                weights,
                STORED,
                missing=f"its activation {odd[0]} differs in the last bit between machines, which "
                "moves integers from step to step",
                no_float_kernel=is_batch_first(node),
            )
        return op.DynamicRule(
            weights,
            INTEGERS_OR_STORED,
            saturating_pairs=True,
            not_rows=not_rows(node),
            no_float_kernel=is_batch_first(node),
        )

    def cases(self) -> Iterable[op.Case]:
        yield from _cases()

    def lower_dynamic(self, site: op.DynamicSite) -> Sequence[ir.Value]:
        """DynamicQuantizeLSTM, or LSTM on weights that are dequantized at load."""
        slots = [*site.inputs, *[None] * (8 - len(site.inputs))]
        batch_first = is_batch_first(site.node)
        if batch_first:
            for slot in (0, *STATES):
                value = slots[slot]
                if value is not None:
                    slots[slot] = _transposed(site, f"{site.node.name}_in{slot}", value, SWAPPED)
        if site.plan.precision is op.Precision.DYNAMIC_INT8:
            outputs = _integer(site, slots)
        else:
            outputs = _stored(site, slots)
        if batch_first:
            orders = (Y_BATCH_FIRST, SWAPPED, SWAPPED)
            outputs = [
                _transposed(site, f"{site.node.name}_out{i}", value, orders[i])
                for i, value in enumerate(outputs)
            ]
        for value, old in zip(outputs, site.node.outputs, strict=False):
            value.type, value.shape = REAL, old.shape
        # an absent output stays absent; the node that computes it keeps its own name for it
        return [
            value if old.name != "" else ir.Value(name="")
            for value, old in zip(outputs, site.node.outputs, strict=False)
        ]


def _integer(site: op.DynamicSite, slots: list[ir.Value | None]) -> list[ir.Value]:
    """DynamicQuantizeLSTM with all outputs, read or not.

    Without Y, ONNX Runtime 1.31 quantizes H together with what it left in rows that have ended, so
    that these change what the others get.
    """
    columns = any(q is not None and q.granularity != PerTensor() for q in site.plan.qparams)
    for label, slot, qparams in zip("WR", (1, 2), site.plan.qparams, strict=True):
        integers = slots[slot]
        assert integers is not None
        assert integers.shape is not None, "constants have a shape"
        assert qparams is not None, "the precision is dynamic_int8"
        directions, _, width = integers.shape.numpy()
        each = (directions, width) if columns else (directions,)
        slots += _scale_and_zero_point(site, label, each, qparams)
    attributes = _attributes(site.node)
    if "hidden_size" not in attributes:
        integers = slots[2]
        assert integers is not None
        assert integers.shape is not None
        attributes["hidden_size"] = ir.AttrInt64("hidden_size", integers.shape.numpy()[1])
    attributes.setdefault("direction", ir.AttrString("direction", "forward"))
    return list(
        site.tape.op_multi_out(
            "DynamicQuantizeLSTM",
            slots,
            attributes,
            num_outputs=3,
            domain=MICROSOFT,
            name=site.node.name,
        )
    )


def _scale_and_zero_point(
    site: op.NodeSite, label: str, each: tuple[int, ...], qparams: QParams
) -> list[ir.Value]:
    """Scale and zero point as DynamicQuantizeLSTM has them: (D,), or (D, 4 H).

    ONNX Runtime reads as many zero points of R as W has: where R has fewer, from memory that is not
    theirs, and may refuse to run (1.23, 1.27). So both have the same shape: `each`, or, of one
    direction, whose columns share it, (1,); then a scale per tensor is (1,), too, which is faster.
    """
    where = f"LSTM '{site.node.name}', {label}"
    if qparams.dtype.onnx not in {"INT8", "UINT8"}:
        raise UnsupportedError(
            f"{where}: ONNX Runtime has no integer LSTM with {qparams.dtype} weights; choose int8, "
            "or the precision 'weight_only', which computes in float."
        )
    granularity = qparams.granularity
    columns = isinstance(granularity, PerChannel) and granularity.axis in (2, -1)
    if not (columns or isinstance(granularity, PerTensor)):
        raise UnsupportedError(
            f"{where}: weights with {granularity} have no integer LSTM; choose one scale per "
            "column or for the tensor, or the precision 'weight_only'."
        )
    allowed = 0 if qparams.dtype.signed else qparams.zero_point.reshape(-1)[:1]
    if columns and (qparams.zero_point != allowed).any():
        raise UnsupportedError(
            f"{where}: zero points differ between columns, or are not 0 for int8; ONNX Runtime's "
            "integer LSTM wants one for all. Choose a symmetric qscheme, or one scale for the "
            "tensor."
        )
    is_one = each[0] == 1
    scale = np.broadcast_to(qparams.scale, each[:1] if is_one and not columns else each)
    point = qparams.zero_point.reshape(-1)[:1]
    points = np.broadcast_to(point, each[:1] if is_one else each)
    return [
        site.constant(f"{label}_scale", np.ascontiguousarray(scale)),
        site.initializer(f"{label}_zero_point", np.ascontiguousarray(points), qparams.dtype),
    ]


def _stored(site: op.DynamicSite, slots: list[ir.Value | None]) -> list[ir.Value]:
    """LSTM itself, W and R dequantized and transposed back when a session is made."""
    for slot, qparams in zip((1, 2), site.plan.qparams, strict=True):
        integers = slots[slot]
        assert integers is not None
        reals = stored_reals(site, integers, qparams)
        slots[slot] = _transposed(site, f"{site.node.name}_{slot}", reals, TRANSPOSED)
    while slots and slots[-1] is None:
        slots.pop()
    return list(
        site.tape.op_multi_out(
            "LSTM",
            slots,
            _attributes(site.node),
            num_outputs=len(site.node.outputs),
            name=site.node.name,
        )
    )


def _attributes(node: ir.Node) -> dict[str, ir.Attr]:
    """The node's, without the layout, which Transposes take care of."""
    return {name: value for name, value in node.attributes.items() if name != "layout"}


def _transposed(site: op.NodeSite, stem: str, x: ir.Value, perm: Sequence[int]) -> ir.Value:
    y = site.step("Transpose", [x], f"{stem}_transpose", attributes={"perm": [*perm]})
    if x.shape is not None:
        y.shape = ir.Shape([x.shape[axis] for axis in perm])
    return y


def _cases() -> Iterable[op.Case]:
    hidden = 6

    def case(
        name: str, directions: int = 1, extra: Sequence[int] = (), **attributes: op.AttributeValue
    ) -> op.Case:
        x = normal(4, 3, 5)
        states = [normal(directions, 3, hidden, seed=s) / np.float32(4) for s in (5, 6)]
        if attributes.get("layout"):
            x, states = x.transpose(SWAPPED), [state.transpose(SWAPPED) for state in states]
        inputs = [
            x,
            normal(directions, 4 * hidden, 5, seed=1) / np.float32(2),
            normal(directions, 4 * hidden, hidden, seed=2) / np.float32(2),
            normal(directions, 8 * hidden, seed=3) / np.float32(4),
            ints32(4, 2, 3),
            *states,
            normal(directions, 3 * hidden, seed=7) / np.float32(4),
        ]
        given = tuple(x if i < 3 or i in extra else None for i, x in enumerate(inputs))
        attrs: dict[str, op.AttributeValue] = {"hidden_size": hidden, **attributes}
        constants = tuple(i for i in (1, 2, 3, 7) if given[i] is not None)
        return op.Case(name, given, constants, attrs, 3)

    everything = (3, 4, 5, 6, 7)
    yield case("plain")
    yield case("bias", 1, (3,))
    yield case("all inputs", 1, everything)
    yield case("reverse", 1, everything, direction="reverse")
    yield case("bidirectional", 2, everything, direction="bidirectional")
    yield case("batch first", 2, (3, 5, 6), direction="bidirectional", layout=1)
    yield case("clip, input_forget", 1, (3,), clip=0.5, input_forget=1)
    yield case("other activations", 1, (3,), activations=["HardSigmoid", "Relu", "Softsign"])
    yield case("activations of the C library", 1, (3,), activations=["Sigmoid", "Elu", "Tanh"])
