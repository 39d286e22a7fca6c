"""Modules that take the place of float ones: fused, in training, as deployed."""
