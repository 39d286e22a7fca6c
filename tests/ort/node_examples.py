"""Examples of single nodes on float32: of every operator that ONNX Runtime runs on it.

Operators of onnxq have examples already, the cases of the contract tests. Others get ones in the
first shapes that ONNX Runtime takes, or stand in `BY_HAND`.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnxruntime.capi import onnxruntime_pybind11_state as state

from onnxq import catalog
from onnxq.ort import runtime
from onnxq.ort.version import installed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnxq.operator import Array, AttributeValue, Case

OPSET = 21
IR_VERSION = 10
MICROSOFT = "com.microsoft"
CASES = 6
"""Cases of an operator of onnxq at most."""
FLOAT = "tensor(float)"
FED = (np.float32, np.uint8, np.int8)
"""Types of data; arrays of others are constants: shapes, indices, conditions."""
INDICES = ("int64", "int32", "bool")
SHAPES = ((1, 4, 4, 4), (4, 4), (1, 4, 4), (4,), ())
INDEX_SHAPES = ((1,), (), (4,), (2,), (1, 4), (1, 1))
ATTRIBUTES: Mapping[str, AttributeValue] = {
    "kernel_shape": [2, 2], "axes": [1], "pooled_shape": [2, 2], "axis": 1, "to": 1,
    "blocksize": 2,
}  # fmt: skip
NO_FLOAT = "it computes on no float32 tensor"
NO_KERNEL = "ONNX Runtime has no kernel for it on float32"
RETIRED = "ONNX has retired it"
NOT_ASKED = {
    **({"ExpandDims": "ONNX Runtime crashes on it behind a DQ"} if installed() < (1, 28) else {}),
    **({"WordConvEmbedding": "ONNX Runtime crashes on ones"} if installed() < (1, 24) else {}),
    **dict.fromkeys(
        (
            "AttnLSTM", "BiasSplitGelu", "ConvStateReplay", "DecoderMaskedSelfAttention",
            "DynamicSparseAttention", "EmbedLayerNormalization", "EngramGate", "GatedDeltaNet",
            "GatedDeltaNetStateReplay", "GroupQueryAttention", "MaxpoolWithMask", "PackedAttention",
            "PackedSparseAttentionIndexer", "SparseAttention", "SparseAttentionIndexer",
            "VarlenCausalConvWithState",
        ),
        "a part of language models that nothing quantized stands beside",
    ),
    **dict.fromkeys(
        ("EPContext", "MemcpyFromHost", "MemcpyToHost", "OptionalGetElement", "SampleOp"),
        "ONNX Runtime's own, not of models",
    ),
}  # fmt: skip
"""Operator -> why there is no example of it."""

Key = tuple[str, str]
"""(domain, op_type)."""


@dataclass(frozen=True, eq=False)
class Example:
    """One node.

    Attributes:
        inputs: arrays by slot, None for absent ones. float32 ones may be inputs of the model, the
            others are constants.
        floats: one entry per output: whether it is a float32 tensor.
    """

    op_type: str
    domain: str
    inputs: tuple[Array | None, ...]
    attributes: Mapping[str, AttributeValue]
    floats: tuple[bool, ...]

    def node(self, inputs: Sequence[str], outputs: Sequence[str], name: str) -> onnx.NodeProto:
        """The node between these values."""
        node = helper.make_node(self.op_type, inputs, outputs, name, domain=self.domain)
        node.attribute.extend(helper.make_attribute(k, v) for k, v in self.attributes.items())
        return node

    def __str__(self) -> str:
        shapes = [None if x is None else x.shape for x in self.inputs]
        return f"{self.op_type} {dict(self.attributes)} on {shapes}"


def _ones(*shapes: tuple[int, ...]) -> tuple[Array, ...]:
    return tuple(np.ones(shape, np.float32) for shape in shapes)


def _one(op_type: str, *inputs: Array, domain: str = "", **attributes: AttributeValue) -> Example:
    return Example(op_type, domain, inputs, attributes, (True,))


BY_HAND = (
    _one("Einsum", *_ones((4, 4), (4, 4)), equation="ij,jk->ik"),
    _one("GridSample", *_ones((1, 1, 4, 4), (1, 4, 4, 2))),
    _one("MaxRoiPool", *_ones((1, 1, 4, 4), (1, 5)), pooled_shape=[2, 2]),
    _one(
        "MaxUnpool",
        *_ones((1, 1, 2, 2)),
        np.zeros((1, 1, 2, 2), np.int64),
        kernel_shape=[2, 2],
        strides=[2, 2],
    ),
    _one("OneHot", np.ones(4, np.int64), np.array(4), *_ones((2,))),
    _one("RoiAlign", *_ones((1, 1, 4, 4), (1, 4)), np.zeros(1, np.int64)),
    _one("Shrink", *_ones((4, 4)), bias=0.3),
    _one("ExpandDims", *_ones((4, 4)), np.array(1, np.int32), domain=MICROSOFT),
    _one("FusedGemm", *_ones((4, 4), (4, 4)), domain=MICROSOFT, activation="Relu"),
    _one(
        "ConvTransposeWithDynamicPads",
        *_ones((1, 1, 4, 4), (1, 1, 2, 2)),
        np.zeros(4, np.int64),
        domain=MICROSOFT,
    ),
    _one(
        "CropAndResize",
        *_ones((1, 1, 4, 4), (1, 4)),
        np.zeros(1, np.int32),
        np.array([2, 2], np.int32),
        domain=MICROSOFT,
    ),
)


def schemas() -> dict[Key, state.OpSchema]:
    """The newest schema of each operator of ONNX and com.microsoft, at most of OPSET."""
    found: dict[Key, state.OpSchema] = {}
    for schema in sorted(state.get_all_operator_schema(), key=lambda s: int(s.since_version)):
        if schema.domain == MICROSOFT or (schema.domain == "" and schema.since_version <= OPSET):
            found[schema.domain, schema.name] = schema
    return found


def typed(schema: state.OpSchema, parameter: object) -> frozenset[str]:
    """The types that a schema allows for one of its inputs or outputs."""
    name = parameter.typeStr  # type: ignore[attr-defined]
    for constraint in schema.type_constraints:
        if constraint.type_param_str == name:
            return frozenset(constraint.allowed_type_strs)
    return frozenset([name])


@functools.cache
def examples() -> tuple[dict[Key, tuple[Example, ...]], dict[Key, str]]:
    """Examples of each operator, and why there is none of the others; "": it needs one by hand."""
    found: dict[Key, list[Example]] = {}
    why: dict[Key, str] = {}
    for operator in catalog.all_operators():
        for case in _spread([c for c in operator.cases() if c.opset == OPSET]):
            arrays = tuple(None if x is None else np.asarray(x) for x in case.inputs)
            example = Example(
                operator.op_type,
                operator.domain,
                arrays,
                case.attributes or {},
                (True,) * case.outputs,
            )
            if not isinstance(runs := _running(example), str):
                found.setdefault((operator.domain, operator.op_type), []).append(runs)
    for example in BY_HAND:
        if example.op_type not in NOT_ASKED:
            found[example.domain, example.op_type] = [example]
    for key, schema in schemas().items():
        if key in found:
            continue
        if key[1] in NOT_ASKED:
            why[key] = NOT_ASKED[key[1]]
            continue
        searched = _search(schema)
        if isinstance(searched, Example):
            found[key] = [searched]
        else:
            why[key] = searched
    return {key: tuple(many) for key, many in found.items()}, why


def _spread(cases: list[Case]) -> list[Case]:
    """At most CASES of them, from the first to the last."""
    return cases[:: -(-len(cases) // CASES)] if cases else []


def _search(schema: state.OpSchema) -> Example | str:
    """An example with ones for its required inputs, or why there is none."""
    needed = [p for p in schema.inputs if not str(p.option).endswith("Optional")]
    slots = list(schema.inputs)[
        : max([list(schema.inputs).index(p) for p in needed], default=-1) + 1
    ]
    kinds = [_kind(typed(schema, p)) if p in needed else None for p in slots]
    bodies = any(str(a.type).endswith(("GRAPH", "GRAPHS")) for a in schema.attributes.values())
    if bodies or "" in kinds or "float32" not in kinds:
        return NO_FLOAT
    attributes = {
        name: ATTRIBUTES.get(name, _default(str(a.type)))
        for name, a in schema.attributes.items()
        if a.required
    }
    if slots and str(slots[-1].option).endswith("Variadic"):
        kinds.append(kinds[-1])
    for shape, index in itertools.product(SHAPES, INDEX_SHAPES):
        arrays = [
            None if k is None else np.ones(shape if k == "float32" else index, k) for k in kinds
        ]
        runs = _running(
            Example(
                schema.name, schema.domain, tuple(arrays), attributes, (True,) * schema.min_output
            )
        )
        if isinstance(runs, Example):
            return runs
        if "NOT_IMPLEMENTED" in runs:
            return NO_KERNEL
        if "not a registered function" in runs or "deprecated" in runs:
            return RETIRED
    return ""


def _kind(types: frozenset[str]) -> str:
    """Type of an array for an input; "": there is no array of any of its types."""
    if FLOAT in types:
        return "float32"
    return next((kind for kind in INDICES if f"tensor({kind})" in types), "")


def _default(kind: str) -> AttributeValue:
    defaults: dict[str, AttributeValue] = {"INT": 1, "INTS": [1], "FLOAT": 1.0}
    return defaults.get(kind.rpartition(".")[2], "")


def _running(example: Example) -> Example | str:
    """The example with the types that its outputs have, or ONNX Runtime's words against it."""
    try:
        session = _open(example)
    except runtime.OPEN_ERRORS as error:
        return str(error)
    floats = tuple(value.type == FLOAT for value in session.get_outputs())
    return replace(example, floats=floats)


def refusal(example: Example) -> str:
    """ONNX Runtime's words against a node; empty: it takes it."""
    runs = _running(example)
    return runs if isinstance(runs, str) else ""


def run(example: Example, inputs: tuple[Array | None, ...]) -> list[Array] | None:
    """Results on these float32 arrays, by the node as it is; None: it does not run on them."""
    feeds = {f"x{i}": x for i, x in enumerate(inputs) if x is not None and x.dtype == np.float32}
    try:
        return [np.asarray(y) for y in _open(example).run(None, feeds)]
    except runtime.RUN_ERRORS:
        return None


def _open(example: Example) -> onnxruntime.InferenceSession:
    names = ["" if x is None else f"x{i}" for i, x in enumerate(example.inputs)]
    outputs = [f"y{i}" for i in range(len(example.floats))]
    present = [(n, x) for n, x in zip(names, example.inputs, strict=True) if x is not None]
    graph = helper.make_graph(
        [example.node(names, outputs, "node")],
        "example",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for n, x in present
            if x.dtype in FED
        ],
        [onnx.ValueInfoProto(name=n) for n in outputs],
        [numpy_helper.from_array(x, n) for n, x in present if x.dtype not in FED],
    )
    return open_model(model_of(graph))


def model_of(graph: onnx.GraphProto) -> onnx.ModelProto:
    """The graph as a model of OPSET."""
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def open_model(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """A session that runs the nodes as they are."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
