"""Synchronisation plans: the tree, which trees are valid, how events find their worker, and who makes good ones."""
