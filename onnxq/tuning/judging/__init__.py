"""Means to judge a model by: samples, outputs beside float, a metric, a goal."""
