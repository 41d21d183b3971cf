"""Write files that survive a crash: atomic writes, sync, rename, checksums, locks, URIs."""
