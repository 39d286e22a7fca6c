"""Search for a quantized model: groups of nodes, changes of the configuration, candidates."""
