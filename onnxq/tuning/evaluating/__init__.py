"""Models of candidates: made, run, timed, and noted in a journal."""
