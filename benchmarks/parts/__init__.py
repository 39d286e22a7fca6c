"""Parts that several benchmarks, or a test and a benchmark, share."""
