"""What runs a plan for real: sources, transport and outputs around the pure runtime."""
