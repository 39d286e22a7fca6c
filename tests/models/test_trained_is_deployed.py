"""MobileNetV2 trained with fake quantization: ONNX Runtime computes what was trained.

Bounds for the 10,000 test images are in benchmarks/qat.py; here are those of the embedded ones.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import onnxq
from models.cifar10 import load_sample
from onnxq.ort import runtime
from onnxq.pytorch import export
from onnxq.pytorch.deployed import Feeding, compare
from scripts.train_qat import BITS, deployed
from tests.this_machine import adds_exactly

if TYPE_CHECKING:
    import onnx_ir as ir

MODELS = Path(__file__).resolve().parent.parent.parent / "models"
EQUAL = 0.998
LEAST_TOP1 = {8: 860, 4: 860}  # of 1,000; float: 865
LARGEST_INTEGER = {8: 127, 4: 7}

pytestmark = pytest.mark.parametrize("bits", BITS)


@cache
def model(bits: int) -> tuple[Any, ir.Model]:
    """The converted module, and what is exported of it."""
    module = deployed(bits, MODELS / f"mobilenetv2_qat{bits}.safetensors")
    return module, export(module, images()[:4])


@cache
def images() -> torch.Tensor:
    return torch.from_numpy(load_sample("test")[0])


@adds_exactly
@pytest.mark.nightly
def test_layer_by_layer_the_integers_are_those_of_onnx_runtime(bits: int) -> None:
    found = compare(*model(bits), [images()[:50]], Feeding.LAYER_BY_LAYER)
    assert len(found.tensors) == 39
    assert min(one.share for one in found.tensors.values()) >= EQUAL
    assert max(one.largest for one in found.tensors.values()) <= 1


@adds_exactly
@pytest.mark.nightly
def test_free_running_the_classes_are_those_of_onnx_runtime(bits: int) -> None:
    module, exported = model(bits)
    with runtime.open_session(exported) as session, torch.no_grad():
        (logits,) = session.run({"image": images()[:500].numpy()})
        same = module(images()[:500]).numpy().argmax(1) == logits.argmax(1)
    assert len(same) == 500
    assert same.mean() >= EQUAL


@adds_exactly
@pytest.mark.nightly
def test_the_reference_kernels_give_every_integer(bits: int) -> None:
    samples = {"image": images()[:32].numpy()}
    assert onnxq.cross_check(model(bits)[1], onnxq.Samples(samples, batch_size=32)).exact


@pytest.mark.nightly
def test_every_convolution_runs_in_integers(bits: int) -> None:
    ops = Counter(node.op_type for node in runtime.optimized_graph(model(bits)[1]).graph)
    assert (ops["QLinearConv"], ops["QLinearAdd"], ops["QGemm"]) == (31, 5, 1)
    assert not ops["Conv"] + ops["FusedConv"] + ops["Gemm"] + ops["Clip"]


def test_weights_have_no_other_integers(bits: int) -> None:
    integers = [b for name, b in model(bits)[0].named_buffers() if name.endswith("weight_integers")]
    assert len(integers) == 32
    assert all(c.dtype == torch.int8 for c in integers)
    assert max(int(c.abs().max()) for c in integers) == LARGEST_INTEGER[bits]


@adds_exactly
@pytest.mark.nightly
def test_accuracy_is_that_of_the_float_model(bits: int) -> None:
    labels = load_sample("test")[1]
    with runtime.open_session(model(bits)[1]) as session:
        (logits,) = session.run({"image": images().numpy()})
    assert int(np.count_nonzero(logits.argmax(1) == labels)) >= LEAST_TOP1[bits]
