"""Quantizers of a module without stubs: where onnxq.prepare puts them in its ONNX form."""
