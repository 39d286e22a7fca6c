"""`python -m onnxq` is the command line."""

from __future__ import annotations

from onnxq.cli import main

main(prog_name="onnxq")
