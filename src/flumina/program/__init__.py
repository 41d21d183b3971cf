"""Programs: what a user's class means, and everything derived from it."""
