"""Files that other quantization tools write: how each is made, and what stands in wheels."""
