"""torch.ao.quantization's names that have no counterpart here, each with what to use."""

from __future__ import annotations

_REMEDIES = {
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
REFUSED = {name: remedy for names, remedy in _REMEDIES.items() for name in names.split()}
"""Name -> what to use in its place."""
