"""Drives probes through a built policy: forced tool calls, each with the decision that it must get (DESIGN.md, Probes).

Form (a): the matchers and the exact registered command of the built settings.json, staged as for a trial on this
machine, and asked as the agent program asks them. No model, no agent and no tool runs.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harbor_tasks.environments.evidence import json_lines
from harbor_tasks.environments.selftest import LocalHooks, SelfTestError, self_test
from harbor_tasks.environments.staging import POLICY_FILES, copy_tree, staged_settings
from harbor_tasks.environments.variables import MACHINE, UnsetError, resolve_value
from harbor_tasks.errors import AuthorError, MachineError, Problems, printable
from harbor_tasks.policy.handlers import Handlers, read_handlers
from harbor_tasks.policy.probes import Probe, Route, routes
from harbor_tasks.resources import script_module
from harbor_tasks.tasks.manifest import BUILD_DIR, BuildManifest, read_manifest

if TYPE_CHECKING:
    from rich.table import Table

FORMS = ("local",)
_QUESTION_TOOLS = ("AskUserQuestion", "request_user_input")


@dataclass(frozen=True)
class ProbeRow:
    """One probe in one environment: ``got`` is the decision, ``reason`` its text, ``misses`` what differs."""

    name: str
    tool: str
    environment: str
    expected: str
    got: str
    reason: str
    ok: bool
    misses: tuple[str, ...] = ()
    tier: str | None = None
    """Of an answer: override, model or guessed."""


@dataclass(frozen=True)
class ProbeReport:
    """What the probes showed, and which enabled tools no handler covers."""

    rows: tuple[ProbeRow, ...]
    routes: tuple[Route, ...]

    @property
    def exit_code(self) -> Literal[0, 1]:
        """1 when a probe got another decision than it must."""
        return 0 if all(row.ok for row in self.rows) else 1

    def as_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "ok": self.exit_code == 0,
            "probes": [asdict(row) for row in self.rows],
            "routes": [asdict(route) for route in self.routes],
        }

    def tables(self) -> Iterable[Table | str]:
        """The report for a terminal."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        style: dict[str, Any] = {"box": SIMPLE_HEAD, "pad_edge": False, "title_justify": "left", "title_style": "bold"}
        if self.rows:
            table = Table("probe", "tool", "expected", "got", "", "reason", title="probes", **style)
            for row in self.rows:
                verdict, why = ("ok", _short(row.reason)) if row.ok else ("MISSED", "; ".join(row.misses))
                table.add_row(*map(printable, (row.name, row.tool, row.expected, row.got, verdict, why)))
            yield table
        else:
            yield "no probes: the eval names none under `probes`"
        table = Table("tool", "state", "by", title="routes", **style)
        for route in self.routes:
            table.add_row(printable(route.tool), route.state, printable(route.reason))
        yield table
        missed = sum(not row.ok for row in self.rows)
        yield f"{len(self.rows)} probe{'s' if len(self.rows) != 1 else ''}, {missed} missed"


def prove(
    source: Path, *, environments: tuple[str, ...] = FORMS, caller: Mapping[str, str] | None = None
) -> ProbeReport:
    """Force every probe of the built tasks in ``source``; ``caller`` is the user's environment (this process's).

    AuthorError when ``source`` is no build; MachineError when its policy does not work at all on this machine.
    """
    for name in environments:
        if name not in FORMS:
            raise AuthorError(f"environment {name!r}: probes run in {', '.join(FORMS)} only in this version")
    source = source.resolve()
    manifest = read_manifest(source)
    built = source / BUILD_DIR / "probe"
    with tempfile.TemporaryDirectory(prefix="hp-") as scratch:
        policy = _Policy(built, Path(scratch).resolve(), manifest, os.environ if caller is None else caller)
        rows = tuple(policy.probe(probe, number) for number, probe in enumerate(manifest.probes, 1))
    servers = [server.name for server in manifest.mcp_servers]
    return ProbeReport(rows, routes(_handlers(built), mcp_servers=servers, deny=manifest.permissions.deny))


class _Policy:
    """The eval's own policy (no case's overrides), staged in a temporary home and ready to be asked."""

    def __init__(self, built: Path, scratch: Path, manifest: BuildManifest, caller: Mapping[str, str]) -> None:
        self.replay = script_module("replay")
        self.workspace, self.log = scratch / "workspace", scratch / "interceptions.jsonl"
        home = scratch / "home"
        self.workspace.mkdir()
        home.mkdir()
        for name in POLICY_FILES:
            if (built / name).is_file():
                (home / name).parent.mkdir(exist_ok=True)
                copy_tree(built / name, home / name)
        written = built / ".claude" / "settings.json"
        text = staged_settings(written, home, self.log) if written.is_file() else "{}"
        self.settings = self.replay.json.loads(text)
        self.env = _hook_env(manifest, scratch, caller) | {"CLAUDE_PROJECT_DIR": str(self.workspace)}
        try:
            hooks = LocalHooks(self.settings, self.log, self.workspace, self.env)
            self_test(self.settings, hooks, cwd=str(self.workspace), home=str(home))
        except SelfTestError as error:
            raise MachineError(f"the policy of {built} does not work here: {error}") from None

    def probe(self, probe: Probe, number: int) -> ProbeRow:
        """Ask the hooks and the deny rules about one call."""
        tool = "Agent" if probe.tool == "Task" else probe.tool
        use = f"toolu_probe_{number:04d}"
        payload = {
            "session_id": "probe", "transcript_path": "", "cwd": str(self.workspace), "prompt_id": "probe",
            "permission_mode": "bypassPermissions", "effort": {"level": "medium"}, "hook_event_name": "PreToolUse",
            "tool_name": tool, "tool_input": probe.input, "tool_use_id": use,
        }  # fmt: skip
        # the settings' env would win over the process's: the probe's own values stand in its place
        settings = {**self.settings, "env": {**self.replay.settings_env(self.settings), **probe.env}}
        outcome = self.replay.call_hooks(settings, "PreToolUse", payload, str(self.workspace), self.env)
        got, reason = self._decision(tool, probe, outcome)
        line = next((line for line in json_lines(self.log) if line.get("tool_use_id") == use), {})
        misses = tuple(_misses(probe, got, reason, outcome))
        return ProbeRow(
            probe.name, probe.tool, "local", probe.expect, got, reason, not misses, misses, line.get("tier")
        )

    def _decision(self, tool: str, probe: Probe, outcome: Any) -> tuple[str, str]:
        """What becomes of the call, and the text that goes with it."""
        if outcome.decision in ("deny", "ask", "defer"):  # nobody is there to be asked
            return "deny", outcome.reason
        given = probe.input if outcome.updated_input is None else outcome.updated_input
        rules = self.replay.Permissions(self.settings, "bypassPermissions", str(self.workspace))
        refusal = rules.refusal(tool, given, str(self.workspace), outcome.decision == "allow")
        if refusal is not None:
            return "deny", refusal
        if outcome.updated_input is not None:
            answered = tool in _QUESTION_TOOLS and "answers" in outcome.updated_input
            return ("answer" if answered else "rewrite"), outcome.reason
        if outcome.decision == "allow":
            return "allow", outcome.reason
        return "none", outcome.reason if outcome.fired else "no hook covers the tool"


def _misses(probe: Probe, got: str, reason: str, outcome: Any) -> Iterable[str]:
    """What differs from what the probe says, one text each."""
    for note in outcome.notes:
        yield f"the hook failed open: {note}"
    if got != probe.expect:
        yield f"expected {probe.expect}, got {got}" + (f" ({reason})" if reason else "")
    for text in probe.reason_has:
        if text.casefold() not in reason.casefold():
            yield f"the reason lacks {text!r}: {reason!r}"
    updated = outcome.updated_input or {}
    if probe.answers and updated.get("answers") != probe.answers:
        yield f"expected the answers {probe.answers}, got {updated.get('answers')}"
    if probe.input_after is not None and outcome.updated_input != probe.input_after:
        yield f"expected the input {probe.input_after}, got {outcome.updated_input}"
    for name, value in (("result", probe.result), ("result_after", probe.result_after)):
        if value is not None:
            yield f"`{name}` is not supported yet: nothing acts on results in this version"


def _short(text: str) -> str:
    """The beginning of a reason: of those that are met it is enough."""
    words = " ".join(text.split())
    return words if len(words) <= 50 else words[:49] + "…"


def _hook_env(manifest: BuildManifest, scratch: Path, caller: Mapping[str, str]) -> dict[str, str]:
    """What the hook of a trial would see; a variable that nobody set is left out, since probes bring their own.

    No key of a model: a probe shows the policy, and a question that only a model can answer shows as guessed.
    """
    env = {name: caller[name] for name in MACHINE if name in caller}
    env |= {"HOME": str(scratch), "TMPDIR": str(scratch), "LANG": env.get("LANG", "C.UTF-8")}
    for name, value in manifest.execution.env.items():
        try:
            env[name] = resolve_value(value, caller)
        except UnsetError:
            continue
    return env


def _handlers(built: Path) -> Handlers | None:
    path = built / "tool_handlers.yaml"
    if not path.is_file():
        return None
    problems = Problems()
    handlers = read_handlers(path, problems)
    problems.raise_errors()
    return handlers
