"""Micro-batches, whatever engine runs them: frontiers, cuts, what is buffered, and what has to be durable."""
