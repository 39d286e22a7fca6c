"""Choice of a precision for every node that the qconfig leaves open, each with its reason."""
