"""Checks of a quantized model: against float, the reference, other machines, the clock."""
