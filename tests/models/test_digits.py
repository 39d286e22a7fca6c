from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch
from safetensors.torch import load_file

import onnxq
from models import digits
from onnxq.graph.canonical import canonicalize
from onnxq.graph.io import load
from onnxq.operator import Precision
from onnxq.ort import runtime
from onnxq.ort.types_by_run import types_by_run
from onnxq.qconfig import QConfigDynamic, QConfigMapping, onnxq_default_dynamic_qconfig

WEIGHTS = Path(digits.__file__).parent
NAMES = ["digits_lstm", "digits_gru"]
TRAINED = {"digits_lstm": 575, "digits_gru": 588}  # of 600, as scripts/train_digits.py printed
BEHIND = 6
SMALLER = 0.3
BATCH = 100


@functools.cache
def exported(name: str) -> ir.Model:
    net = getattr(digits, name)()
    net.load_state_dict(load_file(WEIGHTS / f"{name}.safetensors"))
    return onnxq.export(net.eval(), digits.example_inputs())


@functools.cache
def quantized(name: str, target: str | None = None) -> ir.Model:
    return onnxq.quantize_dynamic(exported(name), objective="size", target=target)


def correct(model: ir.Model, batch: int) -> int:
    """Number of the 600 test images that the model gets right."""
    rows, labels = digits.load_digits("test")
    with runtime.open_session(model, threads=1) as session:
        logits = [session.run({"rows": rows[i : i + batch]})[0] for i in range(0, len(rows), batch)]
    return int((np.concatenate(logits).argmax(1) == labels).sum())


def constants(model: ir.Model) -> dict[str, int]:
    """Name -> bytes, of all that are no shapes or axes, bodies of loops included."""
    return {
        str(value.name): value.const_value.nbytes
        for graph in model.graphs()
        for value in graph.initializers.values()
        if value.const_value is not None and value.dtype != ir.DataType.INT64
    }


@pytest.mark.nightly
def test_splits_are_the_first_1197_and_the_last_600() -> None:
    rows, labels = digits.load_digits("train")
    others, other_labels = digits.load_digits("test")
    assert rows.shape == (1197, 8, 8)
    assert others.shape == (600, 8, 8)
    assert set(labels.tolist()) == set(other_labels.tolist()) == set(range(10))
    assert (rows.min(), rows.max()) == (-1, 1)
    with pytest.raises(ValueError, match="split is 'all'"):
        digits.load_digits("all")


@pytest.mark.parametrize("name", NAMES)
def test_ten_logits_per_image(name: str) -> None:
    net = getattr(digits, name)().eval()
    with torch.no_grad():
        assert net(torch.zeros(3, 8, 8)).shape == (3, 10)


def test_example_inputs_suit_the_models() -> None:
    assert {name: x.shape for name, x in digits.example_inputs().items()} == {"rows": (4, 8, 8)}


@pytest.mark.parametrize("name", NAMES)
def test_trained_weights_reach_95_percent(name: str) -> None:
    assert abs(correct(exported(name), BATCH) - TRAINED[name]) <= 1  # another order of sums
    assert TRAINED[name] >= 0.95 * 600


@pytest.mark.parametrize("batch", [1, BATCH])
@pytest.mark.parametrize("name", NAMES)
def test_dynamically_quantized_it_is_at_most_6_images_behind(name: str, batch: int) -> None:
    assert correct(exported(name), BATCH) - correct(quantized(name), batch) <= BEHIND


@pytest.mark.parametrize("name", NAMES)
def test_for_an_older_target_it_is_at_most_6_images_behind(name: str) -> None:
    model = quantized(name, "x86-avx2")  # weights within +-64
    assert correct(exported(name), BATCH) - correct(model, BATCH) <= BEHIND


@pytest.mark.parametrize("name", NAMES)
def test_integers_scales_and_zero_points_take_less_than_a_third(name: str) -> None:
    before = constants(canonicalize(load(exported(name)), types_by_run).model)
    after = constants(quantized(name))
    gone = sum(size for name, size in before.items() if name not in after)
    new = sum(size for name, size in after.items() if name not in before)
    assert gone > 150_000
    assert new <= SMALLER * gone


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_computes_what_onnx_runtime_does(name: str) -> None:
    rows, _ = digits.load_digits("test")
    default = onnxq_default_dynamic_qconfig
    # objective size stores matrices this small, which no integer comes from
    head = QConfigDynamic(default.weight_observer, Precision.DYNAMIC_INT8)
    mapping = QConfigMapping().set_global(default).set_op_type("Gemm", head)
    model = onnxq.quantize_dynamic(exported(name), mapping, objective="size")
    findings = onnxq.cross_check(model, onnxq.Samples({"rows": rows[:60]}, batch_size=20))
    assert findings.nodes
    assert [node.differing for node in findings.nodes] == [0] * len(findings.nodes)
    assert findings.nodes
    assert not findings.unchecked
