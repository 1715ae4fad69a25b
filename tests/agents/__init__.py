"""Agents, and the replay program as Claude Code would run its calls."""
