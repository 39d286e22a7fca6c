"""What a module is called with: nested, named, and which axes are the batch."""
