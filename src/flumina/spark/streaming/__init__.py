"""Structured Streaming: a program over streaming DataFrames, as one query whose every batch runs the plan."""
