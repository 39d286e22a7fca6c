"""Prepared modules: their qparams and sums, and quantized modules in place of them."""
