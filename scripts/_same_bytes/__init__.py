"""Which files onnxq writes for many small models, and two sums of each; for scripts/same_bytes."""
