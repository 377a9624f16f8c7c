"""What types hold: kinds of values, how each system declares them, and steps between them."""
