"""Writes onnxq/qconfig/qconfig.schema.json from the types in onnxq/qconfig/file_form.py."""

from __future__ import annotations

from onnxq.qconfig import file_form

file_form.FILE.write_text(file_form.to_text(), encoding="utf-8")
print(file_form.FILE)
