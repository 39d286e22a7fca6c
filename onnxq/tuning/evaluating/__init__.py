"""Timed runs of whole models."""
