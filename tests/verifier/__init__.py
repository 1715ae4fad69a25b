"""Tests of the verifier: real workspaces, real judges, the script as the sandbox starts it."""
