"""Version of onnxq."""

from __future__ import annotations

VERSION = "0.2.0"
"""The one that pyproject.toml names, too."""
