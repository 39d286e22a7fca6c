from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxq.graph.weights import (
    EAGER_BYTES,
    constant,
    derived,
    hold_as_arrays,
    is_private,
    renamed,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.graph.conftest import Numbers, Parse

FLOAT = ir.DataType.FLOAT


def test_small_tensors_are_computed_once_and_big_ones_at_every_read() -> None:
    calls = []

    def compute(size: int) -> Numbers:
        calls.append(size)
        return np.zeros(size, np.float32)

    small = derived(lambda: compute(3), FLOAT, (3,), "s")
    assert calls == [3]
    big_size = EAGER_BYTES // 4 + 1
    big = derived(lambda: compute(big_size), FLOAT, (big_size,), "b")
    assert calls == [3]
    for _ in range(2):
        assert (small.numpy().sum(), big.numpy().sum()) == (0, 0)
    assert calls == [3, big_size, big_size]
    assert (small.name, big.name, big.nbytes) == ("s", "b", 4 * big_size)


def test_only_what_nothing_can_change_is_constant(parse: Parse) -> None:
    one = np.ones(2, np.float32)
    model = parse(
        "g (float[2] x, float[2] d) => (float[2] y) { a = Add(x, w) y = Add(a, d) }",
        {"w": one, "d": one},
    )
    initializers = model.graph.initializers
    assert constant(initializers["w"]) is initializers["w"].const_value
    assert constant(initializers["d"]) is None
    assert constant(model.graph.inputs[0]) is None
    assert constant(None) is None


def test_a_weight_with_two_readers_is_not_private(parse: Parse) -> None:
    one = np.ones(2, np.float32)
    model = parse(
        "g (float[2] x) => (float[2] y) { a = Add(x, w) b = Add(a, v) y = Add(b, v) }",
        {"w": one, "v": one},
    )
    assert is_private(model.graph.initializers["w"])
    assert not is_private(model.graph.initializers["v"])


@pytest.mark.parametrize("kind", ["memory", "external", "lazy", "string"])
def test_a_renamed_tensor_has_the_same_data_and_leaves_the_first_alone(
    kind: str, tmp_path: Path
) -> None:
    array = np.arange(6, dtype=np.float32)
    (tmp_path / "d").write_bytes(array.tobytes())
    shape = ir.Shape([6])
    tensor = {
        "memory": ir.tensor(array, name="old"),
        "external": ir.ExternalTensor(
            "d", 0, 24, FLOAT, shape=shape, name="old", base_dir=tmp_path
        ),
        "lazy": ir.LazyTensor(lambda: ir.tensor(array), FLOAT, shape, name="old"),
        "string": ir.StringTensor([b"a"] * 6, shape=shape, name="old"),
    }[kind]
    new = renamed(tensor, "new")
    assert (tensor.name, new.name) == ("old", "new")
    assert new.dtype == tensor.dtype
    np.testing.assert_array_equal(new.numpy(), tensor.numpy())


def test_weights_held_as_arrays_are_read_without_a_copy(tmp_path: Path) -> None:
    """Arrays of a protobuf, a lazy tensor, a file, of fewer bits than a byte, and of a Constant."""
    numbers = np.arange(600, dtype=np.float32)
    (tmp_path / "data").write_bytes(numbers.tobytes())
    calls = []

    def compute() -> ir.Tensor[Numbers]:
        calls.append(1)
        return ir.Tensor(numbers, name="lazy")

    proto = onnx.numpy_helper.from_array(numbers, "proto")
    nibbles = onnx.helper.make_tensor("int4", onnx.TensorProto.INT4, [4], [1, 2, 3, -4])
    tensors: list[ir.TensorProtocol] = [
        ir.serde.deserialize_tensor(proto),
        ir.LazyTensor(compute, FLOAT, ir.Shape([600]), name="lazy"),
        ir.ExternalTensor("data", 0, 2400, FLOAT, shape=ir.Shape([600]), name="file",
                          base_dir=tmp_path),
        ir.serde.deserialize_tensor(nibbles),
    ]  # fmt: skip
    values = [ir.Value(name=t.name, const_value=t) for t in tensors]
    words = onnx.numpy_helper.from_array(np.array(["a", "b"], object), "words")
    tensors.append(ir.serde.deserialize_tensor(words))
    values.append(ir.Value(name="words", const_value=tensors[-1]))
    node = ir.node("Constant", [], attributes={"value": ir.AttrTensor("value", tensors[0])})
    graph = ir.Graph([], [], nodes=[node], initializers=values, opset_imports={"": 21})
    hold_as_arrays(ir.Model(graph, ir_version=10))
    held = [value.const_value for value in values]
    assert held[2] is tensors[2]
    assert isinstance(held[3], ir.TensorProtoTensor)
    assert held[3].raw is not nibbles
    assert held[3].raw == nibbles
    assert isinstance(held[4], ir.StringTensor)
    assert held[4].raw == [b"a", b"b"]
    for tensor in (*held[:2], node.attributes["value"].as_tensor()):
        assert tensor is not None
        assert tensor.numpy() is tensor.numpy()
        assert np.array_equal(tensor.numpy(), numbers)
    assert calls == [1]
