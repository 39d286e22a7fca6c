"""Dynamic quantization: weights ahead of time, activations when the model runs."""
