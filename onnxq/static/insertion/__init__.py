"""Quantizer insertion: every node is in integers or has a reason; tensors get observers."""
