"""What rounding to codes does to the data, predicted from statistics alone."""
