"""Calls of other quantization tools, one function per form of file; runs in the tool's environment.

    python scripts/_foreign/makers.py NAME SOURCE TARGET BATCHES.npz

SOURCE is a float file; of tools for PyTorch, it is only named, and the module is made here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))  # models/ is not installed

ROOT = Path(__file__).resolve().parent.parent.parent
Batch = dict[str, Any]
Make = Callable[[Path, Path, list[Batch]], None]


class Reader:
    """Hands out one batch at a time, as onnxruntime's readers do."""

    def __init__(self, batches: list[Batch]) -> None:
        self.batches = batches
        self.rewind()

    def rewind(self) -> None:
        """Begins anew."""
        self.left = iter(self.batches)

    def get_next(self) -> Batch | None:
        """The next batch, or None."""
        return next(self.left, None)


def _preprocessed(source: Path, target: Path) -> Path:
    """The float file as onnxruntime's own guide wants it ahead of its quantizer."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    path = target.with_suffix(".pre.onnx")
    quant_pre_process(str(source), str(path), skip_symbolic_shape=True)  # it fails on nudenet
    return path


def _ort_static(weights: str, inputs: str, form: str) -> Make:
    def make(source: Path, target: Path, batches: list[Batch]) -> None:
        from onnxruntime import quantization as q

        q.quantize_static(
            _preprocessed(source, target),
            target,
            Reader(batches),
            quant_format=q.QuantFormat[form],
            per_channel=True,
            weight_type=q.QuantType[weights],
            activation_type=q.QuantType[inputs],
        )

    return make


def ort_dynamic(source: Path, target: Path, _batches: list[Batch]) -> None:
    """MatMulInteger behind DynamicQuantizeLinear."""
    from onnxruntime import quantization as q

    q.quantize_dynamic(_preprocessed(source, target), target, per_channel=True)


def _ort_nbits(form: str, symmetric: str) -> Make:
    def make(source: Path, target: Path, _batches: list[Batch]) -> None:
        import onnx
        from onnxruntime.quantization import QuantFormat
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        quantizer = MatMulNBitsQuantizer(
            onnx.load(source),
            block_size=32,
            is_symmetric=symmetric == "symmetric",
            quant_format=QuantFormat[form],
        )
        quantizer.process()
        quantizer.model.save_model_to_file(str(target))

    return make


def ort_float16(source: Path, target: Path, _batches: list[Batch]) -> None:
    """onnxruntime.transformers' float16, inputs and outputs in float32."""
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=True), target)


def converter_float16(source: Path, target: Path, _batches: list[Batch]) -> None:
    """onnxconverter-common's float16, inputs and outputs as well."""
    import onnx
    from onnxconverter_common.float16 import convert_float_to_float16

    onnx.save(convert_float_to_float16(onnx.load(source)), target)


def _nncf(model_type: str = "") -> Make:
    def make(source: Path, target: Path, batches: list[Batch]) -> None:
        import nncf
        import onnx

        kind = nncf.ModelType(model_type) if model_type else None
        made = nncf.quantize(onnx.load(source), nncf.Dataset(batches), model_type=kind)
        onnx.save(made, target)

    return make


def _nncf_weights(mode: str, **options: Any) -> Make:
    def make(source: Path, target: Path, _batches: list[Batch]) -> None:
        import nncf
        import onnx

        chosen = nncf.CompressWeightsMode(mode)
        onnx.save(nncf.compress_weights(onnx.load(source), mode=chosen, **options), target)

    return make


def _modelopt(mode: str, high: str = "fp32", **options: Any) -> Make:
    def make(source: Path, target: Path, batches: list[Batch]) -> None:
        from modelopt.onnx.quantization import quantize

        joined = {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}
        quantize(
            str(source),
            quantize_mode=mode,
            calibration_data=joined,
            calibration_eps=["cpu"],
            output_path=str(target),
            high_precision_dtype=high,
            **options,
        )

    return make


def _module(source: Path) -> Any:
    """The module that the float file was exported from."""
    import importlib

    from safetensors.torch import load_file

    name = source.stem
    places = {"resnet20": "resnet", "mobilenetv2": "mobilenet", "transformer": "transformer"}
    module = getattr(importlib.import_module(f"models.{places[name]}"), name)()
    module.load_state_dict(load_file(ROOT / "models" / f"{name}.safetensors"))
    return module.eval()


def _brevitas(bits: int) -> Make:
    def make(source: Path, target: Path, batches: list[Batch]) -> None:
        import torch
        from brevitas.export import export_onnx_qcdq
        from brevitas.graph.calibrate import calibration_mode
        from brevitas.graph.quantize import preprocess_for_quantize, quantize

        images = [torch.from_numpy(b["image"]) for b in batches]
        module = quantize(preprocess_for_quantize(_module(source)))
        if bits < 8:
            for part in module.modules():
                if hasattr(part, "weight_quant") and hasattr(part, "in_channels"):
                    part.weight_quant.quant_injector = part.weight_quant.quant_injector.let(
                        bit_width=bits
                    )
                    part.weight_quant.init_tensor_quant()
        with torch.no_grad(), calibration_mode(module):
            for image in images:
                module(image)
        export_onnx_qcdq(module, images[0], str(target), dynamo=False, input_names=["image"])

    return make


def torch_pt2e(source: Path, target: Path, batches: list[Batch]) -> None:
    """PT2E of torchao for x86, exported by torch.onnx."""
    import torch
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    images = [torch.from_numpy(b["image"]) for b in batches]
    program = torch.export.export(_module(source), (images[0],)).module()
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(program, quantizer)
    for image in images:
        prepared(image)
    made = convert_pt2e(prepared)
    torch.onnx.export(
        made, (images[0],), target, dynamo=True, external_data=False, input_names=["image"]
    )


def _onnxsim(call: str, needs_samples: bool = False) -> Make:
    def make(source: Path, target: Path, batches: list[Batch]) -> None:
        import onnx
        import onnxsim

        model = onnxsim.simplify(onnx.load(source))[0]
        args = (batches,) if needs_samples else ()
        made = getattr(onnxsim, call)(model, *args)
        onnx.save(made[0] if isinstance(made, tuple) else made, target)

    return make


def _quark(name: str) -> Make:
    def make(source: Path, target: Path, batches: list[Batch]) -> None:
        from quark.onnx import ModelQuantizer
        from quark.onnx.quantization.config import Config, get_default_config

        quantizer = ModelQuantizer(Config(global_quant_config=get_default_config(name)))
        quantizer.quantize_model(str(source), str(target), Reader(batches))

    return make


def aimet(source: Path, target: Path, batches: list[Batch]) -> None:
    """AIMET's simulation, written with Q and DQ."""
    import onnx
    from aimet_onnx import QuantizationSimModel

    model = onnx.load(source)
    simulated = QuantizationSimModel(model, dummy_input=batches[0])
    simulated.compute_encodings(batches)
    onnx.save(simulated.to_onnx_qdq(prequantize_constants=True), target)


def olive(source: Path, target: Path, _batches: list[Batch]) -> None:
    """Olive's own rounding to 4 bits."""
    import shutil
    import tempfile

    from olive.hardware import AcceleratorSpec
    from olive.model import ONNXModelHandler
    from olive.passes.olive_pass import create_pass_from_dict
    from olive.passes.onnx.rtn_quantization import OnnxBlockWiseRtnQuantization

    with tempfile.TemporaryDirectory() as folder:
        spec = AcceleratorSpec("cpu", "CPUExecutionProvider")
        step = create_pass_from_dict(OnnxBlockWiseRtnQuantization, {"block_size": 16}, True, spec)
        made = step.run(ONNXModelHandler(str(source)), str(Path(folder) / "made"))
        shutil.copy(made.model_path, target)


def optimum(source: Path, target: Path, _batches: list[Batch]) -> None:
    """Dynamic quantization by optimum, for VNNI."""
    import shutil
    import tempfile

    from optimum.onnxruntime import ORTQuantizer
    from optimum.onnxruntime.configuration import AutoQuantizationConfig

    with tempfile.TemporaryDirectory() as folder:
        quantizer = ORTQuantizer(source)
        chosen = AutoQuantizationConfig.avx512_vnni(is_static=False, per_channel=True)
        quantizer.quantize(chosen, save_dir=folder)
        (made,) = Path(folder).glob("*.onnx")
        shutil.copy(made, target)


MAKERS: dict[str, Make] = {
    "ort U8S8 QDQ": _ort_static("QInt8", "QUInt8", "QDQ"),
    "ort S8S8 QDQ": _ort_static("QInt8", "QInt8", "QDQ"),
    "ort U8U8 QDQ": _ort_static("QUInt8", "QUInt8", "QDQ"),
    "ort U16S8 QDQ": _ort_static("QInt8", "QUInt16", "QDQ"),
    "ort U8S8 QOperator": _ort_static("QInt8", "QUInt8", "QOperator"),
    "ort dynamic": ort_dynamic,
    "ort 4 bits MatMulNBits": _ort_nbits("QOperator", "asymmetric"),
    "ort 4 bits QDQ": _ort_nbits("QDQ", "symmetric"),
    "ort float16": ort_float16,
    "converter float16": converter_float16,
    "nncf": _nncf(),
    "nncf transformer": _nncf("transformer"),
    "nncf weights int8": _nncf_weights("int8_asym"),
    "nncf weights int4": _nncf_weights("int4_sym", group_size=16),
    "modelopt int8": _modelopt("int8"),
    "modelopt int8 float16": _modelopt("int8", "fp16"),
    "modelopt int4 awq": _modelopt("int4", calibration_method="awq_lite"),
    "brevitas": _brevitas(8),
    "brevitas 4 bits": _brevitas(4),
    "quark A8W8": _quark("A8W8"),
    "quark XINT8": _quark("XINT8"),
    "quark U8S8": _quark("U8S8_AAWS"),
    "quark BF16": _quark("BF16"),
    "aimet": aimet,
    "olive 4 bits": olive,
    "optimum dynamic": optimum,
    "torchao PT2E": torch_pt2e,
    "onnxsim int8": _onnxsim("quantize_static", needs_samples=True),
    "onnxsim int16": _onnxsim("quantize_static_int16", needs_samples=True),
    "onnxsim weights int4": _onnxsim("quantize_weight_only_int4"),
    "onnxsim weights int8": _onnxsim("quantize_weight_only"),
}


def main() -> None:
    name, source, target, data = sys.argv[1:]
    count: dict[int, Batch] = {}
    with np.load(data) as arrays:
        for key in arrays.files:
            index, _, tensor = key.partition("/")
            count.setdefault(int(index), {})[tensor] = arrays[key]
    MAKERS[name](Path(source).resolve(), Path(target).resolve(), list(count.values()))


if __name__ == "__main__":
    main()
