"""Store checkpoints in files: layout, owner, manifests, lineage, reading and verification."""
