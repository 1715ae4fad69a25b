"""Placeholder docstring of the room."""
