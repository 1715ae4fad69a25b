"""The commands of `harbor-pack`: parse the command line, call the rooms, print. No logic of their own.

What a command reports goes to standard output (a table, or JSON with ``--json``); problems and progress go to standard
error. Heavy libraries are imported where they are used, so that a build with nothing to do starts fast.
"""

# In the order in which `harbor-pack --help` lists them.
from harbor_tasks.commands import evals, freeze, jobs, machine, registry, resolve, runner, score, shipping
from harbor_tasks.commands.base import app

__all__ = ["app", "evals", "freeze", "jobs", "machine", "registry", "resolve", "runner", "score", "shipping"]
