"""Who makes plans: optimisers behind one small protocol."""
