"""What each column becomes in another system, and how its values are converted and refused."""
