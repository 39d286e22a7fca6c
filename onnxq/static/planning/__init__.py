"""What plan computes: qparams of activations, weights and biases, and what they must keep to."""
