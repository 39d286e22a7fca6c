"""torch.export's program of a module, and the module that trains what the program computes."""
