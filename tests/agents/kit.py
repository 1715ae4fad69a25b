"""The agents claude-code and codex for as much of a build as they read, and the places of a trial."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harbor_tasks.agents.base import Places
from harbor_tasks.agents.claude_code import ClaudeCodeAgent
from harbor_tasks.agents.codex import CodexAgent
from harbor_tasks.evalspec.schema import Models, Runner, Sandbox

QUESTIONS = SimpleNamespace(patterns=("AskUserQuestion",))
EVERYTHING = SimpleNamespace(patterns=("*",))


def claude_code(
    *handlers: Any, budget: float | None = None, network: str = "public", **runner: Any
) -> ClaudeCodeAgent:  # fmt: skip
    build = SimpleNamespace(
        runner=Runner(**runner), models=Models(), plugins=("docs",), handlers=handlers,
        execution=SimpleNamespace(max_budget_usd=budget), sandbox=Sandbox(network=network),  # type: ignore[arg-type]
    )  # fmt: skip
    return ClaudeCodeAgent(build)  # type: ignore[arg-type]


def codex(
    *handlers: Any, network: str = "public", deny: tuple[str, ...] = (), model: str | None = "m-1", **runner: Any
) -> CodexAgent:  # fmt: skip
    build = SimpleNamespace(
        runner=Runner(**{"type": "codex", **runner}), models=Models(skill=model), plugins=("docs",), handlers=handlers,
        permissions=SimpleNamespace(deny=deny), sandbox=Sandbox(network=network),  # type: ignore[arg-type]
    )  # fmt: skip
    return CodexAgent(build)  # type: ignore[arg-type]


def places(sealed: bool, user: Path | None = None) -> Places:
    return Places(
        workspace=Path("/w"), home=Path("/h"), settings=Path("/s"), transcript=Path("/logs/t"), solution=Path("/x"),
        instruction=Path("/i"), mcp_config=Path("/m"), sealed=sealed, user=user,
    )  # fmt: skip
