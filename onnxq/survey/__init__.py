"""Surveys: a float and a quantized model looked at together, for a report that people read."""
