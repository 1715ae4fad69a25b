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
from typing import TYPE_CHECKING, Protocol

from harbor_tasks.errors import AuthorError
from harbor_tasks.evalspec import network_fault
from harbor_tasks.resources import resource

if TYPE_CHECKING:
    from harbor_tasks.tasks.manifest import BuildManifest

PLANNED = ("claude-code", "codex")
"""Agents that DESIGN.md names and that do not exist yet: asked for, they are refused by name."""


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


@dataclass(frozen=True)
class Launch:
    """How an agent is started; the working directory is the workspace."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: Path | None = None


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

    def lacks(self, task: Path, steps: tuple[str, ...]) -> str | None:
        """What the task directory lacks for this agent, e.g. ``no solution/solve.sh``; None when it can be run."""

    def launch(self, places: Places) -> Launch:
        """The command for one task, or for one of its steps."""


def make_agent(name: str, manifest: BuildManifest) -> Agent:
    """The agent of this name, set up for this build; AuthorError when there is none, or it cannot work on this eval."""
    from harbor_tasks.agents.oracle import OracleAgent
    from harbor_tasks.agents.probe import ProbeAgent
    from harbor_tasks.agents.replay import ReplayAgent

    if name == OracleAgent.name:
        return OracleAgent()
    if name == ReplayAgent.name:
        return ReplayAgent(manifest)
    if name == ProbeAgent.name:  # of a task that `probe` makes
        return ProbeAgent()
    known = (OracleAgent.name, ReplayAgent.name)
    if fault := network_fault(manifest.sandbox, name):
        raise AuthorError(fault)
    if name in PLANNED:
        raise AuthorError(f"agent {name}: this version does not run it yet; use --agent {' or '.join(known)}")
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known agents: {', '.join(known)}"
    raise AuthorError(f"agent {name!r} is not known; {hint}")


def solution_dir(task: Path, step: str | None) -> Path:
    """The folder of solutions that holds for a step: its own if it has one (as Harbor takes it), else the task's."""
    own = task / "steps" / step / "solution" if step is not None else None
    return own if own is not None and own.is_dir() else task / "solution"
