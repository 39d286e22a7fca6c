"""36 architectures, end to end: integers run, and the kernels compute each of them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

import onnxq
from onnxq import catalog
from onnxq.graph.io import load, save
from onnxq.operator import Float
from onnxq.ort.runtime import NodeKind, count, integer_nodes, optimized_graph
from scripts._architectures import ARCHITECTURES, Size, build
from tests.examples import ALL_INTEGERS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.nightly(nights=3)  # 140 CPU seconds

# of those that found bugs: what each has that others have not, and what computes in integers
FOUND_BUGS = {
    "c3d": {"QGemm": 1},  # few channels and three axes: such convolutions are faster in float
    "deeplab": {"QLinearConv": 16},  # Resize to a size that is computed at run time
    "efficientnet": {"QLinearConv": 36, "QLinearMul": 29},  # squeeze-and-excitation
    "dlrm": {"QGemm": 4, "QLinearMatMul": 1},  # EmbeddingBag
    "whisper": {"QLinearConv": 2, "MatMulIntegerToFloat": 10},
    "vit": {"QLinearConv": 1, "MatMulIntegerToFloat": 10},
    "swin": {"MatMulIntegerToFloat": 16},  # rolls, windows, a bias that is looked up
    "gpt_cache": {"MatMulIntegerToFloat": 6},  # -inf mask, cached keys and values, a tied head
    "unet": {"QLinearConv": 13},  # two of them were transposed
    "yolo": {"QLinearConv": 19, "QLinearSigmoid": 19},  # Split, Concat, decoded boxes
    "siamese": {"QLinearConv": 6},  # every weight is read twice
    "crnn": {"QLinearConv": 4},  # LSTM behind convolutions
}

BRANCHES = "cond_if"  # on the sign of a mean: the other branch runs on negative images


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_it_is_quantized_and_every_integer_agrees(name: str, tmp_path: Path) -> None:
    source, quantized = tmp_path / "float.onnx", tmp_path / "int8.onnx"
    module, feeds = build(name, Size.TINY)
    onnxq.export(module, feeds(4, 5), source)
    samples = [{k: x.numpy() for k, x in feeds(8, seed).items()} for seed in (7, 8)]

    prepared = onnxq.prepare(source, ALL_INTEGERS)
    in_float = {n: d.reason for n, d in prepared.decisions.items() if isinstance(d, Float)}
    assert all(in_float.values()), "a node is left in float, and nothing says why"
    plan = onnxq.plan(prepared, onnxq.calibrate(prepared, samples))
    save(onnxq.rewrite(prepared, plan), quantized)

    uses = integer_nodes(optimized_graph(load(quantized)))
    assert count(uses, NodeKind.INTEGER) >= Counter(FOUND_BUGS.get(name))
    opposite = [{k: -x for k, x in samples[0].items()}] if name == BRANCHES else []
    checked = onnxq.cross_check(quantized, [samples[0], *opposite])
    assert checked.exact
    assert not checked.unchecked
    assert not onnxq.predict(quantized, samples[:1]).differing  # portable is the same everywhere


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_the_chosen_forms_are_exact_and_give_the_same_bytes_named(
    name: str, tmp_path: Path
) -> None:
    source = tmp_path / "float.onnx"
    module, feeds = build(name, Size.TINY)
    onnxq.export(module, feeds(4, 5), source)
    samples = [{k: x.numpy() for k, x in feeds(8, seed).items()} for seed in (7, 8)]
    files, mapping = [], None
    for _ in range(2):
        prepared = onnxq.prepare(source, mapping)
        plan = onnxq.plan(prepared, onnxq.calibrate(prepared, samples))
        files.append(onnxq.rewrite(prepared, plan))
        mapping = plan.qconfig
    assert files[0].to_bytes() == files[1].to_bytes()
    opposite = [{k: -x for k, x in samples[0].items()}] if name == BRANCHES else []
    if any(map(catalog.is_on_integers, files[0].graph.all_nodes())):
        onnxq.cross_check(files[0], [samples[0], *opposite]).check()
