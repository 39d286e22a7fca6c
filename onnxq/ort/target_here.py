"""Target of this machine, as ONNX Runtime's kernels compute here."""

import functools

import numpy as np
import onnx_ir as ir

from onnxq.ort.runtime import FirstRunIn, open_session
from onnxq.targets import Target, detect, find
from onnxq.targets.accumulation import SaturationMode

LARGEST = 255 * 127 * 2
"""Sum of two products of uint8 by int8, which int16 does not hold."""


@functools.cache
def target_here() -> Target:
    """`detect`, unless it says that pairs of products saturate and ONNX Runtime's do not.

    Where a machine does not say what it has (Windows, macOS), `detect` names the most careful.
    """
    found = detect()
    if found.saturation_mode is SaturationMode.SATURATES and _pair_of_products() == LARGEST:
        return find("x86-vnni")
    return found


def saturates_here_alone(target: Target) -> bool:
    """Whether sums of pairs of products saturate on this machine, and not on the target."""
    if target.reduces_range or target.saturation_mode is SaturationMode.SATURATES:
        return False
    return target_here().saturation_mode is SaturationMode.SATURATES


def _pair_of_products() -> int:
    """Result of [255, 255] by [127, 127]: LARGEST, or 32767 where it saturates."""
    a = ir.val("a", ir.DataType.UINT8, [1, 2])
    b = ir.val("b", const_value=ir.tensor(np.full((2, 1), 127, np.int8), name="b"))
    y = ir.val("y", ir.DataType.INT32, [1, 1])
    node = ir.Node("", "MatMulInteger", [a, b], outputs=[y], name="matmul")
    graph = ir.Graph([a], [y], nodes=[node], initializers=[b], opset_imports={"": 21})
    here = FirstRunIn.THIS_PROCESS
    with open_session(ir.Model(graph, ir_version=10), threads=1, first_run=here) as session:
        (result,) = session.run({"a": np.full((1, 2), 255, np.uint8)})
    return int(np.asarray(result).item())
