"""The search itself: its course, descent, finalists, and tables of what it found."""
