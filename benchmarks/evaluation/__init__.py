"""The paper's evaluation, on Spark: measured here as far as this machine goes, simulated beyond."""
