"""Causes of failures, and reasons why tests do not apply, by file and test."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a test does not pass.

    Attributes:
        text: in a line.
        applies: whether it counts as a failure; else it is not applicable.
    """

    text: str
    applies: bool


_REFERENCE = Cause("torch's reference modules, float between Q and DQ; no document has them", False)
_SCRIPT = Cause("torch.jit.script of a module; no document has it", False)
_TENSORS = Cause(
    "feeds or reads torch's quantized tensors; onnxq's modules take floats on a grid", False
)
_PRIVATE = Cause("reads private attributes of torch's modules (_packed_params, ...)", False)
_QPARAMS = Cause("qscheme per_channel_affine_float_qparams; no document has it", False)
_HISTOGRAM = Cause("onnxq's histogram has other bins, 64 and more, and its own search", True)
_NVIDIA_QUOTIENT = Cause(
    "TensorQuantizer rounds as ONNX does, x / (amax / 127), NVIDIA's x * (127 / amax): a last bit",
    True,
)
_FLOAT8 = Cause("float8 quantizers; ONNX Runtime's CPU has none; refused with the remedy", True)
_NO_FLOAT = Cause(
    "a layer whose weight is not rounded, or not trained, is no layer in integers: refused", True
)
_FLAGS = Cause("observer_enabled is a bool here, in torch a tensor; no document reads it", False)
_UNSEEN = Cause("NVIDIA's helper, no document has it", False)

_PTQ, _QAT = "test_quantize_eager_ptq.py", "test_quantize_eager_qat.py"
_MODULE, _WORKFLOW = "test_quantized_module.py", "test_workflow_module.py"
_OPS, _FUSE = "test_workflow_ops.py", "test_fuse_eager.py"

KNOWN: tuple[tuple[str, str, Cause], ...] = (
    (_FUSE, "*customization", Cause("a fuser_func of three arguments; documented are two", False)),
    (
        _FUSE,
        "*fuse_module_train",
        Cause("wants the error of torch.batch_norm of integers; here it is refused before", False),
    ),
    (_FUSE, "*conv_with_bias", Cause("nn.Identity as observer of weights in training", False)),
    (_PTQ, "TestQuantizeEagerOps.test_conv*", _REFERENCE),
    (_PTQ, "TestQuantizeEagerOps.test_linear", _REFERENCE),
    (_PTQ, "*int16_reference*", _REFERENCE),
    (_PTQ, "*functional_module", _TENSORS),
    (_PTQ, "*test_relu", Cause("nn.ReLU becomes nn.quantized.ReLU, as documented in 1.3", True)),
    (_PTQ, "*skip_quant", Cause("nn.ReLU becomes nn.quantized.ReLU, as documented in 1.3", True)),
    (_PTQ, "*fails_early", Cause("transposed convolutions have a scale per channel here", True)),
    (_PTQ, "*dequant_stub", Cause("a DeQuantStub without qconfig becomes DeQuantize, too", True)),
    (_PTQ, "*embedding_bag", _QPARAMS),
    (
        _PTQ,
        "*normalization",
        Cause("its last step calls quantize of a model without qconfig, which is refused", True),
    ),
    (
        _PTQ,
        "*quantized_rnn*",
        Cause("packed sequences into recurrent layers", True),
    ),
    (_QAT, "*scalar_uses_input*", _TENSORS),
    (_QAT, "*dynamic_qat*", Cause("dynamic quantization trained; no document has it", False)),
    ("test_model_numerics.py", "*weight_only_activation_only*", _NO_FLOAT),
    (_WORKFLOW, "*scriptable*", _SCRIPT),
    (_WORKFLOW, "*fused_mod_per_channel", _SCRIPT),
    (_WORKFLOW, "*fused_obs_fq_*", _FLAGS),
    (_WORKFLOW, "*per_channel_observers", _QPARAMS),
    (_WORKFLOW, "*test_histogram_observer*", _HISTOGRAM),
    (
        _WORKFLOW,
        "*record_observer",
        Cause("prepare's RecordingObserver keeps arrays, in .observer.batches", True),
    ),
    (
        _WORKFLOW,
        "*fq_module_per_channel",
        Cause("the edge of the gradient: x / scale here, x * (1 / scale) there", True),
    ),
    (
        _WORKFLOW,
        "*fake_quant_preserves_buffers",
        Cause("scale and zero_point become others where the number of channels is found", True),
    ),
    (
        _WORKFLOW,
        "*syncbn_replacement",
        Cause("prepare_qat with observers that do not round is refused", True),
    ),
    (_WORKFLOW, "*fused_qat_config", Cause("versions of qconfigs; no document has them", False)),
    (
        _OPS,
        "*learnable_forward_per_channel_cpu",
        Cause("torch's kernel beside torch's reference: with torch.ao it fails, too", False),
    ),
    (
        _OPS,
        "*for_activations",
        Cause(
            "a layer without QuantStub in front is refused, as it could not run in integers", True
        ),
    ),
    (
        _OPS,
        "*with_amp",
        Cause(
            "a layer without QuantStub in front is refused, as it could not run in integers", True
        ),
    ),
    (
        _OPS,
        "*serializable_per_tensor",
        Cause("FakeQuantize(default_observer, 0, 127) halves its range twice", True),
    ),
    (_MODULE, "TestStatic*embedding_bag_api", _QPARAMS),
    (_MODULE, "TestStatic*", _TENSORS),
    (_MODULE, "TestDynamic*", _PRIVATE),
    ("tensor_quantizer_test.py", "*e4m3*", _FLOAT8),
    ("tensor_quantizer_test.py", "*", _NVIDIA_QUOTIENT),
    ("calibrator_test.py", "TestCalibrateWeights*", _UNSEEN),
    ("calibrator_test.py", "*test_grow", _HISTOGRAM),
    (
        "calibrator_test.py",
        "*_tensor*",
        Cause("another bin of the histogram, or a smaller error than NVIDIA's search finds", True),
    ),
    ("calibrator_test.py", "*torch_hist", _HISTOGRAM),
    (
        "calibrator_test.py",
        "*test_raises",
        Cause("the error of a shape that changed is a ValueError, not a RuntimeError", True),
    ),
    ("quant_linear_test.py", "*", _NVIDIA_QUOTIENT),
    ("quant_pooling_test.py", "*", _NVIDIA_QUOTIENT),
    ("quant_conv_test.py", "*", _NVIDIA_QUOTIENT),
)
"""(file, pattern of names, cause)."""


def find(file: str, name: str) -> Cause | None:
    """The first cause whose file and pattern fit."""
    fitting = (cause for of, pattern, cause in KNOWN if of == file and fnmatchcase(name, pattern))
    return next(fitting, None)
