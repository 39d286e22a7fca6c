"""Version of onnxq."""

VERSION = "0.2.0"
"""The one that pyproject.toml names, too."""
