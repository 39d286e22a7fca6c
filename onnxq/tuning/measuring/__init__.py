"""Measurements ahead of a search: times of the nodes in each form."""
