"""The simulator: the real runtime under every schedule we can think of, judged by the oracle."""
