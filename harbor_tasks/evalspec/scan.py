"""Warns of secrets in case files, which travel with every task and bundle."""

from __future__ import annotations

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec.dataset import Case
from harbor_tasks.evalspec.secrets import is_secret_file, secret_lines

_HINT = "what a task needs from your machine is a ${VAR} in execution.env"


def warn_of_secrets(case: Case, problems: Problems) -> None:
    """A warning for each file of the case whose name or content looks like a secret, by path and line."""
    data = [case.input_file, case.answers_file, case.annotations_file, case.replay_file]
    sources = [path for path in data if path is not None]
    sources += [file.source for file in (*case.files, *case.solution, *case.references) if not file.is_dir]
    for path in sources:
        if is_secret_file(path.name):
            message = "has the name of a file that holds secrets"
            problems.warn(message, path, case=case.id, hint=_HINT, code="secret")
        for line in secret_lines(path):
            problems.warn("holds what looks like a secret", path, line, case=case.id, hint=_HINT, code="secret")
