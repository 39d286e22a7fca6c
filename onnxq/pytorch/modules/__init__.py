"""Modules of a float model: where they stand, their hooks, and forms of them that can be traced."""
