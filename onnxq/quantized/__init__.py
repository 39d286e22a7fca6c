"""What quantization returns: a model, and the verdict on it."""
