"""PT2E programs of torchao: quantize operators become Q/DQ, convolutions integers."""

from __future__ import annotations

import functools
import sys
import warnings
from collections import Counter
from typing import TYPE_CHECKING
from unittest import mock

import numpy as np
import pytest
import torch
from torch import fx

from onnxq.errors import UnsupportedError
from onnxq.ort import runtime
from onnxq.pytorch.importers import ImportedModelWarning, import_quantized
from onnxq.pytorch.importers.programs import convert_program
from tests.exact_engine import exact
from tests.torch_ao_models import IMAGES, Plain, seeded

if TYPE_CHECKING:
    import onnx_ir as ir

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.filterwarnings("ignore::onnxq.pytorch.importers.ImportedModelWarning"),
]


# torchao's patterns of training take half a minute to match
TRAINED = pytest.mark.parametrize(
    "trained", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["static", "trained"]
)


@functools.cache
def program(*, trained: bool = False, convert: bool = True, fold: bool = True) -> fx.GraphModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("torchao")
        from torchao.quantization.pt2e.quantize_pt2e import (
            convert_pt2e,
            prepare_pt2e,
            prepare_qat_pt2e,
        )
        from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

        model = seeded(Plain()).train(trained)
        dynamic = {"x": {0: torch.export.Dim("batch")}}
        captured = torch.export.export(model, (IMAGES,), dynamic_shapes=dynamic).module()
        quantizer = x86.X86InductorQuantizer()
        quantizer.set_global(x86.get_default_x86_inductor_quantization_config(is_qat=trained))
        made = (prepare_qat_pt2e if trained else prepare_pt2e)(captured, quantizer)
        made(IMAGES)
        return convert_pt2e(made, fold_quantize=fold) if convert else made  # type: ignore[no-any-return]


def run(model: ir.Model) -> np.ndarray:
    with exact(model) as session:
        return np.asarray(session.run({"x": IMAGES.numpy()})[0])


@TRAINED
def test_programs_compute_what_torch_computes(trained: bool) -> None:
    quantized = program(trained=trained)
    with pytest.warns(ImportedModelWarning, match="conv2d_1.*float_results='requantize'"):
        model = import_quantized(quantized, IMAGES)
    np.testing.assert_allclose(run(model), quantized(IMAGES).detach().numpy(), atol=1e-4)
    assert Counter(n.op_type for n in model.graph)["Conv"] == 2


@TRAINED
def test_convolutions_with_float_results_run_in_integers_on_request(trained: bool) -> None:
    quantized = program(trained=trained)
    wanted = quantized(IMAGES).detach().numpy()
    fast = import_quantized(quantized, IMAGES, float_results="requantize", format="qoperator")
    assert Counter(n.op_type for n in fast.graph)["QLinearConv"] == 2
    assert np.abs(run(fast) - wanted).max() <= 0.02 * np.abs(wanted).max()


@pytest.mark.nightly
def test_prepared_programs_and_weights_that_were_not_folded_are_taken() -> None:
    unfolded = program(fold=False)
    model = import_quantized(unfolded, IMAGES)
    np.testing.assert_allclose(run(model), unfolded(IMAGES).detach().numpy(), atol=1e-4)
    import_quantized(program(convert=False), IMAGES)


@pytest.mark.nightly
def test_an_exported_program_brings_its_inputs() -> None:
    dynamic = {"x": {0: torch.export.Dim("batch")}}
    exported = torch.export.export(program(), (IMAGES,), dynamic_shapes=dynamic)
    assert run(import_quantized(exported)).shape == (4, 5)


def test_a_prepared_program_without_torchao_says_what_to_install() -> None:
    prepared = program(convert=False)
    missing = {name: None for name in sys.modules if name.startswith("torchao")}
    with (
        mock.patch.dict(sys.modules, missing),
        pytest.raises(UnsupportedError, match="pip install --no-deps torchao"),
    ):
        convert_program(prepared)


@pytest.mark.nightly
def test_int8_activations_of_programs_run_in_integers() -> None:
    pytest.importorskip("torchao")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
        from torchao.testing.pt2e import _xnnpack_quantizer as xnnpack

        dynamic = {"x": {0: torch.export.Dim("batch")}}
        model = seeded(Plain()).eval()
        captured = torch.export.export(model, (IMAGES,), dynamic_shapes=dynamic).module()
        quantizer = xnnpack.XNNPACKQuantizer()
        quantizer.set_global(xnnpack.get_symmetric_quantization_config(is_per_channel=True))
        prepared = prepare_pt2e(captured, quantizer)
        prepared(IMAGES)
        imported = import_quantized(convert_pt2e(prepared), (IMAGES,))
    uses = runtime.integer_nodes(runtime.optimized_graph(imported))
    assert not runtime.count(uses, runtime.NodeKind.FLOAT)
    integer = runtime.count(uses, runtime.NodeKind.INTEGER)
    assert (integer["QLinearConv"], integer["QLinearAdd"]) == (2, 1)
