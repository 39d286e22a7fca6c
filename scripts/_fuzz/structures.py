"""Mutations that need an idea: circles, nesting, functions, and external data that is a trap."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper

from scripts._fuzz.case import SECRET_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np

    from scripts._fuzz.case import Scratch

DEPTHS = (2, 12, 29, 90)
CHAINS = (50, 500, 2000)


def _some_node(model: onnx.ModelProto, rng: np.random.Generator) -> onnx.NodeProto | None:
    nodes = [*model.graph.node, *(n for f in model.functions for n in f.node)]
    return nodes[rng.integers(len(nodes))] if nodes else None


def circle(model: onnx.ModelProto, rng: np.random.Generator, _: Scratch) -> str:
    """A node reads what a later one, or itself, gives."""
    nodes = model.graph.node
    if not nodes:
        return "no node"
    one, other = (nodes[rng.integers(len(nodes))] for _ in range(2))
    if not one.input or not other.output:
        return "no circle"
    one.input[rng.integers(len(one.input))] = other.output[0]
    return f"{one.op_type} reads what {other.op_type} gives"


def one_input_more_or_less(model: onnx.ModelProto, rng: np.random.Generator, _: Scratch) -> str:
    """A node gets another number of inputs or outputs."""
    node = _some_node(model, rng)
    if node is None:
        return "no node"
    names = node.input if rng.integers(3) else node.output
    what = f"{node.op_type}: {'input' if names is node.input else 'output'}s {len(names)}"
    count = int(rng.choice([0, 1, len(names) + 1, len(names) + 40]))
    while len(names) > count:
        names.pop()
    while len(names) < count:
        names.append(f"{names[-1] if names else 'x'}")
    return f"{what} -> {len(names)}"


def nested(model: onnx.ModelProto, rng: np.random.Generator, _: Scratch) -> str:
    """The first node stands in so many branches of If."""
    depth = int(rng.choice(DEPTHS))
    if not model.graph.node:
        return "no node"
    inner = onnx.NodeProto()
    inner.CopyFrom(model.graph.node[0])
    yes = helper.make_tensor("yes", TensorProto.BOOL, [], [True])
    outputs = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in inner.output]
    shallow = helper.make_graph([inner], "else", [], outputs)
    constants = [
        helper.make_node("Constant", [], [f"yes{level}"], value=yes) for level in range(depth)
    ]
    try:
        for level in range(depth):
            deep = helper.make_graph([inner], f"then{level}", [], outputs)
            branches = {"then_branch": deep, "else_branch": shallow}
            names = list(inner.output)
            inner = helper.make_node("If", [f"yes{level}"], names, f"if{level}", **branches)
        first = model.graph.node[0]
        first.CopyFrom(inner)
    except DecodeError:
        return f"{depth} branches in each other are more than protobuf takes"
    rest = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*constants, *rest])
    return f"the first node inside {depth} branches"


def chain(model: onnx.ModelProto, rng: np.random.Generator, _: Scratch) -> str:
    """A long chain of Relu and Transpose behind the first input."""
    length = int(rng.choice(CHAINS))
    name = model.graph.input[0].name if model.graph.input else "x"
    rank = len(model.graph.input[0].type.tensor_type.shape.dim) if model.graph.input else 1
    perm = list(range(rank)) or [0]
    nodes = []
    last = name
    for i in range(length):
        made = (
            helper.make_node("Transpose", [last], [f"chain{i}"], f"chain{i}", perm=perm)
            if i % 2
            else helper.make_node("Relu", [last], [f"chain{i}"], f"chain{i}")
        )
        nodes.append(made)
        last = f"chain{i}"
    for node in model.graph.node:
        node.input[:] = [last if x == name else x for x in node.input]
    rest = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*nodes, *rest])
    return f"{length} nodes ahead of the first"


def function_circle(model: onnx.ModelProto, _rng: np.random.Generator, _: Scratch) -> str:
    """Two functions call each other; a node calls one."""
    for name, other in (("fa", "fb"), ("fb", "fa")):
        node = helper.make_node(other, ["a"], ["b"], domain="loop")
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("loop", 1)]
        model.functions.append(helper.make_function("loop", name, ["a"], ["b"], [node], opsets))
    model.opset_import.append(helper.make_opsetid("loop", 1))
    if model.graph.node and model.graph.node[0].input:
        call = helper.make_node("fa", [model.graph.node[0].input[0]], ["called"], domain="loop")
        model.graph.node.insert(0, call)
        model.graph.node[1].input[0] = "called"
    return "functions in a circle"


def into_function(model: onnx.ModelProto, rng: np.random.Generator, _: Scratch) -> str:
    """A node moves into a function."""
    index = int(rng.integers(len(model.graph.node))) if model.graph.node else 0
    if not model.graph.node:
        return "no node"
    node = onnx.NodeProto()
    node.CopyFrom(model.graph.node[index])
    inputs = [x for x in dict.fromkeys(node.input) if x]
    outputs = [x for x in node.output if x]
    opsets = [*model.opset_import]
    body = helper.make_function("moved", "body", inputs, outputs, [node], opsets)
    model.functions.append(body)
    model.opset_import.append(helper.make_opsetid("moved", 1))
    call = helper.make_node("body", inputs, outputs, f"call_{node.name}", domain="moved")
    model.graph.node[index].CopyFrom(call)
    return f"{node.op_type} in a function"


def odd_input(model: onnx.ModelProto, rng: np.random.Generator, _scratch: Scratch) -> str:
    """An input or output gets another type or odd sizes."""
    ends = [*model.graph.input, *model.graph.output]
    if not ends:
        return "no input"
    value = ends[rng.integers(len(ends))]
    tensor = value.type.tensor_type
    choice = int(rng.integers(4))
    if choice == 0:
        tensor.elem_type = int(rng.integers(0, 25))
        return f"{value.name}: of type {tensor.elem_type}"
    if choice == 1 or not tensor.shape.dim:
        value.type.sequence_type.elem_type.tensor_type.elem_type = TensorProto.FLOAT
        return f"{value.name}: a sequence"
    if choice == 2:
        rank = int(rng.integers(6))
        del tensor.shape.dim[:]
        for _ in range(rank):
            tensor.shape.dim.add().dim_value = 1
        return f"{value.name}: of rank {rank}"
    dim = tensor.shape.dim[rng.integers(len(tensor.shape.dim))]
    dim.dim_value = int(rng.choice([-1, 0, -7, 2**31, 2**40, 2**62]))
    return f"{value.name}: a size of {dim.dim_value}"


def odd_weight(model: onnx.ModelProto, rng: np.random.Generator, _: Scratch) -> str:
    """A tensor's bytes do not fit its sizes or type, or its numbers stand in another field."""
    tensors = _tensors(model)
    if not tensors:
        return "no tensor"
    tensor = tensors[rng.integers(len(tensors))]
    choice = int(rng.integers(6))
    if choice == 0:
        tensor.raw_data = tensor.raw_data[: int(rng.integers(len(tensor.raw_data) + 1))]
        return f"{tensor.name}: {len(tensor.raw_data)} bytes"
    if choice == 1:
        tensor.data_type = int(rng.integers(0, 27))
        return f"{tensor.name}: of type {tensor.data_type}"
    if choice == 2 and tensor.dims:
        at = int(rng.integers(len(tensor.dims)))
        tensor.dims[at] = int(rng.choice([-1, 0, tensor.dims[at] + 1, 2**31, 2**40, 2**62]))
        return f"{tensor.name}: sizes {list(tensor.dims)}"
    if choice == 3:
        tensor.float_data.extend([1.0] * int(rng.integers(1, 9)))
        if rng.integers(2):
            tensor.ClearField("raw_data")
        return f"{tensor.name}: {len(tensor.float_data)} in float_data"
    if choice == 4:
        field = str(rng.choice(["int32_data", "int64_data", "double_data", "uint64_data"]))
        tensor.ClearField("raw_data")
        getattr(tensor, field).extend([int(x) for x in rng.integers(0, 9, 4)])
        return f"{tensor.name}: {field}"
    tensor.string_data.extend([b"a", b"\xff"])
    return f"{tensor.name}: texts"


def trap(model: onnx.ModelProto, rng: np.random.Generator, scratch: Scratch) -> str:
    """A tensor's data lie in a file that must not be opened, or at odd places of one that may."""
    tensors = _tensors(model)
    if not tensors:
        return "no tensor"
    tensor = tensors[rng.integers(len(tensors))]
    names = list(_TRAPS)
    name = names[rng.integers(len(names))]
    data = tensor.raw_data or bytes(4)
    location, entries = _TRAPS[name](scratch, data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        if value is not None:
            entry = tensor.external_data.add()
            entry.key, entry.value = key, value
    return f"{tensor.name}: external data, {name}"


def _tensors(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Initializers and tensors of attributes, in bodies and functions too."""
    found: list[onnx.TensorProto] = []
    graphs = [model.graph]
    nodes = [n for f in model.functions for n in f.node]
    while graphs or nodes:
        if not nodes:
            graph = graphs.pop()
            found += graph.initializer
            nodes += graph.node
            continue
        for attribute in nodes.pop().attribute:
            if attribute.HasField("t"):
                found.append(attribute.t)
            found += attribute.tensors
            graphs += [attribute.g] if attribute.HasField("g") else []
            graphs += attribute.graphs
    return found


Trap = tuple[str, dict[str, str | None]]


def _free(scratch: Scratch) -> Path:
    """Path of the data file; an earlier trap's is gone."""
    path = scratch.inputs / "w.bin"
    path.unlink(missing_ok=True)
    return path


def _good(scratch: Scratch, data: bytes) -> Trap:
    _free(scratch).write_bytes(data)
    return "w.bin", {"offset": "0", "length": str(len(data))}


def _at(offset: str | None, length: str | None) -> Callable[[Scratch, bytes], Trap]:
    def make(scratch: Scratch, data: bytes) -> Trap:
        return _good(scratch, data)[0], {"offset": offset, "length": length}

    return make


def _linked(scratch: Scratch, _data: bytes) -> Trap:
    _free(scratch).symlink_to(scratch.secret)
    return "w.bin", {}


def _linked_folder(scratch: Scratch, _data: bytes) -> Trap:
    folder = scratch.inputs / "folder"
    folder.unlink(missing_ok=True)
    folder.symlink_to(scratch.outside)
    return "folder/secret.bin", {}


def _hard_linked(scratch: Scratch, _data: bytes) -> Trap:
    os.link(scratch.secret, _free(scratch))
    return "w.bin", {}


def _fifo(scratch: Scratch, _data: bytes) -> Trap:
    os.mkfifo(_free(scratch))
    return "w.bin", {}


def _device(scratch: Scratch, _data: bytes) -> Trap:
    _free(scratch).symlink_to("/dev/zero")
    return "w.bin", {}


def _place(location: str) -> Callable[[Scratch, bytes], Trap]:
    return lambda _scratch, _data: (location, {})


_TRAPS: dict[str, Callable[[Scratch, bytes], Trap]] = {
    "as it should be": _good,
    "without a length": _at("0", None),
    "negative offset": _at("-4", None),
    "huge offset": _at(str(2**62), None),
    "offset that is no number": _at("x", None),
    "negative length": _at("0", "-4"),
    "length too small": _at("0", "1"),
    "length beyond the file": _at("0", str(2**40)),
    "offset beyond the file": _at("4", None),
    "a file outside": lambda s, _d: (f"../outside/{s.secret.name}", {}),
    "an absolute path": lambda s, _d: (str(s.secret), {"length": str(SECRET_BYTES)}),
    "a path that leaves and comes back": lambda s, d: ("../in/" + _good(s, d)[0], {}),
    "a link": _linked,
    "a linked folder": _linked_folder,
    "a hard link": _hard_linked,
    "a FIFO": _fifo,
    "a link to a device": _device,
    "a device": _place("/dev/zero"),
    "a file that is not there": _place("missing.bin"),
    "no name": _place(""),
    "a folder": _place("."),
    "a long name": _place("x" * 5000),
    "a name with NUL": _place("a\0b"),
    "the model itself": _place("m.onnx"),
}

STRUCTURES = (
    circle,
    one_input_more_or_less,
    one_input_more_or_less,
    nested,
    chain,
    function_circle,
    into_function,
    odd_input,
    odd_weight,
    odd_weight,
    trap,
    trap,
)
"""Mutations (model, rng, scratch) -> words; which one is often wanted is here twice."""
