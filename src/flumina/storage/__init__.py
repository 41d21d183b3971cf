"""Storage: atomic and durable files, checksums, locks and file systems."""
