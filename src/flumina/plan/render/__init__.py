"""Pictures of plans, one module for each format."""
