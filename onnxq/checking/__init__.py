"""What verify and cross_check look at, and the findings they make of it."""
