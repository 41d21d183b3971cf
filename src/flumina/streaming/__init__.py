"""Micro-batches, whatever engine runs them: frontiers, cuts, what is carried, and what has to be durable."""
