"""Weights in blocks as arrays: their form, codes, bytes, and ranges with the least error."""
