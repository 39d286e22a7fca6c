"""Repair: what follows from a verdict that is low, or on a model slower or larger than float."""
