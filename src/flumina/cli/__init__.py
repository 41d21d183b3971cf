"""The commands that run programs: ``flumina run`` and ``flumina demo``."""
