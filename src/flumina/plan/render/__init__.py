"""Render plans, one module for each format."""
