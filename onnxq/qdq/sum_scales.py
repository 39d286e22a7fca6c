"""Scales of sums and products for which every machine computes the same integers.

x86 adds tensors of integers (QLinearAdd, which Add, Sub and HardSigmoid become) in float32, with
fused multiply-adds from AVX2 on and without them before; ARM adds in fixed point; WebAssembly
divides. They multiply (QLinearMul) in float32 too: ARM with a fused multiply-add, WebAssembly by a
division. For nearly all integers they round to the same; near ties they may not: with any scales, 0
to 3 of all 65,536 pairs of integers differ on ARM (operators/_machine_sums.py and _divided.py have
the counts of others), with scales that are powers of two up to a quarter of them. Whether a pair
differs depends on the last bits of the scales. So the scale of the result is raised to the first
that makes all pairs agree: usually by 1 in a million, and by LARGEST at most.
"""

import enum
from collections import ChainMap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from onnxq import catalog
from onnxq.core.arrays import Array
from onnxq.dtypes import INT8, UINT8
from onnxq.operator import AttributeValue, Call, NodePlan
from onnxq.qparams import QParams, stored_as

ADD = "Add"
"""The one of these operators that ONNX Runtime makes a QLinearAdd of by itself."""
ROUNDS = 4  # a result may be an operand of another sum, or share its scale with one
FINEST, COARSEST = -22, -10  # powers of two that a scale is raised by, relative to itself
MULTIPLES = (1, 3, 5, 7)
LARGEST = MULTIPLES[-1] * 2.0 ** (COARSEST - 1)
"""Largest raise of a scale by one sum, relative to itself: 0.35 %, 0.9 integers in 255."""


class Among(enum.Enum):
    """Computations that have to give a node's integers alike."""

    MACHINES = "machines"
    """All machines' kernels."""
    ORDERS = "orders"
    """One machine's kernel, whichever operand it takes first."""


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum or product whose integers may depend on the machine, unless its scales are chosen.

    Attributes:
        op_type: of the float node, such as Add.
    """

    name: str
    op_type: str
    domain: str
    inputs: tuple[str | None, ...]
    outputs: tuple[str | None, ...]
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict, hash=False)
    constants: Mapping[int, Array] = field(default_factory=dict, compare=False)
    among: Among = Among.MACHINES

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of its tensors of integers, on whose qparams alone it depends whether it agrees."""
        return tuple(name for name in (*self.inputs, *self.outputs) if name is not None)

    def agrees(self, tensors: Mapping[str, QParams]) -> bool:
        """Whether the node computes the same integers, with these qparams, among what has to agree.

        Integers of int8 are asked about as uint8 too: ONNX Runtime on x86 shifts them by 128 when
        it loads the model, and floats round otherwise there.
        """
        operator = catalog.find(self.op_type, self.domain)
        assert operator is not None, "sums are of operators that are known"
        own = {name: tensors[name] for name in self.tensors}
        signed = {name: qparams for name, qparams in own.items() if qparams.dtype == INT8}
        forms = [own]
        if signed:
            forms.append(own | {name: stored_as(q, UINT8) for name, q in signed.items()})
        agree = operator.agrees if self.among is Among.MACHINES else operator.agrees_with_itself
        return all(agree(self._call(form)) for form in forms)

    def _call(self, tensors: Mapping[str, QParams]) -> Call:
        inputs, outputs = (
            tuple(None if name is None else tensors[name] for name in names)
            for names in (self.inputs, self.outputs)
        )
        given = tuple(self.constants.get(slot) for slot in range(len(inputs)))
        return Call(self.op_type, given, NodePlan(inputs, outputs), attributes=self.attributes)


def raise_scales(
    sums: Sequence[Sum], groups: Mapping[str, Collection[str]], tensors: Mapping[str, QParams]
) -> tuple[dict[str, QParams], list[Sum]]:
    """Scales of results, raised until every sum agrees; and the sums that no scale near helps."""
    looked = _Looked(sums, dict(tensors))
    for _ in range(ROUNDS):
        upset = looked.upset()
        if not upset:
            break
        for i in upset:
            if not looked.agrees(i):  # another one may have helped
                result = next(name for name in sums[i].outputs if name is not None)
                looked.change(_raised(sums[i], groups[result], looked.tensors))
    return looked.tensors, [sums[i] for i in looked.upset()]


class _Looked:
    """Sums that are asked whether they agree, each once until one of its tensors changes."""

    def __init__(self, sums: Sequence[Sum], tensors: dict[str, QParams]) -> None:
        self._sums, self.tensors = sums, tensors
        self._known: dict[int, bool] = {}
        self._touching: dict[str, list[int]] = {}
        for i, one in enumerate(sums):
            for name in one.tensors:
                self._touching.setdefault(name, []).append(i)

    def agrees(self, i: int) -> bool:
        """Whether the i-th sum agrees."""
        if i not in self._known:
            self._known[i] = self._sums[i].agrees(self.tensors)
        return self._known[i]

    def upset(self) -> list[int]:
        """Numbers of the sums that do not agree."""
        return [i for i in range(len(self._sums)) if not self.agrees(i)]

    def change(self, more: Mapping[str, QParams]) -> None:
        """Takes other qparams over."""
        self.tensors |= more
        for name in more:
            for i in self._touching.get(name, ()):
                self._known.pop(i, None)


def _raised(one: Sum, members: Collection[str], tensors: dict[str, QParams]) -> dict[str, QParams]:
    """The group at its nearest scale for which the node agrees; empty where there is none."""
    steps = sorted(m * 2.0**power for power in range(FINEST, COARSEST) for m in MULTIPLES)
    for factor in (1 + step for step in steps):
        raised: dict[str, QParams] = {}
        for member in members:
            scale = np.asarray(tensors[member].scale * np.float32(factor), np.float32)
            raised[member] = replace(tensors[member], scale=scale)
        if one.agrees(ChainMap(raised, tensors)):
            return raised
    return {}
