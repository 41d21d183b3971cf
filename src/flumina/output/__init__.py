"""Write, merge and commit the results of a run."""
