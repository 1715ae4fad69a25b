"""Probes through Codex itself, of an eval that is written for Claude Code: by the tools that Codex has."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from harbor_tasks.agents.base import Launch, Places
from harbor_tasks.agents.codex import CodexAgent
from harbor_tasks.endpoint import Call, Turn
from harbor_tasks.environments.evidence import input_hash
from harbor_tasks.errors import AuthorError, MachineError
from harbor_tasks.policy.probes import Probe
from harbor_tasks.policy.tools import CODEX_UNSEEN
from harbor_tasks.proving import ProbeReport, prove
from harbor_tasks.proving.calls import Forced
from harbor_tasks.proving.through import Passage
from harbor_tasks.proving.through.codex import GOES_ON, PLAIN, PROGRAMS, Codex
from harbor_tasks.tasks.build import build
from harbor_tasks.tasks.manifest import read_manifest

from .test_through import CANARY, HANDLERS, QUESTION, probe

NO_MAIL = {"match": "Mail", "patterns": ["Write"], "reason": "No mail.",
           "input_checks": [{"field": "file_path", "op": "glob", "value": "notes/*"}]}  # fmt: skip
SEVERAL = {"question": "Which?", "options": ["A", "B", "C"], "multiSelect": True}
PROBES = [
    probe("refund", "mcp__desk__refund", "none", {"amount": 50}),
    probe("too much", "mcp__desk__refund", "deny", {"amount": 51}),
    probe("note", "mcp__desk__note", "rewrite", {"text": "hi"}, input_after={"text": "[bot] hi"}),
    probe("question", "AskUserQuestion", "answer", {"questions": [QUESTION]}, answers={"Go on?": "No"}),
    probe("its own question", "request_user_input", "answer", {"questions": [QUESTION]}, answers={"Go on?": "No"}),
    probe("several answers", "AskUserQuestion", "answer", {"questions": [SEVERAL]}, answers={"Which?": "A, B"}),
    probe("filing here", "Bash", "none", {"command": "submit a"}, env={"TRACKER": "http://localhost/"}),
    probe("filing there", "Bash", "deny", {"command": "submit a"}, env={"TRACKER": "http://elsewhere.example/"}),
    probe("canary", "Bash", "none", {"command": CANARY}),
    probe("a helper", "Agent", "none", {"prompt": "count the beans", "description": "d"}),
    probe("reading", "Read", "none", {"file_path": "a.txt"}),
    probe("a note", "Write", "none", {"file_path": "notes/a.txt", "content": "x\ny"}),
    probe("out of the workspace", "Write", "deny", {"file_path": "/etc/harbor-pack-canary", "content": "x"}),
    probe("a patch", "apply_patch", "deny", {"command": "*** Begin Patch\n*** Add File: p\n+x\n*** End Patch\n"}),
]


def write(folder: Path, handlers: list[dict[str, Any]], probes: list[dict[str, Any]]) -> Path:
    """An eval for Claude Code with these handlers and probes."""
    (folder / "cases" / "c1").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "cases" / "c1" / "input.yaml").write_text("prompt: go\n")
    (folder / "tool_handlers.yaml").write_text(
        yaml.safe_dump({"handlers": handlers, "case_overrides": {"Go on?": "No", "Which?": ["A", "B"]}})
    )
    data = {
        "name": "desk", "dataset": {"path": "cases"}, "execution": {"prompt": "go"}, "probes": probes,
        "mcp_servers": [{"name": "desk", "command": "false"}], "models": {"skill": "claude-haiku-4-5"},
    }  # fmt: skip
    (folder / "eval.yaml").write_text(json.dumps(data))
    return folder


@pytest.fixture(scope="module")
def on_path(codex_bin: Path) -> Iterator[None]:
    """Codex is the `codex` on PATH; there is no key."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{codex_bin}{os.pathsep}{os.environ['PATH']}")
        for name in ("OPENAI_API_KEY", "CODEX_API_KEY", "OPENAI_BASE_URL"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The eval, built for Codex."""
    folder = write(tmp_path_factory.mktemp("desk"), [*HANDLERS, NO_MAIL], PROBES)
    return build(folder, folder / "out", runner="codex").out


@pytest.fixture(scope="module")
def report(desk: Path, on_path: None) -> ProbeReport:
    return prove(desk, agent="codex")


def seen_as(report: ProbeReport, name: str, mode: str = PLAIN) -> Passage:
    [found] = [seen for seen in report.through if (seen.name, seen.mode) == (name, mode)]
    return found


@pytest.mark.codex
@pytest.mark.parametrize("mode", [PLAIN, PROGRAMS])
def test_calls_of_claude_codes_tools_get_their_decision_by_those_that_codex_has(report: ProbeReport, mode: str) -> None:
    assert [(seen.name, seen.notes) for seen in report.through if not seen.ok] == []
    found = {seen.name: seen for seen in report.through if seen.mode == mode}
    shown = {name: (one.hook, one.decision, one.entered) for name, one in found.items()}
    assert shown["refund"] == (True, "none", True)
    assert shown["too much"] == (True, "deny", False)
    assert shown["note"] == (True, "rewrite", True)
    assert shown["question"] == shown["its own question"] == (True, "answer", True)
    assert shown["filing here"] == (True, "none", True)
    assert shown["filing there"] == (True, "deny", False)
    assert shown["a helper"] == (False, "none", True)
    assert found["too much"].read == "at most 50"
    assert found["note"].given == {"tool": "note", "input": {"text": "[bot] hi"}}
    assert json.loads(found["question"].read)["answers"]["q1"] == {"answers": ["No"]}
    assert report.exit_code == 0


@pytest.mark.codex
def test_the_same_becomes_of_each_call_in_a_program_of_the_models(report: ProbeReport) -> None:
    plain, programs = (
        [
            replace(seen, mode="", read="" if seen.tool == "spawn_agent" else seen.read)  # which names the subagent
            for seen in report.through
            if seen.mode == mode and ": " not in seen.name
        ]
        for mode in (PLAIN, PROGRAMS)
    )
    assert plain == programs
    assert len(plain) == len(PROBES)


@pytest.mark.codex
def test_what_is_another_tool_there_or_none_is_said(report: ProbeReport) -> None:
    assert seen_as(report, "reading").notes == ("not forced: codex has no such tool",)
    assert seen_as(report, "out of the workspace").notes[0] == "not forced: it is about a file outside the workspace"
    assert not Path("/etc/harbor-pack-canary").exists()
    note = seen_as(report, "a note")
    assert (note.tool, note.decision, note.entered, note.effect) == ("apply_patch", "deny", False, False)
    assert "as apply_patch it is denied: No mail." in note.notes
    assert seen_as(report, "a patch").read == "No mail."
    several = seen_as(report, "several answers")
    assert (several.tool, several.decision, several.entered) == ("request_user_input", "deny", False)
    assert several.notes[-1].startswith(
        "as request_user_input it is denied: Not permitted here: the answer to 'Which?'"
    )


@pytest.mark.codex
def test_no_command_runs(report: ProbeReport) -> None:
    for mode in (PLAIN, PROGRAMS):
        canary = seen_as(report, "canary", mode)
        assert (canary.entered, canary.given) == (True, {"command": CANARY})
    assert not Path(CANARY.split()[1]).exists()


@pytest.mark.codex
def test_a_denied_call_is_denied_wherever_a_program_might_not_ask_or_it_is_found(report: ProbeReport) -> None:
    for where in ("beside another call", "after cd", "by a subagent", "after settings were written"):
        seen = seen_as(report, f"too much: {where}")
        assert (seen.hook, seen.decision, seen.entered, seen.verdict, seen.notes) == (True, "deny", False, "ok", ()), (
            where
        )
    late = seen_as(report, "too much: when the hook's time is up")
    assert (late.decision, late.entered, late.read) == ("deny", False, "Not permitted here: it took too long")
    for where in (
        "by a subagent, after settings were written", "when the hook is killed", "when the hook is stopped"
    ):  # fmt: skip
        seen = seen_as(report, f"too much: {where}")
        assert (seen.verdict, seen.entered) == ("found", True), where
        assert "found afterwards: such a trial is void" in seen.notes[0]
    for where in (
        "in a program, beside another call", "in a program that goes on by itself", "in a subagent's program",
        "in a program, after settings were written",
    ):  # fmt: skip
        seen = seen_as(report, f"too much: {where}", PROGRAMS)
        assert (seen.hook, seen.decision, seen.entered, seen.verdict, seen.notes) == (True, "deny", False, "ok", ()), (
            where
        )
    seen = seen_as(report, "too much: in a subagent's program, after settings were written", PROGRAMS)
    assert (seen.verdict, seen.entered) == ("found", True)


@pytest.mark.codex
def test_the_routes_are_those_of_the_tools_that_codex_offers(report: ProbeReport) -> None:
    tools = {route.tool for route in report.routes}
    assert {"Bash", "apply_patch", "request_user_input", "view_image", "mcp__desk__*"} <= tools
    assert {"exec", "wait", "clockcurr_time", "collaborationspawn_agent"} <= tools  # what is offered in programs, too
    assert tools.isdisjoint({"Read", "exec_command"})
    reasons = {route.tool: (route.state, route.reason) for route in report.routes}
    assert reasons["exec"] == ("unguarded", CODEX_UNSEEN["exec"])
    assert not any("not known here" in reason for _, reason in reasons.values())


@pytest.mark.codex
def test_a_program_that_does_not_ask_its_hook_is_found(
    tmp_path: Path, on_path: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = [handler for handler in HANDLERS if "env_checks" not in handler]
    desk = build(write(tmp_path, plain, PROBES[:4]), tmp_path / "out", runner="codex").out
    launch = CodexAgent.launch

    def without_hooks(self: CodexAgent, places: Places) -> Launch:
        found = launch(self, places)
        at = found.argv.index("--hooks")
        return Launch(found.argv[:at] + found.argv[at + 2 :], found.env, found.stdin, found.sessions)

    monkeypatch.setattr(CodexAgent, "launch", without_hooks)
    found = prove(desk, agent="codex", standard=False)
    assert found.exit_code == 1
    for mode in (PLAIN, PROGRAMS):
        assert "the hook was never entered" in seen_as(found, "refund", mode).notes
        assert "the tool ran although the call was denied" in seen_as(found, "too much", mode).notes
        assert "the model did not read the answer to 'Go on?'" in seen_as(found, "question", mode).notes


def test_tasks_of_another_program_are_refused_with_what_to_name_instead(tmp_path: Path) -> None:
    built = build(write(tmp_path, HANDLERS, []), tmp_path / "out").out
    with pytest.raises(AuthorError, match="built for claude-code; name the eval itself, from which a build for codex"):
        prove(built, agent="codex")


def test_a_build_for_another_program_is_not_taken_for_the_evals_own(tmp_path: Path) -> None:
    folder, out = write(tmp_path, HANDLERS, []), tmp_path / "out"
    for runner, wanted in ((None, "claude-code"), ("codex", "codex"), (None, "claude-code")):
        assert build(folder, out, runner=runner).written == 1
        assert read_manifest(out).runner.type == wanted
    assert build(folder, out).written == 0


def test_a_command_that_the_eval_runs_is_no_hindrance(tmp_path: Path) -> None:
    """Codex has no commands; but calls are forced, and nothing else is run."""
    folder = write(tmp_path, HANDLERS, [])
    (folder / ".claude" / "commands").mkdir(parents=True)
    (folder / ".claude" / "commands" / "go.md").write_text("Go.\n")
    spec = {**json.loads((folder / "eval.yaml").read_text()), "execution": {"skill": "go"}}
    (folder / "eval.yaml").write_text(json.dumps(spec))
    assert read_manifest(build(folder, folder / "out", runner="codex").out).runner.type == "codex"


def test_no_program_is_said(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("HARBOR_PACK_CACHE", "/nowhere")
    with pytest.raises(MachineError, match="no `codex` on PATH"):
        prove(desk, agent="codex")


def test_a_login_shell_that_cannot_be_kept_from_running_commands_is_refused(
    desk: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "codex").write_text("#!/bin/sh\necho codex-cli 0.171.0\n")
    (tmp_path / "codex").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin:/bin")
    other = type("Entry", (), {"pw_shell": "/usr/bin/zsh"})()
    monkeypatch.setattr("pwd.getpwuid", lambda _: other)
    with pytest.raises(MachineError, match="/usr/bin/zsh, where only bash can be kept from running them"):
        prove(desk, agent="codex")


def forced(tool: str, **given: Any) -> Forced:
    return Forced("toolu_1", Probe("p", tool, given, "none"), "none")


@pytest.mark.parametrize(
    ("one", "becomes"),
    [
        (forced("Bash", command="x"), ("Bash", {"command": "x"})),
        (forced("Task", prompt="do"), ("spawn_agent", {"message": "do"})),
        (
            forced("Edit", file_path="a", old_string="x", new_string="y\nz"),
            ("apply_patch", {"command": "*** Begin Patch\n*** Update File: a\n@@\n-x\n+y\n+z\n*** End Patch\n"}),
        ),
        (forced("Grep", pattern="x"), None),
        (forced("Write"), None),
    ],
)  # fmt: skip
def test_a_probe_becomes_the_call_that_codex_makes(one: Forced, becomes: tuple[str, dict[str, Any]] | None) -> None:
    found = Codex().own(one)
    if becomes is None:
        assert found == "codex has no such tool"
    else:
        assert isinstance(found, Forced)
        assert (found.probe.tool, found.probe.input) == becomes


@pytest.mark.parametrize("path", ["/etc/x", "~/x", "../x", "a/../../x"])
def test_a_patch_outside_the_workspace_is_not_made_here(path: str) -> None:
    found = Codex().own(forced("Write", file_path=path, content="x"))
    assert isinstance(found, Forced)
    assert not Codex().possible(found)
    inside = Codex().own(forced("Write", file_path="a/../x", content="x"))
    assert isinstance(inside, Forced)
    assert Codex().possible(inside)


def test_an_answer_is_known_by_the_id_of_its_question() -> None:
    call = Call("t", "request_user_input", {"questions": [{"id": "m", "question": "Which?"}]})
    told = json.dumps({"answers": {"m": {"answers": ["A, b", "C"]}}})
    assert Codex().answered(call, told, "Which?", ["A, b", "C"])
    assert not Codex().answered(call, told, "Which?", "C")
    assert not Codex().answered(call, "cancelled", "Which?", "C")


REFUND, PATCH = Call("a", "mcp__my-desk__refund", {"amount": 1}), Call("b", "apply_patch", {"command": "*** Begin"})
ASK = Call("c", "request_user_input", {"questions": []})


def test_calls_of_one_message_are_made_by_one_program_where_they_can_be() -> None:
    subject, turn = Codex(), Turn("now", (REFUND, PATCH))
    assert subject.proposed(turn, PLAIN) == turn
    made = subject.proposed(turn, PROGRAMS)
    [call] = made.calls
    assert (made.say, call.id, call.tool) == ("now", "b", "exec")
    assert '[["a", "mcp__my_desk__refund", {"amount": 1}], ["b", "apply_patch", "*** Begin"]]' in call.input["code"]
    assert "yield_control" not in call.input["code"]
    alone = Turn(calls=(replace(REFUND, id=GOES_ON), PATCH))
    assert "yield_control" in subject.proposed(alone, PROGRAMS).calls[0].input["code"]
    for other in (Turn("done"), Turn(calls=(ASK,)), Turn(calls=(REFUND, ASK))):
        assert subject.proposed(other, PROGRAMS) == other


def test_what_a_program_wrote_is_read_as_the_results_of_its_calls() -> None:
    calls = [
        ["a", True, {"content": [{"type": "text", "text": "done"}]}],
        ["b", True, {"content": [{"type": "text", "text": "no"}], "isError": True}],
        ["c", True, {"exit_code": 3, "output": "out"}], ["d", True, {}],
        ["e", False, "Tool call blocked by PreToolUse hook: Not this. Tool: x"],
    ]  # fmt: skip
    tools = ["exec_command", "clock__curr_time", "multi_agent_v1__spawn_agent", "mcp__desk__a__b", "view_image"]
    wrote = json.dumps({"tools": tools, "calls": calls})
    read, found = Codex().told({
        "e": (f"Script completed\nWall time 0.1 seconds\nOutput:\n\n{wrote}", False), "f": ('{"tools": 1}', False)
    })  # fmt: skip
    assert read == {
        "a": ("done", False), "b": ("no", True), "c": ("out", True), "d": ("{}", False),
        "e": (calls[4][2], True), "f": ('{"tools": 1}', False),
    }  # fmt: skip
    assert found == ("Bash", "clockcurr_time", "spawn_agent", "mcp__desk__a__b", "view_image")


@pytest.mark.parametrize(
    ("ident", "given", "second", "expected"),
    [
        ("call_1", {"amount": 1}, 30, "call_1"),
        ("exec-1", {"amount": 1}, 5, "a"),
        ("exec-1", {"amount": 1}, 30, "a2"),
        ("exec-1", {"amount": 2}, 30, "exec-1"),
        ("exec-1", {"command": "ls"}, 30, "bash"),
        ("exec-1", {"command": "ls"}, 5, "exec-1"),
    ],
)  # fmt: skip
def test_a_call_in_a_program_is_known_by_what_it_is_and_when(
    ident: str, given: dict[str, Any], second: int, expected: str
) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    bash = Call("bash", "Bash", {"command": "ls", "description": "list"})
    turns = [(start, REFUND), (start + 10, replace(REFUND, id="a2")), (start + 20, bash)]
    line = {
        "tool_use_id": ident, "time": f"2026-01-01T00:00:{second:02d}.000Z", "input_sha256": input_hash(given)
    }  # fmt: skip
    assert Codex().logged(line, turns) == expected
