"""What tests of trials share: a policy, a project, a model for the hook, and what became of each call."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from harbor_tasks.results.transcript import ToolCall, Transcript, read_transcript
from tests.kit import mcp_server

CLAUDE_VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_BASE_URL")
"""What a developer may have set: it must not matter."""
DEPLOY = {
    "question": "Deploy where?", "header": "Env", "multiSelect": False,
    "options": [{"label": "Staging", "description": "s"}, {"label": "Production", "description": "p"}],
}  # fmt: skip
ANSWERED = {"match": "Questions", "patterns": ["AskUserQuestion"], "on_unanswered": "deny"}
NO_TOUCH = {"match": "No touching", "patterns": ["Bash"], "input_filters": ["^touch"], "reason": "Leave it alone."}
REWRITE = {"match": "Notes", "patterns": ["mcp__desk__send"], "rewrite": {"note": {"prefix": "checked: "}}}
SERVER = mcp_server("send", '"got " + json.dumps(given)')
TOKEN = "desk-token-7c1"
SERVER_WITH_TOKEN = mcp_server("send", '"%d %s " % (os.getuid(), os.environ["DESK_TOKEN"]) + json.dumps(given)')
"""It says who it is, and the token that it was given."""
PROJECT = {
    ".claude/skills/tidy/SKILL.md": "---\nname: tidy\ndescription: tidies\n---\nTIDY-BODY $ARGUMENTS\n",
    ".claude/commands/greet.md": "GREET-BODY $ARGUMENTS\n",
    ".claude/agents/counter.md": "---\nname: counter\ndescription: counts\n---\nCOUNTER-BODY\n",
    "plugin/.claude-plugin/plugin.json": '{"name": "docs"}',
    "plugin/skills/index/SKILL.md": "---\nname: index\ndescription: indexes\n---\nINDEX-BODY\n",
    "CLAUDE.md": "MEMORY-BODY\n@AGENTS.md and @docs/style.md but not `@docs/code.md`\n",
    "AGENTS.md": "AGENTS-BODY\n",
    "docs/style.md": "STYLE-BODY @more.md\n",
    "docs/more.md": "MORE-BODY\n",
    "docs/code.md": "CODE-BODY\n",
    ".claude/CLAUDE.md": "SECOND-BODY @notes.md\n",
    ".claude/notes.md": "NOTES-BODY\n",
}
MEMORY = tuple(f"{name}-BODY" for name in ("MEMORY", "AGENTS", "STYLE", "MORE", "SECOND", "NOTES"))
"""What the memory of that project says, with all that it takes in."""
WITHOUT_AGENTS_MD = {name: text for name, text in PROJECT.items() if name != "AGENTS.md"}
"""For Codex, which would read it in the place of CLAUDE.md."""


def server_with(variable: str) -> str:
    """It says what this variable of its environment holds."""
    return mcp_server("send", f'"key %s " % os.environ.get("{variable}") + json.dumps(given)')


class Played:
    """One trial that was played without an error."""

    def __init__(self, ran: Any) -> None:
        self.trial, self.folder = ran.trial, Path(ran.trial_folder)
        assert self.trial.error is None, self.trial.error
        seen = read_transcript(self.folder / "transcript.jsonl", self.folder / "interceptions.jsonl")
        self.transcript: Transcript = seen
        self.calls: list[ToolCall] = list(seen.calls)
        self.log = seen.log
        self.requests = [json.loads(line) for line in (self.folder / "model.jsonl").read_text().splitlines()]
        self.offered = self.requests[0]["tools"]

    @property
    def results(self) -> list[str]:
        """What came of each call, without the program's own reminders."""
        return [_own(call.result) for call in self.calls]

    def read_by_model(self, number: int) -> str:
        """What the last request says of a call, counted from 1."""
        found = self.requests[-1]["results"]
        text: str = list(found.values())[number - 1]["text"]
        return text

    @property
    def said(self) -> str:
        """All texts that the model was told, as JSON."""
        return json.dumps([one.get("texts") for one in self.requests])


class PlayedByName(Played):
    """One trial of calls that have names: what the model read of each, and how it was decided."""

    def __init__(self, ran: Any, names: Iterable[str]) -> None:
        super().__init__(ran)
        last: dict[str, Any] = {}
        for one in self.requests:
            last.update(one.get("results", {}))
        ids = {name: f"toolu_replay_{number:04d}" for number, name in enumerate(names, 1)}
        by_id = {call.id: call.decision for call in self.calls}
        self.read = {name: _own(last[ident]["text"]) for name, ident in ids.items() if ident in last}
        self.decisions = {name: by_id[ident] for name, ident in ids.items() if ident in by_id}


def _own(result: Any) -> str:
    return str(result).partition("\n\n<system-reminder>")[0]


def play_with(agent: str, author: Any, *entries: dict[str, Any], **files: str) -> Played:
    """One case of these calls, played by the agent's program."""
    author.case(replay=list(entries), **files)
    return Played(author.run(agent, scripted=True))


class HookModel(ThreadingHTTPServer):
    """A model for the hook that picks the second option of `DEPLOY`; ``asked`` are the requests, each with its key."""

    def __init__(self, host: str) -> None:
        super().__init__((host, 0), _Picks)
        self.asked: list[dict[str, Any]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def server_close(self) -> None:
        """At the end of the context."""
        self.shutdown()
        super().server_close()


class _Picks(BaseHTTPRequestHandler):
    server: HookModel

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append({"key": self.headers.get("x-api-key"), **request})
        tool = request["tools"][0]
        [name] = tool["input_schema"]["properties"]
        content = [{"type": "tool_use", "id": "t", "name": tool["name"], "input": {name: "Production"}}]
        usage = {"input_tokens": 1, "output_tokens": 1}
        reply = {"type": "message", "role": "assistant", "model": request["model"], "content": content, "usage": usage}
        body = json.dumps({**reply, "stop_reason": "tool_use"}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass
