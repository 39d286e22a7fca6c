"""Static quantization: prepare, calibrate, plan, rewrite."""
