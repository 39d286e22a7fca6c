"""Models of candidates: made, run, and noted in a journal."""
