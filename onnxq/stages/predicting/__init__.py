"""What predict looks at, and the prediction it makes of it."""
