"""Noise of rounding to codes, predicted from statistics alone."""
