"""From a module to an ONNX model that computes what the module does."""
