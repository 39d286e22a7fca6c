"""Language models: what a decoder takes and gives, text as tokens, folders for other runtimes."""
