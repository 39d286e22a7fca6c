"""Weights in blocks: 2, 4 or 8 bits with a scale per block of inputs."""
