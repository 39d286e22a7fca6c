"""Measurements ahead of a search: what each group of nodes costs in accuracy and in time."""
