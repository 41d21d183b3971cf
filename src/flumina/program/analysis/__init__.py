"""Analysis of user source: which fields are read and written, side effects, and mistakes in declarations."""
