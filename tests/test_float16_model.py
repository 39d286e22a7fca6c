"""float16 models of float32 ones: what stays float32, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnxq
from onnxq import float16_model
from onnxq.checking.validation import refusal
from onnxq.errors import (
    ModelError,
    NothingQuantizedError,
    OnnxqError,
    QConfigError,
    UnsupportedError,
)
from onnxq.ort import runtime
from onnxq.ort.expose import expose
from onnxq.ort.float16 import as_float16
from tests.dynamic_models import parsed
from tests.examples import images, network, weights

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from onnxq.ort.expose import Exposed
    from onnxq.quantized.quantized_model import QuantizedModel

X = np.random.default_rng(0).normal(0, 1, (8, 32)).astype(np.float32)
SQUARE = weights(1, 32, 32)
AXIS: Any = np.array(1, np.int64)


def number(value: float) -> npt.NDArray[np.float32]:
    return np.array(value, np.float32)


def notes_of(model: QuantizedModel) -> str:
    assert model.verdict is not None
    return " ".join(model.verdict.notes)


def types(model: ir.Model) -> dict[str, ir.DataType | None]:
    """Op type -> type of its result."""
    return {node.op_type: node.outputs[0].dtype for node in model.graph if node.op_type != "Cast"}


def test_weights_are_float16_and_the_ends_float32() -> None:
    made = onnxq.half(network(), {"x": images(8)})
    assert {v.dtype for v in made.graph.initializers.values()} == {ir.DataType.FLOAT16}
    assert [v.dtype for v in (*made.graph.inputs, *made.graph.outputs)] == [ir.DataType.FLOAT] * 2
    assert made.verdict is not None
    assert made.verdict.worst_db > 60


def test_ends_are_float16_where_asked() -> None:
    made = onnxq.half(network(), {"x": images(8)}, io_type="float16")
    half = [ir.DataType.FLOAT16] * 2
    assert [v.dtype for v in (*made.graph.inputs, *made.graph.outputs)] == half


def test_exponentials_norms_and_sums_stay_float32() -> None:
    text = """g (float[n, 32] x) => (float[n, 32] y) {
        a = MatMul(x, w) b = Softmax(a) c = LayerNormalization(b, s) d = CumSum(c, i) y = Relu(d)
    }"""
    numbers = {"w": SQUARE, "s": weights(4, 32), "i": AXIS}
    said = notes_of(onnxq.half(parsed(text, numbers), {"x": X}))
    assert "2 of 5 nodes are float16" in said
    assert all(f"1 {kind}" in said for kind in ("Softmax (exp)", "LayerNormalization (norm)"))


def test_nodes_that_stay_float32_may_read_one_tensor() -> None:
    text = """g (float[n, 32] x) => (float[n, 32] y, float[n, 32] z) {
        a = Relu(x) y = MatMul(a, w) z = MatMul(a, w)
    }"""
    made = onnxq.half(parsed(text, {"w": SQUARE}), {"x": X}, keep=["*MatMul*"])
    assert types(made)["MatMul"] is ir.DataType.FLOAT


def test_what_overflows_on_samples_stays_float32() -> None:
    text = """g (float[n, 32] x) => (float[n, 32] y) {
        a = Mul(x, k) b = Mul(a, l) y = MatMul(b, w)
    }"""
    numbers = {"w": SQUARE, "k": number(3e5), "l": number(1e-6)}
    model = parsed(text, numbers)
    made = onnxq.half(model, {"x": X})
    assert "2 Mul (overflow" in notes_of(made)
    with runtime.open_session(made, threads=1) as session:
        assert np.isfinite(session.run({"x": X})[0]).all()
    assert made.verdict is not None
    assert made.verdict.worst_db > 50


def test_an_output_that_overflows_is_not_rounded_on_its_way_out() -> None:
    text = """g (float[n, 32] x) => (float[n, 32] y) { a = MatMul(x, w) y = Mul(a, k) }"""
    made = onnxq.half(parsed(text, {"w": SQUARE, "k": number(1e5)}), {"x": X})
    assert "1 Mul (overflow" in notes_of(made)
    assert made.verdict is not None
    assert made.verdict.worst_db > 50


def test_numbers_below_those_of_float16_stay_float32() -> None:
    text = """g (float[n, 32] x) => (float[n, 32] y) {
        a = Gemm(x, w, c) s = Add(a, e) b = MatMul(s, v) m = Mul(b, k) t = Mul(s, f)
        u = Mul(t, g) y = Add(m, u)
    }"""
    numbers = {
        "w": SQUARE, "v": SQUARE * np.float32(1e-12), "c": np.full(32, 1e-6, np.float32),
        "e": number(1e-9), "k": number(1e12), "f": number(1e-8), "g": number(1e8),
    }  # fmt: skip
    made = onnxq.half(parsed(text, numbers), {"x": X})
    said = notes_of(made)
    assert "MatMul (underflow" in said
    assert "Mul (underflow" in said
    assert "Add" not in said  # a constant that is added may lose digits
    assert "Gemm" not in said
    assert made.verdict is not None
    assert made.verdict.worst_db > 50


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("g (float[n, 32] x) => (float[n, 32] y) { y = Mul(x, k) }", NothingQuantizedError, "0 of"),
        ("g (float[n, 32] x) => (float[n, 32] x) { }", UnsupportedError, "output 'x'"),
        ("g (float[n, 32] x) => (float[n, 32] y) { y = Add(x, o) }", ModelError, "'o' holds NaN"),
    ],
)
def test_what_cannot_be_float16_is_refused_in_words(
    text: str, error: type[OnnxqError], words: str
) -> None:
    numbers = {"k": number(1e6), "o": np.full(32, np.nan, np.float32)}
    model = parsed(text, {name: x for name, x in numbers.items() if f" {name})" in text})
    with pytest.raises(error, match=words):
        onnxq.half(model, {"x": X})


def test_sequences_become_float16() -> None:
    text = """g (float[n, 32] x) => (float[n, 32] y) {
        a = MatMul(x, w) s = SplitToSequence<axis = 1>(a, k) i = SequenceAt(s, o) y = MatMul(i, v)
    }"""
    numbers = {"w": SQUARE, "v": SQUARE[:16], "k": np.array(16), "o": np.array(1)}
    made = onnxq.half(parsed(text, numbers), {"x": X})
    assert made.verdict is not None
    assert made.verdict.worst_db > 50


def test_what_loses_its_numbers_stays_float32() -> None:
    # (x + 3000) - 3000: float16 has steps of 2 there
    text = """g (float[n, 32] x) => (float[n, 32] y) {
        p = MatMul(x, w) a = Add(p, k) b = Sub(a, k) y = MatMul(b, v)
    }"""
    model = parsed(text, {"w": SQUARE, "v": weights(2, 32, 32), "k": number(3000)})
    made = onnxq.half(model, {"x": X})
    assert made.verdict is not None
    assert made.verdict.worst_db > 40
    assert "(precision)" in notes_of(made)


def differences() -> onnx.ModelProto:
    """Differences of neighbours of what two nodes passed on: what they rounded is most of these."""
    text = """g (float[n, 32] x) => (float[n, 32] y) {
        a = Add(x, k) b = Reshape(a, s) c = MatMul(b, d) y = MatMul(c, v)
    }"""
    neighbours = np.eye(32, dtype=np.float32) - np.roll(np.eye(32, dtype=np.float32), 1, axis=0)
    numbers = {"k": number(0.5), "s": np.array([-1, 32]), "d": neighbours, "v": weights(2, 32, 32)}
    return parsed(text, numbers)


def test_what_a_node_that_stays_float32_reads_is_not_rounded() -> None:
    level = np.random.default_rng(3).uniform(100, 200, (len(X), 1)).astype(np.float32)
    made = onnxq.half(differences(), {"x": X / 64 + level})
    assert made.verdict is not None
    assert made.verdict.worst_db > 50
    assert "1 Reshape (precision)" in notes_of(made)
    kept = {str(v.name): v.dtype for v in made.graph.initializers.values()}
    assert kept["v"] == ir.DataType.FLOAT16  # nothing is lost there


@pytest.mark.parametrize("depth", [1, 3, 10])
def test_of_what_an_amplifying_node_reads_only_what_rounds_most_stays_float32(depth: int) -> None:
    trunk = " ".join(f"a{i + 1} = MatMul(a{i}, w{i})" for i in range(depth)).replace("a0", "x")
    text = f"""g (float[n, 32] x) => (float[n, 32] y) {{
        {trunk} b = Add(a{depth}, c) e = Exp(b) l = Log(e) s = Sub(l, c) y = Mul(s, s)
    }}"""
    numbers = {f"w{i}": weights(i, 32, 32) * np.float32(0.6) for i in range(depth)}
    made = onnxq.half(parsed(text, {**numbers, "c": number(50)}), {"x": X})
    assert f"{depth + 2} of {depth + 5} nodes are float16" in notes_of(made)
    assert "1 Add (precision)" in notes_of(made)
    assert made.verdict is not None
    assert made.verdict.worst_db > 50


@pytest.mark.filterwarnings("ignore:output 'y'")
def test_at_most_half_of_the_weights_stay_float32_for_precision() -> None:
    text = """g (float[n, 32] x) => (float[n, 32] y) {
        a = MatMul(x, w) b = MatMul(x, v) y = Sub(a, b)
    }"""
    other = SQUARE + np.random.default_rng(1).normal(0, 1e-5, (32, 32)).astype(np.float32)
    assert "all nodes are float16" in notes_of(
        onnxq.half(parsed(text, {"w": SQUARE, "v": other}), {"x": X})
    )


def test_a_model_that_draws_numbers_is_compared_with_the_same_ones() -> None:
    text = """g (float[n, 32] x) => (float[n, 32] y) {
        a = MatMul(x, w) r = RandomNormalLike(a) y = Add(a, r)
    }"""
    made = onnxq.half(parsed(text, {"w": SQUARE}), {"x": X})
    assert "all nodes are float16" in notes_of(made)
    assert made.verdict is not None
    assert made.verdict.worst_db > 60


def test_a_weight_of_several_nodes_is_float32_for_all_of_them() -> None:
    # x - x / 3 * 3, in weights: what float16 makes of thirds is most of the result
    text = """g (float[n, 32] x) => (float[n, 32] y, float[n, 64] z) {
        a = MatMul(x, d) b = Mul(a, k) y = Sub(b, x) c = MatMul(x, d) z = MatMul(c, v)
    }"""
    thirds = {
        "d": np.eye(32, dtype=np.float32) / np.float32(3),
        "k": number(2.999),
        "v": weights(1, 32, 64),
    }
    made = onnxq.half(parsed(text, thirds), {"x": X})
    assert made.verdict is not None
    assert made.verdict.worst_db > 40
    assert "2 MatMul (precision)" in notes_of(made)


def test_of_nodes_that_share_a_weight_all_or_none_stay_float32() -> None:
    text = """g (float[n, 32] x) => (float[n, 32] y, float[n, 32] z, float[n, 32] u) {
        a = MatMul(x, d) b = Mul(a, k) y = Sub(b, x) c = MatMul(x, d) e = Mul(c, k) z = Sub(e, x)
        s = Add(x, j) t = Sub(s, j) u = MatMul(t, v)
    }"""
    thirds = {"d": np.eye(32, dtype=np.float32) / np.float32(3), "v": SQUARE}
    numbers = {**thirds, "k": number(2.999), "j": number(3000)}
    made = onnxq.half(parsed(text, numbers), {"x": X})
    assert "2 MatMul (precision)" in notes_of(made)
    assert made.graph.initializers["d"].dtype is ir.DataType.FLOAT
    assert made.graph.initializers["v"].dtype is ir.DataType.FLOAT16


def test_the_bound_is_reached_however_little_is_missing() -> None:
    near = " ".join(
        f"s{i} = Add(x, k) d{i} = Sub(s{i}, k) y{i} = MatMul(d{i}, w)" for i in range(8)
    )
    terms = ", ".join(f"y{i}" for i in range(8))
    text = f"g (float[n, 32] x) => (float[n, 32] y) {{ {near} y = Sum({terms}) }}"
    batches = [{"x": X}]
    source = float16_model._named(ir.from_proto(parsed(text, {"w": SQUARE, "k": number(63)})))
    wanted = float16_model._outputs(source, batches)

    def reached_db(kept: Collection[str]) -> float:
        return float16_model._worst(wanted, float16_model._rounded(source, kept), batches)[0]

    assert 37 < reached_db(()) < 40
    assert 40 <= reached_db(float16_model._by_loss(source, {}, batches)) < 43


def test_every_batch_is_looked_at() -> None:
    def loss(batches: list[dict[str, npt.NDArray[np.float32]]]) -> float:
        made = onnxq.half(differences(), batches)
        assert made.verdict is not None
        return made.verdict.worst_db

    quiet, high = {"x": X}, {"x": (X / 64 + 150).astype(np.float32)}
    assert "precision" not in notes_of(onnxq.half(differences(), [quiet]))
    assert loss([quiet, high]) > 50


def test_nodes_that_are_named_stay_float32() -> None:
    made = onnxq.half(network(), {"x": images(8)}, keep=["conv*"])
    assert "2 Conv (asked for)" in notes_of(made)
    kinds = {v.dtype for v in made.graph.initializers.values()}
    assert kinds == {ir.DataType.FLOAT, ir.DataType.FLOAT16}


def test_matmuls_have_weights_of_four_bits_where_asked() -> None:
    model = parsed(
        "g (float[n, 32] x) => (float[n, 32] y) { a = MatMul(x, w) y = Relu(a) }",
        {"w": SQUARE},
    )
    made = onnxq.half(model, {"x": X}, weight_bits=4)
    (matmul,) = [node for node in made.graph if node.op_type == "MatMulNBits"]
    assert matmul.inputs[2] is not None
    assert matmul.inputs[2].dtype == ir.DataType.FLOAT16
    assert types(made)["Relu"] == ir.DataType.FLOAT16


def test_bodies_are_converted_too() -> None:
    text = """g (float[n, 32] x, bool c) => (float[n, 32] y) {
        a = MatMul(x, w)
        y = If (c) <then_branch = t () => (float[n, 32] p) { p = Relu(a) },
                    else_branch = e () => (float[n, 32] q) { q = Neg(a) }>
    }"""
    samples = [{"x": X, "c": np.array(flag)} for flag in (True, False)]
    made = onnxq.half(parsed(text, {"w": SQUARE}), samples)
    assert made.verdict is not None
    assert made.verdict.worst_db > 60


def with_branch(then: str, k: float = 2) -> onnx.ModelProto:
    text = f"""g (float[n, 32] x, bool c) => (float[n, 32] y) {{
        a = MatMul(x, w)
        y = If (c) <then_branch = t () => (float[n, 32] p) {{ {then} }},
                    else_branch = e () => (float[n, 32] q) {{ u = Log(k) q = Mul(a, u) }}>
    }}"""
    return parsed(text, {"w": SQUARE, "k": number(k)})


BOTH = [{"x": X, "c": np.array(flag)} for flag in (True, False)]


@pytest.mark.parametrize(
    ("then", "note"),
    [
        ("r = Relu(a) s = Add(r, k) p = Log(s)", "2 Log (exp)"),
        ("e = Exp(a) p = Log(e)", "2 Log (exp), 1 Exp (exp)"),
        ("h = Constant<value = float[1] {2.0}>() r = Pow(a, h) p = Mul(r, h)", "1 Pow (exp)"),
    ],
)
def test_nodes_of_bodies_may_stay_float32(then: str, note: str) -> None:
    made = onnxq.half(with_branch(then), BOTH)
    assert note in notes_of(made)
    assert made.verdict is not None
    assert made.verdict.worst_db > 50


def test_a_node_that_stays_float32_keeps_its_bodies_so() -> None:
    made = onnxq.half(with_branch("p = Mul(a, k)"), BOTH, keep=["If*"])
    assert "1 If (asked for)" in notes_of(made)
    assert made.verdict is not None
    assert made.verdict.worst_db > 50


def test_bodies_that_overflow_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"overflow .* bodies, If_y"):
        onnxq.half(with_branch("p = Mul(a, k)", 1e5), BOTH)


def test_bodies_of_small_numbers_are_converted() -> None:
    made = onnxq.half(with_branch("p = Mul(a, k)", 1e-6), BOTH[:1])
    assert "1 If (underflow" in notes_of(made)


def test_a_node_with_bodies_loses_nothing_by_itself() -> None:
    text = """g (float[n, 32] x, bool c) => (float[n, 32] y) {
        s = Add(x, k) d = Sub(s, k) a = MatMul(d, w)
        z = If (c) <then_branch = t () => (float[n, 32] p) { p = Relu(a) },
                    else_branch = e () => (float[n, 32] q) { q = Neg(a) }>
        y = MatMul(z, w)
    }"""
    made = onnxq.half(parsed(text, {"w": SQUARE, "k": number(3000)}), BOTH)
    assert "float32 stay: 1 Add (precision)" in notes_of(made)
    assert made.verdict is not None
    assert made.verdict.worst_db > 50


def test_a_name_that_is_not_there_is_refused() -> None:
    with pytest.raises(QConfigError, match="keep: the model has no node 'konv'"):
        onnxq.half(network(), keep=["konv"])


def test_a_float16_model_is_refused() -> None:
    with pytest.raises(ModelError, match="no float32 or bfloat16 numbers"):
        onnxq.half(network(dtype=onnx.TensorProto.FLOAT16))


def test_a_bfloat16_model_becomes_float16() -> None:
    # ONNX Runtime has no CPU kernels of bfloat16: the model itself does not run
    made = onnxq.half(network(dtype=onnx.TensorProto.BFLOAT16))
    assert {v.dtype for v in made.graph.initializers.values()} == {ir.DataType.FLOAT16}
    assert made.verdict is not None
    assert made.verdict.worst_db > 60


def test_the_size_is_beside_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bfloat16.onnx"
    onnx.save(network(dtype=onnx.TensorProto.BFLOAT16), path)
    verdict = onnxq.half(path).verdict
    assert verdict is not None
    assert verdict.float_bytes == path.stat().st_size


TURNED = (
    "m (float[B,4,32] x) => (float[4,B,32] y) { t = Transpose<perm=[1,0,2]>(x) y = MatMul(t, w) }"
)


def test_a_transpose_that_onnxruntime_crashes_on_stays_float32() -> None:
    made = onnxq.half(parsed(TURNED, {"w": SQUARE}))
    assert "1 Transpose (ONNX Runtime crashes on it in float16)" in notes_of(made)
    assert types(made)["MatMul"] == ir.DataType.FLOAT16


def test_nodes_with_which_onnxruntime_does_not_run_stay_float32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = parsed(TURNED, {"w": SQUARE})
    whole = as_float16(ir.from_proto(model), (), keeps_io=True)
    if not refusal(whole, None):
        pytest.skip("this ONNX Runtime runs it")
    monkeypatch.setattr(float16_model, "is_fatal", lambda _: False)
    made = onnxq.half(model)
    assert "1 Transpose (with it in float16, ONNX Runtime does not run)" in notes_of(made)


def test_few_sessions_are_opened_for_many_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counted(model: ir.Model, tensors: Sequence[str]) -> Exposed:
        asked.append(len(tensors))
        return expose(model, tensors)

    steps = "".join(f"t{i + 1} = Add (t{i}, w)\n" for i in range(600))
    text = "g (float[n, 32] t0) => (float[n, 32] t600)"
    monkeypatch.setattr(float16_model, "expose", counted)
    onnxq.half(parsed(f"{text} {{\n{steps}}}", {"w": SQUARE[0]}))
    assert min(asked) == 600 // float16_model.MOST_SESSIONS


def test_weights_in_a_file_beside_the_model_become_float16(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "model.onnx"
    path.parent.mkdir()
    onnx.save(network(), path, save_as_external_data=True, size_threshold=0, location="weights")
    made = onnxq.half(path)
    plain = onnxq.half(network())
    got, wanted = (m.graph.initializers.values() for m in (made, plain))
    for one, other in zip(got, wanted, strict=True):
        assert one.const_value is not None
        assert other.const_value is not None
        assert np.array_equal(one.const_value.numpy(), other.const_value.numpy())
