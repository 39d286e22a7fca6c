"""An average over windows becomes a depthwise convolution, which ONNX Runtime runs in integers.

QLinearAveragePool converts to float tap by tap and runs channels first: 0.14 to 0.5 of the float
pool's speed (benchmarks/elementwise.py), and whatever stands behind it loses the layout of the
convolutions. A float AveragePool between integers costs four conversions and two transposes.
The convolution runs channels last and adds exactly: a ShuffleNet takes 0.86 of float's time with
convolutions, 1.06 with float pools. In float, a convolution takes the time of the pool.
"""

import math
from collections.abc import Collection, Sequence

import numpy as np
import onnx_ir as ir

from onnxq.graph.edit import FreeNames, all_nodes, new_constant
from onnxq.graph.passes.windows import is_padded

POOL = "AveragePool"
RANKS = (3, 4)  # a convolution of three spatial axes is unfolded tap by tap
UNPADDED = ("NOTSET", "VALID")  # modes in which `pads` says all


class PoolToConv(ir.passes.InPlacePass):
    """AveragePool(x) = Conv(x, W, group=C), W[c, 0, k] = 1 / taps, where every tap counts.

    That is: without ceil_mode, and without padding or with count_include_pad. A window over all of
    x is GlobalAveragePool(x). All graphs; x is float32 with a known number of channels, more than
    one, and one or two spatial axes. A window of one tap stays.

    Args:
        asked: op types that a qconfig names; where AveragePool is one, all of them stay.
    """

    def __init__(self, asked: Collection[str] = ()) -> None:
        super().__init__()
        self._asked = asked

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        found = [] if POOL in self._asked else [n for n in all_nodes(model) if _taps(n)]
        names = FreeNames(model) if found else None
        for node in found:
            assert names is not None
            _rewrite(node, names)
        return ir.passes.PassResult(model, modified=bool(found))


def _taps(node: ir.Node) -> int:
    """Number of taps that each window of this pool is divided by; 0: it stays."""
    if node.op_type != POOL or node.domain:
        return 0
    x, attributes = node.inputs[0], node.attributes
    if x is None or x.shape is None or x.dtype != ir.DataType.FLOAT or len(x.shape) not in RANKS:
        return 0
    channels = x.shape[1]
    if not isinstance(channels, int) or channels < 2:
        return 0
    if attributes.get_int("ceil_mode", 0) or attributes.get_string("auto_pad") not in (
        None,
        *UNPADDED,
    ):
        return 0
    if is_padded(node) and not attributes.get_int("count_include_pad", 0):
        return 0
    taps = math.prod(_kernel(node))
    return taps if taps > 1 else 0


def _kernel(node: ir.Node) -> Sequence[int]:
    return node.attributes.get_ints("kernel_shape", [])


def _rewrite(node: ir.Node, names: FreeNames) -> None:
    x, kernel = node.inputs[0], _kernel(node)
    assert x is not None
    assert x.shape is not None
    node.attributes.pop("count_include_pad", None)
    node.attributes.pop("ceil_mode", None)
    if list(x.shape.dims[2:]) == list(kernel) and not is_padded(node):
        node.op_type = "GlobalAveragePool"
        node.attributes.clear()
        return
    channels = x.shape[1]
    assert isinstance(channels, int)
    node.op_type = "Conv"
    node.attributes["group"] = ir.AttrInt64("group", channels)
    weight = np.full((channels, 1, *kernel), 1 / math.prod(kernel), np.float32)
    node.resize_inputs(2)
    name = names.value(f"{node.outputs[0].name}_taps")
    node.replace_input_with(1, new_constant(node, name, weight))
