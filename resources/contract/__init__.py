"""What a system offers, and what the rooms above ask of it."""
