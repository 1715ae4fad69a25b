"""What tasks that came in a bundle could do to the machine of Harbor's process, and may not.

Harbor reads a task's own files with the rights and the environment of its process: it starts what a docker-compose.yaml
says, which may mount any folder of the machine, and fills ``${VAR}`` of task.toml in. `build` writes neither but what
the eval says; a bundle can hold whatever its maker put in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from harbor_tasks.errors import AuthorError, Problem, Where
from harbor_tasks.tasks.manifest import BuildManifest
from harbor_tasks.tasks.pulled import bundle_origin

KEY = "HARBOR_API_KEY"
"""The key of a Harbor server, in the environment of its process."""
_STARTED = re.compile(r"(?:dockerfile|.*compose.*\.ya?ml)", re.IGNORECASE)
_PLACES = ("environment", "tests")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)")
_VARIABLE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
"""What is, or could be taken for, a reference: compose fills ``$VAR`` in, too."""
_MODEL = {"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"}
"""What every task of an eval whose hooks ask a model refers to."""


def named_variables(manifest: BuildManifest) -> list[str]:
    """The variables that the eval refers to, sorted."""
    return sorted({name for text in _texts(manifest) for name in _REFERENCE.findall(text)})


def _texts(manifest: BuildManifest) -> list[str]:
    texts = [*manifest.execution.env.values(), *(text for step in manifest.steps for text in step.env.values())]
    for server in manifest.mcp_servers:
        given = (server.command, server.url, *server.args, *server.env.values(), *server.headers.values())
        texts += [text for text in given if text is not None]
    return texts


def require_harmless(source: Path, manifest: BuildManifest, tasks: Mapping[str, Path], *, at_server: bool) -> None:
    """AuthorError that names each task (by case) with something that Harbor must not be given.

    For a build of this machine's own that is, at a server, only the server's key.
    """
    stranger = bundle_origin(source) is not None
    texts = "\n".join(_texts(manifest))
    known = {*_VARIABLE.findall(texts), *_MODEL} if stranger else None
    found = [problem for case, path in tasks.items() for problem in _problems(case, path, known, at_server=at_server)]
    if found:
        raise AuthorError(found)


def _problems(case: str, task: Path, known: set[str] | None, *, at_server: bool) -> Iterator[Problem]:
    names = set(_VARIABLE.findall((task / "task.toml").read_text(encoding="utf-8", errors="replace")))
    if at_server and KEY in names:
        where = Where(task / "task.toml", case=case)
        yield Problem(f"the task asks for ${KEY}, the key of the server itself", where, code="harbor-key")
    if known is None:
        return
    for name in sorted(names - known - {KEY}):
        where = Where(task / "task.toml", case=case)
        yield Problem(f"the bundle's task takes ${name}, of which its eval says nothing", where, code="bundle-variable")
    for place in _PLACES:
        folder = task / place
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if _STARTED.fullmatch(path.name):
                what = "Harbor would start what this file of the bundle says, with this machine's rights"
                yield Problem(
                    what, Where(path, case=case), "harbor-pack build writes no such file", code="bundle-start"
                )
