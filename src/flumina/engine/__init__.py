"""Run a plan in processes of any backend: driver, tasks, transport, sources and outputs."""
