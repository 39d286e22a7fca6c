"""Pages of the documentation as programs: their blocks are run, and their output is compared."""
