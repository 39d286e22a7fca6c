from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from onnxq.graph.types import infer_by_run, infer_types, untyped

if TYPE_CHECKING:
    from tests.graph.conftest import Parse

FLOAT = ir.DataType.FLOAT
W = np.ones((20, 3, 3, 3), np.float32)


def shapes(model: ir.Model) -> dict[str | None, list[int | str | None] | None]:
    return {
        v.name: None if v.shape is None else [d if isinstance(d, int) else d.value for d in v.shape]
        for n in model.graph.all_nodes()
        for v in n.outputs
    }


def test_types_and_shapes_are_filled_in_without_reading_weights(parse: Parse) -> None:
    model = parse(
        "g (float[N,3,8,8] x) => (float[] y) { a = Conv(x, w) b = Relu(a) y = Flatten(b) }",
        {"w": W},
    )

    def fail() -> NoReturn:
        raise AssertionError("a weight was read")

    model.graph.initializers["w"].const_value = ir.LazyTensor(
        fail, FLOAT, ir.Shape(W.shape), name="w"
    )
    assert infer_types(model).changed
    assert shapes(model) == {"a": ["N", 20, 6, 6], "b": ["N", 20, 6, 6], "y": ["N", 720]}
    assert all(v.dtype == FLOAT for n in model.graph for v in n.outputs)
    assert not infer_types(model).changed


def test_small_constants_take_part(parse: Parse) -> None:
    model = parse(
        "g (float[N,6] x) => (float[] y) { y = Reshape(x, s) }", {"s": np.array([-1, 2, 3])}
    )
    infer_types(model)
    assert shapes(model)["y"] in (["N", 2, 3], [None, 2, 3])


@pytest.mark.parametrize(
    ("attributes", "size"),
    [
        ("kernel_shape = [3, 1], strides = [3, 3]", [4, 1]),
        ("kernel_shape = [1, 2], strides = [5, 2]", [3, 2]),
        ('kernel_shape = [1, 2], strides = [5, 2], auto_pad = "VALID"', [3, 2]),
        ('kernel_shape = [3, 2], strides = [2, 2], auto_pad = "SAME_UPPER"', [6, 2]),
        ("kernel_shape = [2, 2], strides = [3, 3], pads = [1, 1, 1, 1]", [5, 2]),
    ],
)
def test_ceil_mode_leaves_out_windows_that_start_behind_the_input(
    parse: Parse, attributes: str, size: list[int]
) -> None:
    model = parse(
        f"""g (float[2,3,12,3] x) => (float[] y) <float[2,3,9,9] p, float[2,3,9,9] a> {{
        p = MaxPool<ceil_mode = 1, {attributes}>(x)  a = Relu(p)
        q = AveragePool<ceil_mode = 1, kernel_shape = [1, 1], strides = [2, 2]>(a)  y = Neg(q) }}"""
    )
    assert infer_types(model).changed
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString())
    (y,) = session.run(None, {"x": np.zeros((2, 3, 12, 3), np.float32)})
    found = shapes(model)
    assert found["p"] == found["a"] == [2, 3, *size]
    assert found["q"] == found["y"] == list(y.shape)
    assert not infer_types(model).changed


def test_branches_are_typed(parse: Parse) -> None:
    model = parse(
        """g (bool c, float[2,3] x) => (float[] y) {
        y = If(c) <then_branch = t () => (float[] p) { a = Transpose(x) p = Relu(a) },
                   else_branch = e () => (float[] q) { b = Transpose(x) q = Neg(b) }> }"""
    )
    infer_types(model)
    assert shapes(model)["a"] == shapes(model)["b"] == [3, 2]


def test_names_of_dimensions_stay(parse: Parse) -> None:
    model = parse("g (float[N,3] x) => (float[M,3] y) { y = local.f(x) }")
    infer_types(model)
    assert shapes(model)["y"] == ["M", 3]


CUSTOM = "g (float[N,3] x) => (float[] y) { a = local.f(x) b = Relu(a) y = Unsqueeze(b, i) }"


def test_a_run_tells_type_and_rank_but_not_sizes(parse: Parse) -> None:
    model = parse(CUSTOM, {"i": np.array([0])})
    infer_types(model)
    assert untyped(model) == ["a", "b", "y"]
    assert infer_by_run(model, lambda _: {"a": (FLOAT, (1, 3)), "nobody": (FLOAT, ())})
    assert untyped(model) == []
    assert shapes(model) == {"a": [None, None], "b": [None, None], "y": [1, None, None]}


def test_a_run_is_asked_only_where_something_is_missing(parse: Parse) -> None:
    model = parse("g (float[N,3] x) => (float[] y) { y = Relu(x) }")
    infer_types(model)

    def fail(_: object) -> NoReturn:
        raise AssertionError("not needed")

    assert not infer_by_run(model, fail)


def test_a_scalar_is_known(parse: Parse) -> None:
    model = parse("g (float x) => (float[] y) { y = Relu(x) }")
    infer_types(model)
    assert untyped(model) == []


def test_shape_that_only_the_weight_states_is_used() -> None:
    model = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[N,4] x) => (float y)'
        " { m = MatMul(x, w) y = Relu(m) }"
    )
    w = model.graph.node(0).inputs[1]
    assert w is not None
    w.const_value = ir.tensor(np.ones((4, 3), np.float32))
    model.graph.register_initializer(w)
    assert w.shape is None
    infer_types(model)
    shape = model.graph.node(0).outputs[0].shape
    assert shape is not None
    assert len(shape) == 2
    assert shape[1] == 3


def test_a_declaration_that_onnx_refuses_is_left_out(
    parse: Parse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime goes on with a warning, too."""
    infer = onnx.shape_inference.infer_shapes

    def strict(model: onnx.ModelProto, **options: bool) -> onnx.ModelProto:
        if model.graph.value_info or model.graph.output[0].HasField("type"):
            raise onnx.shape_inference.InferenceError("Inferred shape differs.")
        return infer(model, **options)

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", strict)
    model = parse(
        "g (float[2,3] x) => (float[9] y) <float[5,5] a> { a = Transpose(x) y = Relu(a) }"
    )
    inference = infer_types(model)
    assert (inference.changed, inference.failure) == (True, "Inferred shape differs")
    assert shapes(model) == {"a": [3, 2], "y": [3, 2]}


def test_a_model_that_cannot_be_inferred_stays_as_it_is(parse: Parse) -> None:
    model = parse("g (float[2,3] x) => (float[] y) { y = lost.f(x) }")  # of no imported domain
    inference = infer_types(model)
    assert not inference.changed
    assert inference.failure
