"""Rounding in torch: the operators, the observers that watch, and FakeQuantize."""
