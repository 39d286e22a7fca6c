"""Scores of a model: samples, outputs beside float, a metric, a goal."""
