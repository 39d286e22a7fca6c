"""Ground that every room stands on: files written whole, threads, plugins."""
