"""Trials and jobs on this machine."""
