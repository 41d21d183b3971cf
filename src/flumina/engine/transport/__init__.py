"""Transport: authenticated connections between tasks and the driver, and the rendezvous."""
