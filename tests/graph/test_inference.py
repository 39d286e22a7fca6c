"""Inference ends, whatever the constants of a model are, and finds what it found before."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxq
from onnxq.graph import inference
from onnxq.graph.inference import infer_shapes
from onnxq.jobs import child
from onnxq.jobs.child_main import ChildReply
from tests.examples import model, network, weights

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnxq.jobs.child_main import ChildRequest

make = helper.make_node
MATMUL = make("MatMul", ["x", "w"], ["y"], "matmul")
LIMIT_S = 20.0
"""CPU time of the slowest inspection, many times over."""


def bomb(nodes: list[onnx.NodeProto], **constants: object) -> onnx.ModelProto:
    arrays = {name: np.asarray(value) for name, value in constants.items()}
    outputs = {"y": TensorProto.FLOAT, "z": TensorProto.FLOAT}
    return model([MATMUL, *nodes], {"w": weights(0, 3, 3), **arrays}, {"x": ["N", 3]}, outputs)


def long_range(*, is_computed: bool = False) -> onnx.ModelProto:
    """Range(0, 10^10); its end as it is, or computed of a shape."""
    ends = [make("Mul", ["square", "square"], ["end"])] if is_computed else []
    nodes = [*ends, make("Range", ["zero", "end", "one"], ["r"]), make("Cast", ["r"], ["z"], to=1)]
    end = {"square": np.int64(10**5)} if is_computed else {"end": np.int64(10**10)}
    return bomb(nodes, zero=np.int64(0), one=np.int64(1), **end)


def doubled(times: int, dtype: str = "float32") -> onnx.ModelProto:
    """Concats, each of the result ahead of it, twice."""
    nodes = [make("Concat", [f"t{i}"] * 2, [f"t{i + 1}"], axis=0) for i in range(times)]
    nodes += [make("Cast", [f"t{times}"], ["c"], to=1), make("ReduceSum", ["c"], ["z"], keepdims=0)]
    return bomb(nodes, t0=np.ones(2, dtype))


def in_diamonds(layers: int) -> onnx.ModelProto:
    """A constant of which each layer computes two, and adds them."""
    nodes = []
    for i in range(layers):
        nodes += [make("Neg", [f"t{i}"], [f"a{i}"]), make("Abs", [f"t{i}"], [f"b{i}"])]
        nodes.append(make("Add", [f"a{i}", f"b{i}"], [f"t{i + 1}"]))
    nodes.append(make("ReduceSum", [f"t{layers}"], ["z"], keepdims=0))
    return bomb(nodes, t0=np.ones(1 << 19, np.float32))


BOMBS: dict[str, Callable[[], onnx.ModelProto]] = {
    "a long Range": long_range,
    "a long Range whose end is computed": lambda: long_range(is_computed=True),
    "22 doubled Concats": lambda: doubled(22),
    "40 doubled Concats": lambda: doubled(40),
    "40 doubled Concats of integers": lambda: doubled(40, "int64"),
    "40 layers of diamonds": lambda: in_diamonds(40),
    "a long input": lambda: model(
        [make("Cast", ["x"], ["c"], to=1), make("Add", ["c", "c"], ["y"])], {}, {"x": [1 << 33]}
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_inspection_of_a_model_that_would_grow_ends(name: str) -> None:
    started = time.process_time()
    onnxq.inspect(BOMBS[name]())
    assert time.process_time() - started < LIMIT_S


def shapes(proto: onnx.ModelProto) -> dict[str, str]:
    return {info.name: str(info.type) for info in (*proto.graph.value_info, *proto.graph.output)}


def of_open_length() -> onnx.ModelProto:
    """A Cast of a Range whose end nobody knows, and a Reshape by a computed shape."""
    nodes = [
        make("Shape", ["x"], ["s"]),
        make("Slice", ["s", "zero", "one"], ["batch"]),
        make("Concat", ["batch", "rest"], ["target"], axis=0),
        make("Reshape", ["x", "target"], ["r"]),
        make("Squeeze", ["batch", "zero"], ["end"]),
        make("Range", ["from", "end", "by"], ["positions"]),
        make("Cast", ["positions"], ["c"], to=1),
        make("ReduceSum", ["c"], ["sum"], keepdims=0),
        make("Add", ["r", "sum"], ["y"]),
    ]
    constants = {"zero": np.array([0]), "one": np.array([1]), "rest": np.array([4, 12])}
    constants |= {"from": np.array(0), "by": np.array(1)}
    return model(nodes, constants, {"x": ["N", 48]})


@pytest.mark.parametrize("source", [network, of_open_length])
def test_ordinary_models_are_inferred_as_onnx_infers_them(
    source: Callable[[], onnx.ModelProto],
) -> None:
    proto = source()
    wanted = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    assert shapes(infer_shapes(proto)) == shapes(wanted)


def test_a_network_with_known_ranks_is_inferred_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "ask", lambda *_: pytest.fail("asked"))
    infer_shapes(network())


@pytest.mark.parametrize("error", [child.DiedError("SIGKILL"), child.OverTimeError("takes")])
def test_data_whose_propagation_does_not_end_is_left_out(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(_request: ChildRequest, _buffers: object) -> ChildReply:
        raise error

    monkeypatch.setattr(child, "ask", ask)
    proto = of_open_length()
    wanted = onnx.shape_inference.infer_shapes(proto, data_prop=False)
    assert shapes(infer_shapes(proto)) == shapes(wanted)


def test_an_error_of_the_child_is_one_of_inference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "ask", lambda *_: ChildReply(error="wrong"))
    with pytest.raises(onnx.shape_inference.InferenceError, match="wrong"):
        infer_shapes(of_open_length())


def test_a_shape_of_many_axes_is_not_propagated() -> None:
    proto = doubled(12, "int64")  # 8,192 elements, which could be the sizes of as many axes
    lengths = inference._lengths(onnx.shape_inference.infer_shapes(proto))
    assert inference._cost(proto, lengths) is inference._Cost.LARGE
