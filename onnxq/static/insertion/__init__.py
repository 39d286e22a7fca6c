"""Placement by prepare: of every node, integers or a reason; of every tensor, its observer."""
