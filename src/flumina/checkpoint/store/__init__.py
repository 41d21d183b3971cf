"""The files of a checkpoint: layout, owner, manifests, lineage, reading and verification."""
