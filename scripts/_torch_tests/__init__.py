"""Test files of PyTorch and pytorch-quantization, run with their imports redirected to onnxq."""
