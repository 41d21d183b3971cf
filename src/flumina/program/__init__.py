"""Programs: the user's class, its definition, and what is derived from it."""
