"""The contract of an agent, and the agents by name.

An agent knows its command line and what a task must hold for it. Where it runs, and what ends it, is the environment's
business.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from harbor_tasks.errors import AuthorError
from harbor_tasks.evalspec import network_fault
from harbor_tasks.resources import resource

if TYPE_CHECKING:
    from harbor_tasks.tasks.manifest import BuildManifest


@dataclass(frozen=True)
class Places:
    """Where an agent finds its things: paths as its own process sees them."""

    workspace: Path
    home: Path
    """The policy and the layer of the eval."""
    settings: Path
    transcript: Path
    solution: Path
    """The task's ``solution/``; there only for an agent that needs it."""
    instruction: Path
    mcp_config: Path | None = None
    step: str | None = None
    python: str = sys.executable
    """The Python that runs the agent's programs."""
    programs: Path = field(default_factory=lambda: resource("interceptor"))
    """The folder of the agent's programs."""
    user: Path | None = None
    """On this machine the agent's own HOME, outside the workspace; None in a container."""
    sealed: bool = False
    budget_usd: float | None = None
    """What is left of the trial's budget for a step that is not the first; None: all of it."""


@dataclass(frozen=True)
class Launch:
    """How an agent is started; the working directory is the workspace."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: Path | None = None
    sessions: Path | None = None
    """The folder where the program keeps its own record, of which the transcript is made."""


class Agent(Protocol):
    """What works on a task."""

    name: str
    version: str
    needs_solution: bool
    """It works from the task's ``solution/``, which no other agent gets to see."""
    solution_files: tuple[str, ...] | None
    """What it needs of ``solution/``; None is everything."""
    programs: tuple[str, ...]
    """The scripts of ``interceptor/`` that it runs."""
    asks_hooks: bool
    """It runs the hooks of the settings, and keeps the key of their model from the commands that it runs."""
    program: str | None
    """The agent program that an image must hold for it."""
    model_variables: tuple[str, ...]
    """Variables of the caller by which its program, and nothing else, finds its model; empty when it needs none."""
    transcript_from: Literal["file", "output", "sessions"]
    """Where its transcript is: in ``Places.transcript``, what it prints, or in ``Launch.sessions`` (Codex's record)."""

    def prepare(self, environment: str, caller: Mapping[str, str], *, scripted: bool) -> None:
        """Look for what it needs in this environment before a job exists; AuthorError or MachineError.

        ``scripted``: a scripted endpoint stands in for its model, so it needs no key.
        """

    def lacks(self, task: Path, steps: tuple[str, ...]) -> str | None:
        """What the task directory lacks for this agent, e.g. ``no solution/solve.sh``; None when it can be run."""

    def launch(self, places: Places) -> Launch:
        """The command for one task, or for one of its steps."""


def make_agent(name: str, manifest: BuildManifest) -> Agent:
    """The agent of this name, set up for this build; AuthorError when there is none."""
    from harbor_tasks.agents.claude_code import ClaudeCodeAgent
    from harbor_tasks.agents.codex import CodexAgent
    from harbor_tasks.agents.oracle import OracleAgent
    from harbor_tasks.agents.probe import ProbeAgent
    from harbor_tasks.agents.replay import ReplayAgent

    if name == OracleAgent.name:
        return OracleAgent()
    if name == ReplayAgent.name:
        return ReplayAgent(manifest)
    if name == ClaudeCodeAgent.name:
        return ClaudeCodeAgent(manifest)
    if name == CodexAgent.name:
        return CodexAgent(manifest)
    if name == ProbeAgent.name:  # of a task that `probe` makes
        return ProbeAgent()
    require_known(name)
    raise AssertionError(name)


def require_known(name: str) -> None:
    """AuthorError when no agent that a user may ask for has this name."""
    from harbor_tasks.agents.claude_code import ClaudeCodeAgent
    from harbor_tasks.agents.codex import CodexAgent
    from harbor_tasks.agents.oracle import OracleAgent
    from harbor_tasks.agents.replay import ReplayAgent

    known = (ClaudeCodeAgent.name, CodexAgent.name, OracleAgent.name, ReplayAgent.name)
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known agents: {', '.join(known)}"
        raise AuthorError(f"agent {name!r} is not known; {hint}")


def require_network(agent: str, manifest: BuildManifest, environment: str, *, scripted: bool) -> None:
    """AuthorError when an agent could not reach its model; a script on this machine needs no network."""
    fault = network_fault(manifest.sandbox, agent)
    if fault and not (scripted and environment == "local"):
        raise AuthorError(fault)


class OwnProgram:
    """An agent that is a script of ours: what it does not need of an image, a model or this machine."""

    program: str | None = None
    model_variables: tuple[str, ...] = ()
    transcript_from: Literal["file", "output", "sessions"] = "file"

    def prepare(self, environment: str, caller: Mapping[str, str], *, scripted: bool) -> None:  # noqa: ARG002
        """It needs nothing that is not here, but has no model that a script could stand in for."""
        if scripted:
            raise AuthorError("--scripted: this agent asks no model; use it with --agent claude-code or codex")


def solution_dir(task: Path, step: str | None) -> Path:
    """The folder of solutions that holds for a step: its own if it has one (as Harbor takes it), else the task's."""
    own = task / "steps" / step / "solution" if step is not None else None
    return own if own is not None and own.is_dir() else task / "solution"
