"""Connect tasks and the driver: authenticated channels, and the rendezvous."""
