"""Commands of ``flumina``: run, demo, check, plan, sim and checkpoint."""
