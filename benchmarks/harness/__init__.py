"""Harness of the benchmarks: tables, results as JSON, pages rendered from them, and the command."""
