"""ONNX Runtime: sessions, and what it makes of a graph."""
