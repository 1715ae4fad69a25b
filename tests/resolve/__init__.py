"""Tests of `resolve`."""
