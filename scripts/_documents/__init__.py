"""Checks of what PyTorch's and NVIDIA's documents say about quantization, one claim each."""
