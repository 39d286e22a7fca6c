"""Writes onnxq/qconfig/qconfig.schema.json from the types in onnxq/qconfig/schema.py."""

from __future__ import annotations

from onnxq.qconfig import schema

schema.FILE.write_text(schema.to_text(), encoding="utf-8")
print(schema.FILE)
