"""ONNX's backend test suite: its models and data, what onnxq makes of them, and how that ends."""
