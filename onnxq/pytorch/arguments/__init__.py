"""Arguments of a module's forward: nested, named, and which axes are the batch."""
