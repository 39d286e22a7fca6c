"""What dynamic_plan decides: the form of every node, and qparams of the weights it stores."""
