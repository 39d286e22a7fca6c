"""Documented names of torch that have no counterpart here: using one says what to use in its place.

Importing such a name works, so that a script that names it and goes another way runs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from onnxq.errors import UnsupportedError


@dataclass(frozen=True)
class RefusedName:
    """A name that is refused where it is called, subclassed, or asked for an attribute."""

    name: str
    remedy: str

    def refuse(self) -> NoReturn:
        """Says what to use."""
        raise UnsupportedError(f"{self.name} is not there. {self.remedy}")

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Refuses, as a function or a class of that name would be used."""
        self.refuse()

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)  # copy, pickle and inspect ask for what may be missing
        self.refuse()

    def __mro_entries__(self, bases: tuple[object, ...]) -> NoReturn:
        self.refuse()

    def __instancecheck__(self, instance: object) -> bool:
        return False


def refusing(namespace: str, remedies: Mapping[str, str]) -> Callable[[str], RefusedName]:
    """The `__getattr__` of a module that refuses these names, and has no others."""

    def of(name: str) -> RefusedName:
        if name not in remedies:
            raise AttributeError(f"module '{namespace}' has no attribute '{name}'")
        return RefusedName(f"{namespace}.{name}", remedies[name])

    return of


# --- Names of torch.nn's quantized namespaces, each with what to use.

_APART = "Layers and what follows them stay apart; ONNX Runtime fuses what it has a kernel for."
_ONEDNN = dict.fromkeys(["ConvAdd2d", "ConvAddReLU2d", "LinearLeakyReLU", "LinearTanh"], _APART)


def _remedies(**remedies: str) -> dict[str, str]:
    # keywords: they are names of torch's classes, not of ONNX's operators
    return remedies


def _renamed(**names: str) -> dict[str, str]:
    return {old: f"Its name is {new} since PyTorch 1.3." for old, new in names.items()}


INTRINSIC = _ONEDNN
INTRINSIC_QAT = _renamed(
    ConvBnRelu2d="ConvBnReLU2d", ConvRelu2d="ConvReLU2d", LinearRelu="LinearReLU"
)
INTRINSIC_QUANTIZED = {**_ONEDNN, **_renamed(Conv2dRelu="ConvReLU2d", LinearRelu="LinearReLU")}
INTRINSIC_DYNAMIC = _remedies(
    LinearReLU="quantize_dynamic makes nn.quantized.dynamic.Linear of its layer; the ReLU stays."
)
QAT = _remedies(
    EmbeddingBag="Its weight is quantized after training: by prepare, or by quantize_dynamic."
)
QAT_DYNAMIC = _remedies(
    Linear="Weights alone are trained in blocks, with onnxq.qconfig.groupwise_4bit_qat_qconfig."
)
QUANTIZABLE = _remedies(
    LSTM="nn.LSTM is quantized by quantize_dynamic, or by prepare(model, inputs=example).",
    LSTMCell="nn.LSTMCell is quantized by quantize_dynamic.",
)
QUANTIZED_DYNAMIC = _remedies(Conv="It became Conv1d, Conv2d and Conv3d.")
QUANTIZED = _remedies(
    Dropout="nn.Dropout stays as it is, and lets integers pass in eval mode.",
    FXFloatFunctional="FloatFunctional stands for operators in eager and in graph mode.",
    LSTM="quantize_dynamic makes nn.quantized.dynamic.LSTM, whose matrix products run in integers.",
    MultiheadAttention=(
        "nn.MultiheadAttention becomes nn.quantizable.MultiheadAttention, converted part by part."
    ),
    PReLU="nn.PReLU stays a float module between integers: prepare observes its result.",
)

# --- Names of torch.quantization.

_BY_REMEDY = {
    "AffineQuantizedObserverBase Granularity MappingType PerAxis PerBlock PerGroup PerRow "
    "PerTensor PerToken TorchAODType ZeroPointDomain get_block_size": (
        "It describes weights in blocks for torchao: use a QConfigDynamic with a block size, "
        "such as onnxq.qconfig.groupwise_4bit_qat_qconfig, or onnxq.quantize_weights."
    ),
    "FixedQParamsFakeQuantize FixedQParamsObserver default_affine_fixed_qparams_fake_quant "
    "default_affine_fixed_qparams_observer default_fixed_qparams_range_0to1_fake_quant "
    "default_fixed_qparams_range_0to1_observer default_fixed_qparams_range_neg1to1_fake_quant "
    "default_fixed_qparams_range_neg1to1_observer default_symmetric_fixed_qparams_fake_quant "
    "default_symmetric_fixed_qparams_observer": (
        "Operators with a fixed range, such as Sigmoid and Softmax, have its scale here by "
        "themselves; FakeQuantize.fix(qparams) gives any module known qparams."
    ),
    "MatchAllNode QuantType convert_fx convert_to_reference_fx fuse_fx prepare_fx prepare_qat_fx": (
        "Graph mode needs no names of its own: onnxq.pytorch.prepare(model, inputs=example) "
        "and prepare_qat(model, inputs=example) insert quantizers without stubs, and convert "
        "follows."
    ),
    "ObserverOrFakeQuantize Pattern QConfigAny": "It is there for type hints: use typing.Any.",
    "QConfigMapping get_default_qat_qconfig_dict get_default_qat_qconfig_mapping "
    "get_default_qconfig_dict get_default_qconfig_mapping": (
        "Use onnxq.qconfig.QConfigMapping, whose set_global, set_op_type and set_node name "
        "what is in the exported model, with onnxq.pytorch.prepare(model, inputs=example, "
        "qconfig=...)."
    ),
    "ReuseInputObserver default_reuse_input_observer default_reuse_input_qconfig": (
        "Operators that move values share the scale of their input here by themselves."
    ),
    "UniformQuantizationObserverBase WeightObserver": (
        "Subclass ObserverBase: observe(x) takes a batch, calculate_qparams() says the result."
    ),
    "convert_dynamic_jit convert_jit fuse_conv_bn_jit prepare_dynamic_jit prepare_jit "
    "script_qconfig script_qconfig_dict": (
        "quantize_jit takes a script in one call; prepare takes the module that was scripted."
    ),
    "default_dynamic_fake_quant default_dynamic_qat_qconfig": (
        "Activations that are quantized as the model runs are not trained: use "
        "get_default_qat_qconfig for static scales, or "
        "onnxq.qconfig.groupwise_4bit_qat_qconfig for weights alone."
    ),
    "fuse_conv_bn fuse_conv_bn_relu fuse_convtranspose_bn fuse_linear_bn get_fuser_method "
    "get_fuser_method_new": (
        "fuse_modules fuses layers by name, prepare_qat(model, inputs=example) by itself."
    ),
    "get_default_dynamic_sparse_quant_module_mappings "
    "get_default_static_sparse_quant_module_mappings": (
        "Sparse layers have no form in ONNX. Use dense ones."
    ),
    "get_default_float_to_quantized_operator_mappings "
    "get_default_static_quant_reference_module_mappings get_dynamic_quant_module_class "
    "get_embedding_qat_module_mappings get_embedding_static_quant_module_mappings "
    "get_quantized_operator get_static_quant_module_class no_observer_set": (
        "What takes the place of what is in get_default_static_quant_module_mappings, "
        "get_default_qat_module_mappings and get_default_dynamic_quant_module_mappings."
    ),
    "BackendConfig": "Machines are onnxq.targets: see `target` of onnxq.pytorch.prepare.",
    "get_combined_dict": "Write {**a, **b}.",
    "get_default_compare_output_module_list": (
        "onnxq.pytorch.deployed.compare and onnxq.verify compare tensor by tensor."
    ),
    "get_default_custom_config_dict": "The default of custom configs is None.",
    "float16_static_qconfig": (
        "Activations in float16 gain nothing on CPUs: float16_dynamic_qconfig stores weights "
        "so, and computes in float32."
    ),
}
QUANTIZATION = {name: remedy for names, remedy in _BY_REMEDY.items() for name in names.split()}
