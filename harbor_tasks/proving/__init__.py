"""Drives probes through a built policy: forced tool calls, each with the decision that it must get (DESIGN.md, Probes).

- calls.py: what is asked, and of an answer what must be the same everywhere
- here.py: on this machine, the matchers and the exact registered command of the built settings.json
- sandbox.py: in a container, or under Harbor: one task of the eval that carries all probes
- through/: through the agent program itself, which a scripted endpoint makes propose the calls
- report.py: the table, the JSON, the exit code

The first two ask as the agent program asks, by the same script (interceptor/prober.py). No model and no tool runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from harbor_tasks.environments.base import RunOptions
from harbor_tasks.environments.strangers import require_trust
from harbor_tasks.errors import AuthorError, Problems
from harbor_tasks.policy.handlers import Handlers, read_handlers
from harbor_tasks.policy.probes import routes
from harbor_tasks.proving.calls import Outcome, forced_calls
from harbor_tasks.proving.here import ask_here
from harbor_tasks.proving.report import ProbeReport, ProbeRow, compared, row_of
from harbor_tasks.proving.through import Passage, Stage, require, through
from harbor_tasks.tasks.manifest import BUILD_DIR, read_manifest

__all__ = ["ENVIRONMENTS", "ProbeReport", "ProbeRow", "prove"]

ENVIRONMENTS = ("local", "docker", "harbor")


def prove(
    source: Path, *, environments: Sequence[str] = ("local",), caller: Mapping[str, str] | None = None,
    options: RunOptions | None = None, say: Callable[[str], None] | None = None, agent: str | None = None,
    modes: Sequence[str] | None = None, standard: bool = True,
) -> ProbeReport:  # fmt: skip
    """Force every probe of the built tasks in ``source``; ``caller`` is the user's environment (this process's).

    With several environments the calls that the handlers themselves are about are asked too, and what differs between
    environments is a failure. So they are with ``agent``: the program through which all calls go then. ``options`` name
    the engine and Harbor; ``say`` gets lines of progress; ``modes`` and ``standard`` are those of `through`.
    AuthorError when ``source`` is no build; MachineError when its policy does not work at all somewhere.
    """
    for name in environments:
        if name not in ENVIRONMENTS:
            raise AuthorError(f"environment {name!r}: probes run in {', '.join(ENVIRONMENTS)}")
    options = options or RunOptions()
    if options.harbor_options and "harbor" not in environments:
        raise AuthorError(f"{' '.join(options.harbor_options)}: only --env harbor takes arguments for Harbor")
    source = source.resolve()
    manifest = read_manifest(source)
    if agent is not None:
        require(agent, environments, manifest)
    for name in environments:
        require_trust(source, manifest, name, trusted=options.trust)
    built = source / BUILD_DIR / "probe"
    caller = os.environ if caller is None else caller
    places = list(dict.fromkeys(environments))
    handlers = _handlers(built)
    forced = forced_calls(manifest, handlers if len(places) > 1 or agent is not None else None)
    rows: list[ProbeRow] = []
    sealed: dict[str, bool] = {}
    outcomes: dict[str, Mapping[str, Outcome]] = {}
    for place in places:
        if place == "local":
            found, sealed[place] = ask_here(built, manifest, caller, forced), False
        else:
            from harbor_tasks.proving.sandbox import in_sandbox

            found, sealed[place] = in_sandbox(source, manifest, caller, forced, place, options, say, agent)
        rows += [row_of(one, place, found.get(one.id)) for one in forced]
        outcomes[place] = found
    servers = [server.name for server in manifest.mcp_servers]
    passages: list[Passage] = []
    tools: tuple[str, ...] | None = None
    for place in places if agent is not None else ():
        assert agent is not None
        stage = Stage(place, source, manifest, caller, options, say or (lambda _: None))
        seen, offered = through(agent, stage, forced, outcomes[place], modes=modes, standard=standard)
        passages += seen
        tools = tuple(dict.fromkeys((*(tools or ()), *(name for name in offered if not name.startswith("mcp__")))))
    rules, runtime = manifest.permissions.deny, manifest.runner.type
    state = routes(handlers, tools, mcp_servers=servers, deny=rules, runtime=runtime)
    return ProbeReport(tuple(compared(rows)), state, sealed, tuple(passages))


def _handlers(built: Path) -> Handlers | None:
    path = built / "tool_handlers.yaml"
    if not path.is_file():
        return None
    problems = Problems()
    handlers = read_handlers(path, problems)
    problems.raise_errors()
    return handlers
