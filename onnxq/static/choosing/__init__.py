"""Choice of a form for every node that the qconfig leaves open, each with its reason."""
