"""onnxq: ONNX-centric quantization: calibrate, rewrite, run on ONNX Runtime, check every integer.

    int8 = onnxq.quantize("model.onnx", samples)    # or prepare, calibrate, plan, rewrite
    int8.save("model.int8.onnx")

Each name is loaded when it is first used, so that `import onnxq` is quick and needs no torch.
The import declines ONNX Runtime's telemetry (onnxq/ort/telemetry.py).
"""

from importlib import import_module
from pathlib import Path as _Path
from typing import TYPE_CHECKING

from onnxq.core import clone as _clone
from onnxq.core import late_imports as _late_imports
from onnxq.core import version as _version
from onnxq.core.collector import without_collector as _without_collector
from onnxq.ort import telemetry as _telemetry

if TYPE_CHECKING:
    from onnxq import (
        errors,
        functional,
        metrics,
        observers,
        pytorch,
        qconfig,
        qtensor,
        reference,
        targets,
    )
    from onnxq.checking.bench import bench
    from onnxq.checking.check import Check, Repair
    from onnxq.checking.cross_check import cross_check
    from onnxq.checking.predict import predict
    from onnxq.checking.prove import prove
    from onnxq.core.limits import limits
    from onnxq.float16_model import half
    from onnxq.graph.saving import save
    from onnxq.hub import hub_folder
    from onnxq.imported_qdq import import_qdq
    from onnxq.language.genai_folder import genai_folder
    from onnxq.language.quantized_cache import quantize_cache
    from onnxq.pipeline import convert, quantize, quantize_dynamic
    from onnxq.pytorch import export
    from onnxq.quantized.quantized_model import QuantizedModel
    from onnxq.report.inspection import inspect
    from onnxq.samples.samples import Samples
    from onnxq.static.calibrate import calibrate
    from onnxq.static.plan import plan
    from onnxq.static.prepare import prepare
    from onnxq.static.rewrite import rewrite
    from onnxq.survey.verified import verify
    from onnxq.tuning.scoring.goal import Goal
    from onnxq.tuning.tune import tune
    from onnxq.weight_only import quantize_weights
    from onnxq.weights.mixed_bits import SizeAim

__version__ = _version.VERSION

_late_imports.put_off()
_telemetry.decline()

__path__ += _clone.more_paths(_Path(__file__).parent)

__all__ = [
    "Check",
    "Goal",
    "QuantizedModel",
    "Repair",
    "Samples",
    "SizeAim",
    "__version__",
    "bench",
    "calibrate",
    "convert",
    "cross_check",
    "errors",
    "export",
    "functional",
    "genai_folder",
    "half",
    "hub_folder",
    "import_qdq",
    "inspect",
    "limits",
    "metrics",
    "observers",
    "plan",
    "predict",
    "prepare",
    "prove",
    "pytorch",
    "qconfig",
    "qtensor",
    "quantize",
    "quantize_cache",
    "quantize_dynamic",
    "quantize_weights",
    "reference",
    "rewrite",
    "save",
    "targets",
    "tune",
    "verify",
]

_HOMES = {
    "Check": "onnxq.checking.check",
    "Repair": "onnxq.checking.check",
    "Goal": "onnxq.tuning.scoring.goal",
    "QuantizedModel": "onnxq.quantized.quantized_model",
    "Samples": "onnxq.samples.samples",
    "SizeAim": "onnxq.weights.mixed_bits",
    "bench": "onnxq.checking.bench",
    "calibrate": "onnxq.static.calibrate",
    "convert": "onnxq.pipeline",
    "cross_check": "onnxq.checking.cross_check",
    "export": "onnxq.pytorch",
    "genai_folder": "onnxq.language.genai_folder",
    "half": "onnxq.float16_model",
    "hub_folder": "onnxq.hub",
    "import_qdq": "onnxq.imported_qdq",
    "inspect": "onnxq.report.inspection",
    "limits": "onnxq.core.limits",
    "plan": "onnxq.static.plan",
    "predict": "onnxq.checking.predict",
    "prepare": "onnxq.static.prepare",
    "prove": "onnxq.checking.prove",
    "quantize": "onnxq.pipeline",
    "quantize_cache": "onnxq.language.quantized_cache",
    "quantize_dynamic": "onnxq.pipeline",
    "quantize_weights": "onnxq.weight_only",
    "rewrite": "onnxq.static.rewrite",
    "save": "onnxq.graph.saving",
    "tune": "onnxq.tuning.tune",
    "verify": "onnxq.survey.verified",
}
"""Public function or class -> the module that defines it; other names of __all__ are modules."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        from onnxq.errors import nearest

        raise AttributeError(f"module 'onnxq' has no attribute '{name}'.{nearest(name, __all__)}")
    with _without_collector():
        if name not in _HOMES:
            return import_module(f"onnxq.{name}")  # the import system binds it here
        found: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
