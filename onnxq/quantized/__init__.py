"""Results of quantization: a model, and the verdict on it."""
