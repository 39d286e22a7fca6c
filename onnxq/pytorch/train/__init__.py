"""Prepared modules: their grids and sums, and quantized modules in place of them."""
