"""Output: writing, merging and committing the results of a run."""
