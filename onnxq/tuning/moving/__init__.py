"""Positions of a search: the units of a model, moves between their forms, and estimates of both."""
