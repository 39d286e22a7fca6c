"""Noise of rounding to integers, predicted from statistics alone."""
