"""The type that int8 activations are stored in: uint8, unless the target runs int8 ones.

    code + 128, zero_point + 128:    (q - zero_point) * scale is the same number

ONNX Runtime fuses Conv and MatMul with int8 activations on ARM. On x86 it turns them into uint8 by
itself, but only where a Q has one DQ behind it, and that one reader: not behind a Clip on integers,
which a Relu of a symmetric range becomes, and not where a tensor branches. The rest computes in
float32. Stored as uint8 from the start, all of it runs in integers on every machine.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from onnxq.dtypes import INT8, UINT8
from onnxq.errors import listed
from onnxq.graph.walk import node_name, walk
from onnxq.static.insertion.decision import Quantize, weight_observer

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from onnxq.dtypes import QDType
    from onnxq.qconfig import QConfigMapping
    from onnxq.static.insertion.decision import Decision
    from onnxq.targets import Target


@dataclasses.dataclass(frozen=True, slots=True)
class Storage:
    """How int8 activations are stored.

    Attributes:
        int8: the type of integers that observers give as int8: INT8 or UINT8.
        notes: what a user should know of it; none where no activation is int8.
    """

    int8: QDType
    notes: tuple[str, ...] = ()

    def of(self, dtype: QDType) -> QDType:
        """The type that integers of that type are stored in."""
        return self.int8 if dtype == INT8 else dtype


def storage_of(
    model: ir.Model,
    decisions: Mapping[str, Decision],
    tensors: Mapping[str, QDType],
    qconfig: QConfigMapping,
    target: Target,
) -> Storage:
    """The Storage of a model: int8 where the target runs it and nothing in the model is uint8.

    Args:
        model: canonical.
        decisions: node name -> decision.
        tensors: activation tensor -> type that its observer gives.
        qconfig: names the weights' observers.
        target: says whether int8 activations run in integers.
    """
    signed = [tensor for tensor, dtype in tensors.items() if dtype == INT8]
    if not signed:
        return Storage(INT8)
    which = f"int8 activations ({listed(signed)})"
    as_uint8 = "are stored as uint8 with zero_point + 128, which stands for the same numbers"
    if not target.int8_activations:
        return Storage(
            UINT8,
            (
                f"{which} {as_uint8}: with int8 integers ONNX Runtime on x86 computes Conv and "
                "MatMul in float32 behind branches and behind a Relu on symmetric integers",
            ),
        )
    if UINT8 in tensors.values() or UINT8 in _weight_types(model, decisions, qconfig):
        return Storage(
            UINT8,
            (
                f"{which} {as_uint8}: other activations or weights are uint8, which ONNX Runtime "
                "has no kernels for together with int8 activations",
            ),
        )
    return Storage(
        INT8,
        (
            f"{which} stay int8, which {target} runs in integers. ONNX Runtime on x86 computes "
            "such a QDQ model in float32 in part: use target 'portable' for both",
        ),
    )


def _weight_types(
    model: ir.Model, decisions: Mapping[str, Decision], qconfig: QConfigMapping
) -> set[QDType]:
    found = set()
    for node, _ in walk(model.graph):
        decision = decisions[node_name(node)]
        if not isinstance(decision, Quantize) or decision.folded_into:
            continue
        if decision.rule.weight is not None:
            found.add(weight_observer(node, decision.rule, qconfig)().dtype)
    return found
