"""What runs a plan in real processes, whoever starts them: task loop, transport, rendezvous, sources and outputs."""
