"""The program: `python -m benchmarks`."""

from __future__ import annotations

import os

# every benchmark is of one thread; the libraries read this as they are loaded
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

from benchmarks.harness.command import main

if __name__ == "__main__":
    main()
