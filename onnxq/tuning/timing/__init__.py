"""Times of nodes in each of their forms, and of models that are made of them."""
