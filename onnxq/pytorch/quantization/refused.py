"""torch.ao.quantization's names that have no counterpart here, each with what to use."""

from __future__ import annotations

_GRAPH = (
    "Graph mode needs no names of its own: onnxq.pytorch.prepare(model, inputs=example) and "
    "prepare_qat(model, inputs=example) insert quantizers without stubs, and convert follows."
)
_MAPPING = (
    "Use onnxq.qconfig.QConfigMapping, whose set_global, set_op_type and set_node name "
    "what is in the exported model, with onnxq.pytorch.prepare(model, inputs=example, qconfig=...)."
)
_FIXED = (
    "Operators with a fixed range, such as Sigmoid and Softmax, have its scale here by themselves; "
    "FakeQuantize.fix(qparams) gives any module known qparams."
)
_JIT = "Scripts are not quantized: give onnxq.pytorch.prepare the module that was scripted."
_FUSING = "fuse_modules fuses layers by name, prepare_qat(model, inputs=example) by itself."
_SPARSE = "Sparse layers have no form in ONNX. Use dense ones."
_TABLES = (
    "What takes the place of what is in get_default_static_quant_module_mappings, "
    "get_default_qat_module_mappings and get_default_dynamic_quant_module_mappings."
)
_BLOCKS = (
    "It describes weights in blocks for torchao: use a QConfigDynamic with a block size, such as "
    "onnxq.qconfig.groupwise_4bit_qat_qconfig, or onnxq.quantize_weights."
)
_FLOAT16 = (
    "Activations in float16 gain nothing on CPUs: float16_dynamic_qconfig stores weights so, and "
    "computes in float32."
)
_DYNAMIC = (
    "Activations that are quantized as the model runs are not trained: use get_default_qat_qconfig "
    "for static scales, or onnxq.qconfig.groupwise_4bit_qat_qconfig for weights alone."
)
_BASE = "Subclass ObserverBase: observe(x) takes a batch, calculate_qparams() says the result."
_REUSED = "Operators that move values share the scale of their input here by themselves."
_TYPING = "It is there for type hints: use typing.Any."

REFUSED = {
    "AffineQuantizedObserverBase": _BLOCKS,
    "BackendConfig": "Machines are onnxq.targets: see `target` of onnxq.pytorch.prepare.",
    "FixedQParamsFakeQuantize": _FIXED,
    "FixedQParamsObserver": _FIXED,
    "Granularity": _BLOCKS,
    "MappingType": _BLOCKS,
    "MatchAllNode": _GRAPH,
    "ObserverOrFakeQuantize": _TYPING,
    "Pattern": _TYPING,
    "PerAxis": _BLOCKS,
    "PerBlock": _BLOCKS,
    "PerGroup": _BLOCKS,
    "PerRow": _BLOCKS,
    "PerTensor": _BLOCKS,
    "PerToken": _BLOCKS,
    "QConfigAny": _TYPING,
    "QConfigMapping": _MAPPING,
    "QuantType": _GRAPH,
    "ReuseInputObserver": _REUSED,
    "TorchAODType": _BLOCKS,
    "UniformQuantizationObserverBase": _BASE,
    "WeightObserver": _BASE,
    "ZeroPointDomain": _BLOCKS,
    "convert_dynamic_jit": _JIT,
    "convert_fx": _GRAPH,
    "convert_jit": _JIT,
    "convert_to_reference_fx": _GRAPH,
    "default_affine_fixed_qparams_fake_quant": _FIXED,
    "default_affine_fixed_qparams_observer": _FIXED,
    "default_dynamic_fake_quant": _DYNAMIC,
    "default_dynamic_qat_qconfig": _DYNAMIC,
    "default_fixed_qparams_range_0to1_fake_quant": _FIXED,
    "default_fixed_qparams_range_0to1_observer": _FIXED,
    "default_fixed_qparams_range_neg1to1_fake_quant": _FIXED,
    "default_fixed_qparams_range_neg1to1_observer": _FIXED,
    "default_reuse_input_observer": _REUSED,
    "default_reuse_input_qconfig": _REUSED,
    "default_symmetric_fixed_qparams_fake_quant": _FIXED,
    "default_symmetric_fixed_qparams_observer": _FIXED,
    "float16_static_qconfig": _FLOAT16,
    "fuse_conv_bn": _FUSING,
    "fuse_conv_bn_jit": _JIT,
    "fuse_conv_bn_relu": _FUSING,
    "fuse_convtranspose_bn": _FUSING,
    "fuse_fx": _GRAPH,
    "fuse_linear_bn": _FUSING,
    "get_block_size": _BLOCKS,
    "get_combined_dict": "Write {**a, **b}.",
    "get_default_compare_output_module_list": (
        "onnxq.pytorch.deployed.compare and onnxq.verify compare tensor by tensor."
    ),
    "get_default_custom_config_dict": "The default of custom configs is None.",
    "get_default_dynamic_sparse_quant_module_mappings": _SPARSE,
    "get_default_float_to_quantized_operator_mappings": _TABLES,
    "get_default_qat_qconfig_dict": _MAPPING,
    "get_default_qat_qconfig_mapping": _MAPPING,
    "get_default_qconfig_dict": _MAPPING,
    "get_default_qconfig_mapping": _MAPPING,
    "get_default_static_quant_reference_module_mappings": _TABLES,
    "get_default_static_sparse_quant_module_mappings": _SPARSE,
    "get_dynamic_quant_module_class": _TABLES,
    "get_embedding_qat_module_mappings": _TABLES,
    "get_embedding_static_quant_module_mappings": _TABLES,
    "get_fuser_method": _FUSING,
    "get_fuser_method_new": _FUSING,
    "get_quantized_operator": _TABLES,
    "get_static_quant_module_class": _TABLES,
    "no_observer_set": _TABLES,
    "prepare_dynamic_jit": _JIT,
    "prepare_fx": _GRAPH,
    "prepare_jit": _JIT,
    "prepare_qat_fx": _GRAPH,
    "script_qconfig": _JIT,
    "script_qconfig_dict": _JIT,
}
"""Name -> what to use in its place."""
