"""Ground that every room stands on: types of arrays, files written whole, threads, plugins."""
