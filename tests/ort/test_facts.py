"""Facts against the installed ONNX Runtime, in both directions.

Each operator's examples are put between Q and DQ in several ways, and the optimized graphs looked
at. Many of them share a model: ONNX Runtime's optimizers take each for itself.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections import Counter, defaultdict
from importlib import metadata
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from onnxq import catalog
from onnxq.errors import ModelError
from onnxq.operator import Rule
from onnxq.ort import facts, runtime
from onnxq.ort.facts import FACTS, Fact, Rounding
from onnxq.ort.version import OLDEST, Version, installed
from tests.operators import builder
from tests.ort.node_examples import Example, examples, model_of, refusal, run, schemas, typed

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnxq.operator import Array

SHARED = 50
"""Examples of one model: ONNX Runtime takes more than their number's time for more."""
SCALE = np.float32(6 / 255)
Q, DQ, STOP = "QuantizeLinear", "DequantizeLinear", "Sign"


class Around(enum.Enum):
    """Surroundings of a node; Sign stands for a node that nothing is moved past."""

    BETWEEN = "DQ -> op -> Q"
    OPEN = "DQ -> op"
    CONSTANTS = "DQ -> op(x, float constants) -> Q"
    INT8 = "DQ -> op -> Q on int8 integers that somebody else reads, too"
    BEHIND = "Sign -> op -> Q"
    AHEAD = "DQ -> op -> Sign"
    ALONE = "Sign -> op -> Sign"
    BOUND = "Sign -> op -> Q whose integers end at 0 and 6"
    SIXTEEN = "DQ -> op(x, DQ of constants) -> Q, activations of 16 bits"


QUANTIZED = {Around.BETWEEN, Around.OPEN, Around.CONSTANTS, Around.INT8, Around.AHEAD}
QUANTIZED |= {Around.SIXTEEN}
ROUNDED = {Around.BETWEEN, Around.CONSTANTS, Around.INT8, Around.BEHIND, Around.BOUND}
ROUNDED |= {Around.SIXTEEN}
ZERO_POINTS = {Around.INT8: "z_int8", Around.BOUND: "z_low", Around.SIXTEEN: "z_uint16"}
PARAMETERS = {
    "s": SCALE, "z": np.uint8(100), "z_low": np.uint8(0), "z_int8": np.int8(3),
    "z_uint16": np.uint16(300),
}  # fmt: skip


class Branch:
    """The nodes of one example in a model.

    Attributes:
        ends: its results.
        sides: other outputs of the model.
    """

    def __init__(self, example: Example, around: Around, prefix: str) -> None:
        self.example, self.around, self.prefix = example, around, prefix
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.sides: list[str] = []
        names = [self._operand(f"{prefix}x{i}", x) for i, x in enumerate(example.inputs)]
        outputs = [f"{prefix}y{i}" for i in range(len(example.floats))]
        self.nodes.append(example.node(names, outputs, f"{prefix}node"))
        floats = [y for y, is_float in zip(outputs, example.floats, strict=True) if is_float]
        self.ends = [self._result(y) for y in floats] or outputs

    def _operand(self, name: str, array: Array | None) -> str:
        if array is None:
            return ""
        constant = self.around in {Around.CONSTANTS, Around.SIXTEEN} and self.inputs
        if constant and self.around is Around.SIXTEEN and array.dtype == np.float32:
            return self._stored(name, array)
        if array.dtype != np.float32 or constant:
            self.constants.append(numpy_helper.from_array(array, name))
            return name
        self.inputs.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, array.shape))
        if self.around not in QUANTIZED:
            return self._node(STOP, [name])
        integers = self._node(Q, [name, *self._parameters()])
        if self.around is Around.INT8:
            self.sides.append(self._node(DQ, [integers, *self._parameters()], "_side"))
        return self._node(DQ, [integers, *self._parameters()])

    def _stored(self, name: str, array: Array) -> str:
        """The DQ of int8 constants, with a scale of its own: a shared one prevents packing."""
        own = int(self.prefix[1:-1]) + SHARED * len(self.constants)
        scale = np.float32(0.02 + 1e-4 * own)
        integers = np.rint(np.clip(array.astype(np.float32) / scale, -127, 127)).astype(np.int8)
        self.constants += [
            numpy_helper.from_array(integers, name),
            numpy_helper.from_array(np.asarray(scale), f"{name}_scale"),
        ]
        return self._node(DQ, [name, f"{name}_scale"])

    def _result(self, name: str) -> str:
        if self.around in ROUNDED:
            return self._node(Q, [name, *self._parameters()])
        return name if self.around is Around.OPEN else self._node(STOP, [name])

    def _parameters(self) -> list[str]:
        return ["s", ZERO_POINTS.get(self.around, "z")]

    def _node(self, op_type: str, inputs: list[str], suffix: str = "") -> str:
        output = f"{inputs[0]}_{op_type}{suffix}"
        self.nodes.append(helper.make_node(op_type, inputs, [output], output))
        return output


class Seen:
    """Nodes that ONNX Runtime made of a branch.

    Attributes:
        nodes: all that its ends are computed from.
    """

    def __init__(self, branch: Branch, values: dict[str, ir.Value]) -> None:
        self.branch = branch
        self.ends = [values[name] for name in branch.ends]
        self.nodes: list[ir.Node] = []
        work = [end.producer() for end in self.ends]
        while work:
            node = work.pop()
            if node is not None and node not in self.nodes:
                self.nodes.append(node)
                work += [value.producer() for value in node.inputs if value is not None]

    @property
    def op_types(self) -> set[str]:
        return {node.op_type for node in self.nodes}

    def is_fused(self) -> bool:
        """Whether an operator computes from integers, and nothing in it from what a DQ gives.

        An Identity hands integers out where Q, DQ and the node have vanished.
        """
        return {Q} < self.op_types - {"Identity"} and DQ not in self.op_types

    def rounds_constants(self) -> bool:
        """Whether it reads constant integers, of which it was given none."""
        own = {*PARAMETERS, *(str(tensor.name) for tensor in self.branch.constants)}
        constants = [
            value.const_value
            for node in self.nodes
            for value in node.inputs
            if value is not None and value.is_initializer() and value.name not in own
        ]
        return any(c is not None and c.dtype == ir.DataType.INT8 for c in constants)

    def packs(self) -> bool:
        """Whether its matrix is packed for a MatMul that rounds activations to int8."""
        return "MatMulNBits" in self.op_types

    def is_gone(self) -> bool:
        """Whether nothing stands where the node did."""
        own = f"{self.branch.prefix}node"
        return self.op_types <= {STOP, Q} and own not in {node.name for node in self.nodes}

    def q_moved_ahead(self) -> bool:
        """Whether a node on integers makes each result."""
        makers = [end.producer() for end in self.ends]
        return all(node is not None and node.op_type != Q for node in makers)

    def dq_moved_behind(self) -> bool:
        """Whether each result is of what a DQ makes, other than the node itself."""
        makers = [end.producer() for end in self.ends]
        above = [
            n.inputs[0].producer() for n in makers if n is not None and n.inputs[0] is not None
        ]
        name = f"{self.branch.prefix}node"
        return all(n is not None and n.op_type == DQ and n.name != name for n in above)


@functools.cache
def seen() -> dict[Around, list[Seen]]:
    """Every example in every surrounding that its results allow, as ONNX Runtime runs it."""
    cases = [
        (example, around)
        for around in Around
        for many in examples()[0].values()
        for example in many
        if any(example.floats) or around is Around.OPEN
    ]
    found: dict[Around, list[Seen]] = defaultdict(list)
    for group in (cases[i : i + SHARED] for i in range(0, len(cases), SHARED)):
        for one in _loaded([Branch(*case, f"b{i}_") for i, case in enumerate(group)]):
            found[one.branch.around].append(one)
    return found


REFUSED: set[tuple[Around, str]] = set()
"""Surroundings in which ONNX Runtime does not load an operator that it runs alone; see `seen`."""


def _loaded(branches: list[Branch]) -> list[Seen]:
    """The nodes made of each branch that ONNX Runtime loads; the others go to REFUSED."""
    try:
        return _optimized(branches)
    except ModelError:
        if len(branches) == 1:
            REFUSED.add((branches[0].around, branches[0].example.op_type))
            return []
    half = len(branches) // 2
    return [*_loaded(branches[:half]), *_loaded(branches[half:])]


def _optimized(branches: list[Branch]) -> list[Seen]:
    graph = helper.make_graph(
        [node for branch in branches for node in branch.nodes],
        "branches",
        [value for branch in branches for value in branch.inputs],
        [onnx.ValueInfoProto(name=n) for branch in branches for n in branch.ends + branch.sides],
        [numpy_helper.from_array(np.asarray(x), name) for name, x in PARAMETERS.items()]
        + [tensor for branch in branches for tensor in branch.constants],
    )
    optimized = runtime.optimized_graph(ir.from_proto(model_of(graph)))
    values = {str(value.name): value for value in optimized.graph.outputs}
    return [Seen(branch, values) for branch in branches]


def behaviour(around: Around, is_so: Callable[[Seen], bool]) -> set[str]:
    """Operators of which it is so for an example."""
    return {one.branch.example.op_type for one in seen()[around] if is_so(one)}


def claimed(is_so: Callable[[Fact], bool]) -> set[str]:
    """Operators of which the facts that hold for the installed version say so."""
    names = {fact.op_type for fact in FACTS}
    return {name for name in names if is_so(facts.named(name))}


def compare(got: set[str], said: set[str]) -> None:
    """Fails with the operators that only ONNX Runtime, and those that only facts.py has."""
    only_seen, only_said = sorted(got - said), sorted(said - got)
    assert not only_seen, f"ONNX Runtime does so, and facts.py does not say it: {only_seen}"
    assert not only_said, f"facts.py says so, and ONNX Runtime does not do it: {only_said}"


CLAIMS: dict[str, tuple[Around, Callable[[Seen], bool], Callable[[Fact], bool]]] = {
    "fuses": (Around.BETWEEN, Seen.is_fused, lambda f: f.fuses),
    "without_q": (Around.OPEN, Seen.is_fused, lambda f: f.without_q),
    "takes_int8": (Around.INT8, Seen.is_fused, lambda f: f.fuses and f.takes_int8),
    "rounds_constants": (Around.CONSTANTS, Seen.rounds_constants, lambda f: f.rounds_constants),
    "moved_past by Q": (Around.BEHIND, Seen.q_moved_ahead, lambda f: f.moved_past),
    "moved_past by DQ": (Around.AHEAD, Seen.dq_moved_behind, lambda f: f.moved_past or f.removed),
    "removed": (Around.ALONE, Seen.is_gone, lambda f: f.removed),
    "packs_beside_16_bits": (Around.SIXTEEN, Seen.packs, lambda f: f.packs_beside_16_bits),
    "swallowed": (Around.BOUND, Seen.is_gone, lambda f: f.swallowed or f.removed),
}


@pytest.mark.nightly
@pytest.mark.parametrize("claim", CLAIMS)
def test_onnxruntime_does_what_the_facts_say_and_nothing_else(claim: str) -> None:
    around, sees, says = CLAIMS[claim]
    compare(behaviour(around, sees), claimed(says))


def test_every_operator_is_asked_or_says_why_not() -> None:
    asked, why = examples()
    assert [key for key in schemas() if key not in asked and not why[key]] == []
    assert {fact.op_type for fact in FACTS} <= {name for _, name in schemas()}


PAIRED: Version = (1, 31)
"""Earlier versions spoil a graph in which they remove DQ -> Q of int8 integers with another DQ."""


@pytest.mark.nightly
def test_onnxruntime_loads_all_of_it_but_for_what_is_known() -> None:
    seen()
    gone = claimed(lambda f: f.removed or f.swallowed)
    pairs = {(Around.INT8, op_type) for op_type in gone} if installed() < PAIRED else set()
    lacking = {(Around.INT8, op) for op in claimed(lambda f: f.fuses and facts.INT8 in f.lacks)}
    assert pairs | lacking >= REFUSED


ARRAYS = 24
"""Elements of a result at least that tell whether it is rounded: fewer may agree by chance."""


@functools.cache
def rounds() -> dict[str, set[bool]]:
    """Operator -> whether results of its examples have numbers that were not there before."""
    found: dict[str, set[bool]] = defaultdict(set)
    for many in examples()[0].values():
        for example in many:
            outcome = _rounds(example)
            if outcome is not None:
                found[example.op_type].add(outcome)
    return found


def _rounds(example: Example) -> bool | None:
    if not all(x is None or x.size for x in example.inputs):
        return None  # nothing to round; and TopK crashes on it until ONNX Runtime 1.28
    rng = np.random.default_rng(0)
    arrays = tuple(
        rng.normal(size=x.shape).astype(np.float32)
        if x is not None and x.dtype == np.float32
        else x
        for x in example.inputs
    )
    results = run(example, arrays)
    if results is None:
        return None
    floats = [y for y, is_float in zip(results, example.floats, strict=True) if is_float]
    numbers = np.concatenate([np.abs(y[np.isfinite(y)]).ravel() for y in floats] or [np.empty(0)])
    there = np.concatenate([np.abs(x.ravel()) for x in arrays if x is not None])
    new = numbers[~np.isin(numbers, there) & (numbers != np.rint(numbers))]
    return bool(new.size) if new.size or numbers.size >= ARRAYS else None


def test_operators_round_floats_that_the_facts_say_do() -> None:
    exact = {op_type for op_type, outcomes in rounds().items() if True not in outcomes}
    said = claimed(lambda fact: fact.rounding is Rounding.NONE)
    compare(exact, said & rounds().keys())


@pytest.mark.parametrize("op_type", sorted(claimed(lambda f: f.rounding is Rounding.ONCE)))
def test_operators_that_round_once_give_what_ieee_754_says(op_type: str) -> None:
    formulas = {
        "Add": np.add,
        "Div": np.divide,
        "Mul": np.multiply,
        "Sqrt": np.sqrt,
        "Sub": np.subtract,
    }
    for example in examples()[0]["", op_type]:
        arrays = [x for x in example.inputs if x is not None]
        results = run(example, tuple(arrays))
        assert results is not None
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(results[0], formulas[op_type](*arrays))


def _on_integers(example: Example, kind: type[np.generic]) -> Example | None:
    """The example with integers in each slot that may have them; None: not the first of floats."""
    schema = schemas()[example.domain, example.op_type]
    slots = [schema.inputs[min(i, len(schema.inputs) - 1)] for i in range(len(example.inputs))]
    allowed = [f"tensor({np.dtype(kind).name})" in typed(schema, slot) for slot in slots]
    floats = [x is not None and x.dtype == np.float32 for x in example.inputs]
    if True not in floats or not allowed[floats.index(True)]:
        return None
    inputs = tuple(
        x.astype(kind) if x is not None and x.dtype == np.float32 and may else x
        for x, may in zip(example.inputs, allowed, strict=True)
    )
    return dataclasses.replace(example, inputs=inputs)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_operators_lack_the_kernels_on_integers_that_the_facts_say(kind: type[np.generic]) -> None:
    lacking = set()
    for (domain, op_type), (example, *_) in examples()[0].items():
        quantized = _on_integers(example, kind) if domain == "" else None
        if quantized is not None and "NOT_IMPLEMENTED" in refusal(quantized):
            lacking.add(op_type)
    dtype = ir.DataType.from_numpy(np.dtype(kind))
    compare(lacking, claimed(lambda fact: dtype in fact.lacks))


def test_a_session_unpacks_constants_of_the_types_that_the_facts_say() -> None:
    found = {kind for kind in PACKED if "Cast" not in _optimized_types(_unpacking(kind))}
    assert facts.named("Cast").unpacks == found


PACKED = (ir.DataType.INT4, ir.DataType.UINT4, ir.DataType.INT2, ir.DataType.UINT2)


def _unpacking(kind: ir.DataType) -> onnx.ModelProto:
    """x -> Q -> DQ -> Conv(DQ(Cast(constant of that type))) -> Q -> y."""
    byte = ir.DataType.INT8 if kind.name.startswith("I") else ir.DataType.UINT8
    weight = np.arange(72).reshape(2, 4, 3, 3) % 2
    packed = ir.serde.serialize_tensor(ir.tensor(weight.astype(kind.numpy()), kind, name="w"))
    constants = [
        packed,
        *(numpy_helper.from_array(np.asarray(v), n) for n, v in PARAMETERS.items()),
    ]
    nodes = [
        helper.make_node("Cast", ["w"], ["w8"], "unpack", to=int(byte)),
        helper.make_node(Q, ["x", "s", "z"], ["x_q"]),
        helper.make_node(DQ, ["x_q", "s", "z"], ["x_r"]),
        helper.make_node(DQ, ["w8", "s"], ["w_r"]),
        helper.make_node("Conv", ["x_r", "w_r"], ["y_r"]),
        helper.make_node(Q, ["y_r", "s", "z"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 4, 8, 8])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.UINT8, None)
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11)


def _optimized_types(model: onnx.ModelProto) -> set[str]:
    optimized = runtime.optimized_graph(ir.from_proto(model))
    kinds = {node.op_type for node in optimized.graph}
    assert "QLinearConv" in kinds
    return kinds


def test_one_fact_of_an_operator_holds_in_each_version() -> None:
    names = {fact.op_type for fact in FACTS}
    for minor in range(OLDEST[1], OLDEST[1] + 12):
        holding = Counter(fact.op_type for fact in FACTS if fact.holds((OLDEST[0], minor)))
        assert holding == dict.fromkeys(names, 1)


def test_facts_depend_on_the_version_that_is_asked_about() -> None:
    where = ir.node("Where", [])
    assert facts.of(where, (1, 30)).lacks
    assert not facts.of(where, (1, 31)).lacks
    assert facts.of(where, (1, 2)) == facts.of(where, OLDEST)
    assert facts.of(where) == facts.of(where, installed())


def test_operators_of_other_domains_have_no_facts() -> None:
    assert facts.of(ir.node("Conv", [], domain="ai.onnx")).fuses
    assert not facts.of(ir.node("Conv", [], domain="example")).fuses


def test_the_oldest_version_is_the_floor_of_the_package() -> None:
    (floor,) = [r for r in metadata.requires("onnxq") or () if r.startswith("onnxruntime>")]
    assert floor == f"onnxruntime>={OLDEST[0]}.{OLDEST[1]}"
    assert onnxruntime.__version__.startswith("{}.{}.".format(*installed()))


def test_what_a_rule_puts_between_q_and_dq_fuses() -> None:
    written: set[str] = set()
    other: set[str] = set()
    for operator in catalog.all_operators():
        rules = [operator.rule(builder.node_of(operator, case)) for case in operator.cases()]
        fuses = any(rule.is_fused for rule in rules if isinstance(rule, Rule))
        (written if fuses else other).add(operator.op_type)
    assert written <= claimed(lambda f: f.fuses or f.without_q or f.removed)
    assert not other & claimed(lambda f: f.fuses)


@pytest.mark.nightly
def test_results_are_of_the_types_that_the_facts_say() -> None:
    fixed = {}
    for key in examples()[0]:
        schema = schemas()[key]
        if not schema.outputs or schema.outputs[0].typeStr in [p.typeStr for p in schema.inputs]:
            continue
        if len(types := typed(schema, schema.outputs[0])) == 1:
            fixed[key[1]] = next(iter(types))
    said = {
        name: f"tensor({dtype.name.lower()})"
        for name in fixed.keys() | claimed(lambda f: f.results is not None)
        if (dtype := facts.named(name).results) is not None
    }
    assert said.keys() >= fixed.keys()
    assert {name: said[name] for name in fixed} == fixed
