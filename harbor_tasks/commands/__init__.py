"""The commands of `harbor-pack`: parse the command line, call the rooms, print. No logic of their own.

What a command reports goes to standard output (a table, or JSON with ``--json``); problems and progress go to standard
error. Heavy libraries are imported where they are used, so that a build with nothing to do starts fast.

- base.py: the application, and the options that several commands take
- evals.py: init, check, build, image; resolve.py: resolve
- jobs.py: run, probe, report, clean; score.py, freeze.py: score, freeze
- shipping.py, registry.py, runner.py: bundle, verify; push, pull; runner
- machine.py: doctor
"""

from harbor_tasks.commands import evals, freeze, jobs, machine, registry, resolve, runner, score, shipping
from harbor_tasks.commands.base import app

__all__ = ["app", "evals", "freeze", "jobs", "machine", "registry", "resolve", "runner", "score", "shipping"]

_ORDER = (
    "init", "check", "resolve", "build", "image", "run", "probe", "score", "freeze", "report", "bundle", "verify",
    "push", "pull", "runner", "clean", "doctor",
)  # fmt: skip
"""As `harbor-pack --help` lists them: the way of the data."""

app.registered_commands.sort(key=lambda command: _ORDER.index(getattr(command.callback, "__name__", "")))
