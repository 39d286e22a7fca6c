"""Files whose weights are integers already: what every way to quantize them keeps."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

import onnxq
from onnxq.checking.summary import Summary, summarize, summarize_precisions
from onnxq.core.packing import unpacked_rows
from onnxq.errors import NothingQuantizedError
from onnxq.graph.saving import saved_bytes
from onnxq.operator import Precision
from onnxq.operator.nodes import input_at, tensor_of
from onnxq.operator.reasons import InGroupsAlready
from onnxq.pipeline import plan_dynamic
from onnxq.static.prepare import prepare
from onnxq.weights.plan_weights import plan_weights
from onnxq.weights.weight_plan import WeightRequest
from tests import stored_weights as given

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt
    import onnx

    from onnxq.quantized.quantized_model import QuantizedModel

    Numbers = npt.NDArray[np.generic]

N = given.N
OWN_BYTES = 1500  # names, metadata, Q and DQ: these models are small
GIVEN = {
    "per channel": given.per_channel,
    "turned": given.turned,
    "groups": given.groups,
    "groups of float16": lambda: given.groups(half=True),
    "few levels": given.few_levels,
    "shifted": given.shifted,
    "nbits": given.nbits,
}
WAYS: dict[str, Callable[[onnx.ModelProto], QuantizedModel]] = {
    "static": lambda m: onnxq.quantize(m, samples(m), target="x86-vnni", check=onnxq.Check.NONE),
    "portable": lambda m: onnxq.quantize(m, samples(m), target="portable"),
    "dynamic": lambda m: onnxq.quantize_dynamic(m, objective="size"),
}
REFUSED = [
    (name, way) for name in ("groups", "groups of float16") for way in ("dynamic", "portable")
]
"""Files of which nothing would be smaller or faster, and the ways that say so."""


def samples(model: onnx.ModelProto) -> dict[str, Numbers]:
    shape = [d.dim_value or 16 for d in model.graph.input[0].type.tensor_type.shape.dim]
    return {"x": np.random.default_rng(3).normal(0, 1, shape).astype(np.float32)}


def notes_of(model: QuantizedModel) -> tuple[str, ...]:
    assert model.verdict is not None
    return model.verdict.notes


def integers_in(model: ir.Model) -> list[Numbers]:
    """int8 matrices, in the order of the model."""
    tensors = [v.const_value for v in model.graph.initializers.values() if v.const_value]
    return [t.numpy() for t in tensors if t.dtype == ir.DataType.INT8 and t.size > N]


@pytest.mark.parametrize(
    ("name", "way"), [pair for pair in itertools.product(GIVEN, WAYS) if pair not in REFUSED]
)
def test_no_file_grows(name: str, way: str) -> None:
    model = GIVEN[name]()
    made = WAYS[way](model)
    assert saved_bytes(made) <= model.ByteSize() + OWN_BYTES


@pytest.mark.parametrize("way", ["static", "dynamic"])
def test_int8_per_channel_keeps_its_integers_and_scales(way: str) -> None:
    made = WAYS[way](given.per_channel())
    (stored,) = integers_in(made)
    assert np.array_equal(stored, given.integers(-127, 128, given.K, N))
    numbers = [v.const_value.numpy() for v in made.graph.initializers.values() if v.const_value]
    assert any(x.size == N and np.array_equal(x.ravel(), given.scales(N)) for x in numbers)


def test_a_transposed_weight_with_one_scale_keeps_its_integers() -> None:
    (stored,) = integers_in(WAYS["static"](given.turned()))
    assert np.array_equal(stored.ravel(), given.integers(-127, 128, N, given.K).T.ravel())


def test_levels_of_four_bits_stay_on_a_target_with_seven_bits() -> None:
    made = WAYS["portable"](given.few_levels())
    (stored,) = integers_in(made)
    assert np.array_equal(stored, given.integers(-7, 8, 32, 16, 3, 3))


def test_the_least_integer_stays_where_the_target_has_all_of_int8() -> None:
    (stored,) = integers_in(WAYS["static"](given.turned(-128)))
    assert stored.min() == -128


def test_integers_that_the_target_cannot_add_are_named_with_what_others_cost() -> None:
    made = WAYS["portable"](given.per_channel())
    note = notes_of(made)[0]
    assert note.startswith(
        "1 of the weights that the file stores as integers need others for target 'portable': 'w' ("
    )
    assert 30 < float(note.split("(")[1].split(" dB")[0]) < 60
    assert made.verdict is not None
    assert "of the given file's size" in made.verdict.headline


def test_every_way_says_that_weights_are_stored_already() -> None:
    for way in WAYS.values():
        made = way(given.per_channel())
        assert made.verdict is None or any(
            "stores 1 weight as int" in n for n in made.verdict.notes
        )


@pytest.mark.parametrize("size", [32, 64, 128])
@pytest.mark.parametrize("symmetric", [False, True])
def test_groups_of_four_bits_become_matmulnbits_with_their_integers(
    size: int, symmetric: bool
) -> None:
    made = onnxq.quantize_weights(given.groups(size, symmetric=symmetric))
    (matmul,) = made.graph
    assert matmul.attributes["block_size"].value == size
    packed, scale, *points = [tensor_of(v).numpy() for v in matmul.inputs[1:] if v is not None]
    stored = unpacked_rows(packed.reshape(N, -1), 4)
    assert np.array_equal(stored, given.integers(0, 16, given.K, N).T)
    assert np.array_equal(scale.reshape(N, -1), given.scales(given.K // size, N).T)
    assert symmetric == (not points)


def test_integers_of_eight_bits_that_get_four_are_a_note() -> None:
    made = onnxq.quantize_weights(given.per_channel())
    assert any("need others for the bits that are asked for" in n for n in notes_of(made))


def test_groups_beside_other_matmuls_stay_as_they_are() -> None:
    for way in WAYS.values():
        made = way(given.nbits())
        (matmul,) = [n for n in made.graph if n.op_type == "MatMulNBits"]
        assert np.array_equal(
            tensor_of(input_at(matmul, 1)).numpy(),
            given.integers(0, 256, N, 8, 16).astype(np.uint8),
        )


def summaries_of(model: onnx.ModelProto) -> list[Summary]:
    prepared = prepare(model)
    static = summarize_precisions(prepared.model, prepared.decisions, prepared.precisions, {})
    source, dynamic = plan_dynamic(model)
    groupwise = plan_weights(source, WeightRequest())
    return [
        static,
        summarize(source, dynamic.decisions),
        summarize(source, groupwise.dynamic_decisions),
    ]


def test_groups_that_stay_have_their_precision_and_count_as_untouched() -> None:
    for summary in summaries_of(given.nbits()):
        (node,) = [n for n in summary.nodes if n.op_type == "com.microsoft.MatMulNBits"]
        assert node.precision is Precision.WEIGHT_ONLY_GROUPWISE
        assert isinstance(node.why, InGroupsAlready)
        floats = sum(n.precision is Precision.FLOAT for n in summary.nodes)
        assert summary.node_counts(None).floats == floats + 1


def test_a_file_of_four_bits_alone_is_told_that_dynamic_int8_would_be_larger() -> None:
    with pytest.raises(
        NothingQuantizedError, match="stores its weight 'w_real' in 4 bits, and others would"
    ):
        onnxq.quantize_dynamic(given.groups())
