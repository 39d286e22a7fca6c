"""The stages from a float model to an integer one, each a module; data flows one way."""
