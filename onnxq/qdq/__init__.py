"""QuantizeLinear and DequantizeLinear nodes: read, written, fused, tidied."""
