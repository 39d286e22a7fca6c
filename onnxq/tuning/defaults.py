"""Defaults of a search; they import nothing, so that the command line can show them."""

MOST_RUNS = 40
"""Runs where the caller names no number: see Goal.max_runs."""
IMPROVE = ("bias",)
"""Improvements of weights that a search may use: the one that takes no time, no bytes and no rounds
of its own."""
