"""Sensitivity of a model: what each group of layers loses when it alone is quantized."""
