"""What a model is judged by: samples, outputs beside float, a metric, a goal."""
