"""Mean along axes."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from onnxq import operator as op
from onnxq.affine import dequantize, quantize
from onnxq.dtypes import INT8, UINT8
from onnxq.operator.examples import ints, normal
from onnxq.operators._function import lower_around
from onnxq.operators._qlinear import channels_first, channels_last
from onnxq.operators._reduce import NOT_KNOWN, axes_of, axes_of_node, summands
from onnxq.operators._sums import count_over, sum_over
from onnxq.operators.global_average_pool import GlobalAveragePool

POOL_RANKS = (3, 4, 5)


@op.register
class ReduceMean(op.Operator):
    """Y = mean of X over the given axes, or over all; ONNX ReduceMean-18.

    Over all axes but the first and the last (the tokens of a transformer, images with the channels
    last) that is com.microsoft QLinearGlobalAveragePool with channels_last, in integers: measured
    5 to 16 times as fast as the float operator. Over all but the first two it is the same pool with
    the channels first. Other axes have no integer kernel: ONNX Runtime sums in float32; see
    ReduceSum.
    """

    op_type = "ReduceMean"

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """Integers where it is a pool; else computed in float32."""
        found = axes_of_node(node)
        if found is None:
            return NOT_KNOWN
        is_pool = pool_layout(*found) is not None
        precision = op.Precision.INT8 if is_pool else op.Precision.FLOAT_BETWEEN_QDQ
        return op.Rule(op.OpCategory.ELEMENTWISE, precision=precision, lowered=is_pool)

    def responses(self, node: ir.Node) -> tuple[op.Response, ...]:
        """Errors of all elements, which even each other out; of an unknown number, that of one."""
        count = summands(node) or 1
        return (op.Summed(0, count, 1.0 / count),)

    def cases(self) -> Iterable[op.Case]:
        x = normal(2, 30, 4)
        yield op.Case("tokens", (x, ints(1)), (1,))
        yield op.Case("tokens, dropped", (x, ints(-2)), (1,), {"keepdims": 0})
        yield op.Case("channels last", (normal(2, 5, 6, 3), ints(2, 1)), (1,), {"keepdims": 0})
        yield op.Case("channels first", (normal(2, 3, 5, 6), ints(2, 3)), (1,))
        yield op.Case("attribute of opset 13", (x,), (), {"axes": [1]}, opset=13)
        yield op.Case("last but of rank 2", (normal(9, 40), ints(-1)), (1,))
        yield op.Case("first", (x, ints(0)), (1,), {"keepdims": 0})
        yield op.Case("all axes", (x,))
        yield op.Case("none", (x, ints()), (1,), {"noop_with_empty_axes": 1})
        yield op.Case("empty batch", (x[:0], ints(1)), (1,))

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        """QLinearGlobalAveragePool, and Squeeze where the axes are dropped; or around float."""
        found = axes_of_node(site.node)
        layout = None if found is None or not _is_narrow(site.plan) else pool_layout(*found)
        if found is None or layout is None:
            return lower_around(site)
        attributes = {"channels_last": layout}
        (y,) = replace(site, inputs=site.inputs[:1]).qlinear("QLinearGlobalAveragePool", attributes)
        if site.node.attributes.get_int("keepdims", 1):
            return [y]
        dropped = site.constant("axes", np.array(found[1]))
        squeezed = site.tape.op("Squeeze", [y, dropped], name=f"{site.node.name}_squeeze")
        squeezed.type, squeezed.shape, y.shape = y.type, y.shape, None
        return [squeezed]

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        x = call.integers(0)
        p, q = call.qparams_in(0), call.qparams_out()
        axes = axes_of(call, x.ndim, call.optional_vector(1))
        layout = pool_layout(x.ndim, axes) if _is_narrow(call.plan) else None
        if layout is not None:
            order = op.NodeCall(call.op_type, (), attributes={"channels_last": layout})
            (y,) = GlobalAveragePool().kernel(
                replace(call, inputs=[channels_first(order, x)], attributes={})
            )
            y = channels_last(order, y)
            return (y if call.integer("keepdims", 1) else y.squeeze(tuple(axes)),)
        count = count_over(x.shape, axes)
        if count == 0:
            raise call.shape_error(f"x {x.shape} has no elements along axes {axes}.")
        mean = sum_over(call, dequantize(x, p), axes) / np.float32(count)
        return (quantize(np.asarray(mean), q),)


def pool_layout(rank: int, axes: Sequence[int]) -> int | None:
    """`channels_last` of the global pool that averages over these axes; None: there is none."""
    if rank not in POOL_RANKS:
        return None
    if list(axes) == list(range(1, rank - 1)):
        return 1
    return 0 if list(axes) == list(range(2, rank)) else None


def _is_narrow(plan: op.NodePlan) -> bool:
    """Whether the pool has a kernel for the integers."""
    known = {p.dtype for p in (plan.inputs[0], plan.outputs[0]) if p is not None}
    return known in ({UINT8}, {INT8})
