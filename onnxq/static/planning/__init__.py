"""Planning: qparams of activations, weights and biases, and the limits that they keep to."""
