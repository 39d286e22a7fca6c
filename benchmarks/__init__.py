"""Benchmarks as one program: `python -m benchmarks` lists them, or runs one by its name."""
