"""One recording for an eval of Codex's, in the names of both programs, and what its trials must have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harbor_tasks.results.collect import collect_job
from harbor_tasks.results.transcript import read_transcript

from .kit import ANSWERED, NO_TOUCH, server_with

ASKED = {"question": "Which metal?", "header": "Metal", "multiSelect": False, "options": [
    {"label": "Lead", "description": "l"}, {"label": "Tin", "description": "t"}]}  # fmt: skip
NO_SECRETS = {"match": "Secrets", "patterns": ["Write", "Edit"], "reason": "Not this file.", "input_checks": [
    {"field": "command", "op": "matches", "value": "(?s)(?!.*secret).*"}]}  # fmt: skip
NOTES = {"match": "Paths", "patterns": ["mcp__my-desk__send"], "rewrite": {"note": {"prefix": "checked: "}}}
NO_SPIES = {"match": "Spies", "patterns": ["Agent"], "reason": "No spies.", "input_checks": [
    {"field": "message", "op": "matches", "value": "(?s)(?!.*spy).*"}]}  # fmt: skip
ANSWERS = "Which metal?: Tin\nWhat colour?: Red\n"
PATCH = """*** Begin Patch
*** Update File: poem.txt
@@ ROSES
 are
-red
+blue
*** Add File: deep/er/note.txt
+noted
*** Delete File: old.txt
*** End Patch
"""
POEM = "roses\nare\nred\nviolets\nare too"


def edit(old: str, new: str, path: str = "poem.txt") -> dict[str, Any]:
    return {"tool": "Edit", "input": {"file_path": path, "old_string": old, "new_string": new}}


def write(path: str, content: str) -> dict[str, Any]:
    return {"tool": "Write", "input": {"file_path": path, "content": content}}


def bash(command: str, **more: Any) -> dict[str, Any]:
    return {"tool": "Bash", "input": {"command": command, **more}}


CALLS: list[dict[str, Any]] = [
    {"tool": "Read", "input": {"file_path": "poem.txt"}},
    {"tool": "Glob", "input": {"pattern": "*"}},
    write("reply.md", "Dear you,\nall is well.\n"),
    write("one-line.txt", "no newline at its end"),
    write("empty.txt", ""),
    write("reply.md", "Dear you,\nall is better.\n"),
    write("secret.txt", "x"),
    edit("violets\n", "pansies\nand more\n"),
    edit("olet", "OLET"),
    edit("roses", "ROSES"),
    {"tool": "Read", "input": {"file_path": "reply.md"}},
    {"tool": "AskUserQuestion", "input": {"questions": [ASKED]}},
    {"tool": "request_user_input", "input": {"questions": [
        {"id": "c", "header": "C", "question": "What colour?", "options": ["Blue", "Red"]}]}},
    {"tool": "AskUserQuestion", "input": {"questions": [{**ASKED, "question": "What else?"}]}},
    {"tool": "apply_patch", "input": {"command": PATCH}},
    {"tool": "apply_patch", "input": {"command": "*** Begin Patch\n*** Delete File: gone\n*** End Patch\n"}},
    {"tool": "apply_patch", "input": {"command": "no patch"}},
    bash("cd deep && basename $(pwd) >../where.txt"),
    bash("basename $(pwd) >here.txt; cat ../../poem.txt", workdir="deep/er"),
    bash("echo out; echo err >&2; exit 3"),
    bash("touch forbidden"),
    {"tool": "mcp__my-desk__send", "input": {"note": "hello"}},
    {"tool": "mcp__my-desk__lose", "input": {}},
    {"tool": "Task", "id": "spy", "input": {"description": "s", "prompt": "be a spy"}},
    {**bash("touch spied"), "agent": "spy"},
    {"tool": "Agent", "id": "helper", "input": {"description": "h", "prompt": "help out", "subagent_type": "any"}},
    {**bash("touch forbidden"), "agent": "helper"},
    {**write("helped.txt", "by a helper\n"), "agent": "helper"},
    bash("for i in $(seq 40); do [ ! -e helped.txt ] || break; sleep 0.2; done"),
]  # fmt: skip


def prepare(author: Any, model: str) -> None:
    author.spec |= {
        "runner": {"type": "codex"}, "models": {"skill": model}, "outputs": [{"path": "."}],
        "mcp_servers": [{"name": "my-desk", "command": "python3", "args": ["server.py"]}],
        "judges": [{"name": "replied", "check": "return 'better' in outputs['files']['reply.md']"}],
    }  # fmt: skip
    author.project({"server.py": server_with("OPENAI_API_KEY")})
    author.handlers({**ANSWERED, "on_unanswered": "deny"}, NO_TOUCH, NO_SECRETS, NOTES, NO_SPIES)
    author.case(replay=CALLS, answers_yaml=ANSWERS, files__poem_txt=POEM, files__old_txt="old\n")


@dataclass(frozen=True)
class Came:
    """What came of the one trial."""

    files: dict[str, str]
    calls: list[tuple[Any, ...]]
    """The agent's own, then those of subagents: name, decision, failure, and the input as the hook was shown it."""
    answers: list[Any]
    warnings: tuple[str, ...]
    score: tuple[Any, ...]


def came_of(ran: Any) -> Came:
    trial, folder = ran.trial, ran.trial_folder
    assert trial.error is None, trial.error
    seen = read_transcript(folder / "transcript.jsonl", folder / "interceptions.jsonl")
    assert (seen.not_logged, seen.changed) == ((), ())
    left = folder / "workspace"
    calls = sorted(seen.calls, key=lambda call: call.agent is not None)
    counts = trial.calls
    return Came(
        {path.relative_to(left).as_posix(): path.read_text() for path in left.rglob("*") if path.is_file()},
        [(call.name.removeprefix("collaboration"), call.decision, call.is_error, _input(call)) for call in calls],
        [call.answers for call in calls if call.answers],
        collect_job(ran.folder).warnings,
        (trial.status, trial.reward, counts.total, counts.denied, counts.answered, counts.guessed),
    )


def _input(call: Any) -> Any:
    """Newer models name the subagents that they start."""
    return call.input["message"] if call.name.endswith("spawn_agent") else call.input
