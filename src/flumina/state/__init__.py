"""Declared state: fields and their algebra, records, maps by key, and comparison of states."""
