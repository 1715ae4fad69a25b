"""Runs the interceptor: the script as a task registers it, or its pure functions in this process."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harbor_tasks.resources import resource, script_module

Json = dict[str, Any]


@dataclass
class Outcome:
    """What the agent program makes of one run of the hook."""

    code: int
    out: str
    stderr: str
    log: list[Json]

    @property
    def decision(self) -> str:
        """As Claude Code and Codex take it; `open: …` where the tool would run against the hook's will."""
        if self.code == 2:
            return "deny" if self.stderr.strip() else "open: exit 2 without a reason"
        if self.code:
            return f"open: exit {self.code}"
        if not self.out.strip():
            return "none"
        try:
            inner = json.loads(self.out)["hookSpecificOutput"]
            decision, reason = inner["permissionDecision"], inner["permissionDecisionReason"]
        except (ValueError, KeyError, TypeError):
            return "open: not the object that the program reads"
        if (
            inner["hookEventName"] != "PreToolUse"
            or not reason.strip()
            or set(json.loads(self.out)) - {"hookSpecificOutput"}
        ):
            return "open: an object that the program ignores"
        return str(decision)

    @property
    def reason(self) -> str:
        """What the model reads."""
        return str(json.loads(self.out)["hookSpecificOutput"]["permissionDecisionReason"]) if self.out else self.stderr

    @property
    def updated(self) -> Json:
        """The input that replaces the call's."""
        found: Json = json.loads(self.out)["hookSpecificOutput"]["updatedInput"]
        return found

    @property
    def answers(self) -> Json:
        """The answers to a question."""
        found: Json = self.updated["answers"]
        return found


@dataclass
class Hook:
    """A folder as a task has it, with the script below hooks/ and its handlers beside, and the registered command."""

    home: Path
    env: dict[str, str] = field(default_factory=dict)
    python: str = sys.executable
    options: list[str] = field(default_factory=list)
    pin: bool = True

    @property
    def handlers_file(self) -> Path:
        """tool_handlers.yaml."""
        return self.home / "tool_handlers.yaml"

    @property
    def log(self) -> list[Json]:
        """The lines of the interception log."""
        path = self.home / "interceptions.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()] if path.exists() else []

    def write(self, *handlers: Json, **more: Any) -> Hook:
        """Handlers as the build writes them: pure JSON."""
        self.handlers_file.write_text(json.dumps({"handlers": handlers, **more}), encoding="utf-8")
        return self

    def command(self) -> str:
        """As the build registers it in settings.json."""
        script = '"$CLAUDE_PROJECT_DIR/hooks/tools.py"'
        line = f"{shlex.quote(self.python)} -I -S -E {script} {shlex.join(self.options)}"
        if self.pin and self.handlers_file.is_file():
            line += f" --handlers-sha256 {hashlib.sha256(self.handlers_file.read_bytes()).hexdigest()}"
        return line + ' || { echo "the interceptor did not run" >&2; exit 2; }'

    def start(self, **more: Any) -> subprocess.Popen[bytes]:
        """The hook as a process, as the agent program starts it."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "CLAUDE_PROJECT_DIR": str(self.home), **self.env}
        pipe = subprocess.PIPE
        given = {"stdin": pipe, "stdout": pipe, "stderr": pipe, "cwd": self.home, "env": env, **more}
        return subprocess.Popen(["/bin/sh", "-c", self.command()], **given)

    def send(self, data: bytes, **more: Any) -> Outcome:
        """Run it on a payload of any form."""
        process = self.start(**more)
        out, err = process.communicate(None if "stdin" in more else data, timeout=60)
        text = (out or b"").decode("utf-8")
        return Outcome(process.returncode, text, (err or b"").decode("utf-8", "replace"), self.log)

    def call(self, tool: str, tool_input: Any, *, more: Mapping[str, Any] | None = None, **start: Any) -> Outcome:
        """Run it on a tool call."""
        payload = {
            "session_id": "s", "transcript_path": "/tmp/t.jsonl", "cwd": str(self.home), "permission_mode": "default",
            "hook_event_name": "PreToolUse", "tool_name": tool, "tool_use_id": "toolu_1", "tool_input": tool_input,
            **(more or {}),
        }  # fmt: skip
        return self.send(json.dumps(payload, ensure_ascii=False).encode("utf-8"), **start)

    def bash(self, command: str, **more: Any) -> Outcome:
        """Run it on a Bash call."""
        return self.call("Bash", {"command": command}, **more)

    def ask(self, *questions: Json, **more: Any) -> Outcome:
        """Run it on a question to the user."""
        return self.call("AskUserQuestion", {"questions": list(questions)}, **more)


@pytest.fixture
def hook(tmp_path: Path) -> Hook:
    (tmp_path / "hooks").mkdir()
    shutil.copy(resource("interceptor", "tools.py"), tmp_path / "hooks" / "tools.py")
    return Hook(tmp_path)


def whole_script() -> ModuleType:
    """The script as a module, with the parts that it compiles late."""
    module = script_module("tools")
    for name in list(module.PARTS):
        module.part(name)
    return module


@pytest.fixture(scope="session")
def tools() -> ModuleType:
    """The script as a module, with all its parts."""
    return whole_script()


Decide = Callable[..., Json]


@pytest.fixture(scope="session")
def decide(tools: ModuleType) -> Decide:
    """decide(handlers, tool, input) in this process, without protection and model: the result before it is put out."""

    def run(
        handlers: list[Json], tool: str, tool_input: Any, *, env: Mapping[str, str] | None = None,
        event: str = "PreToolUse", codex: bool = False, overrides: Json | None = None, guard: Any = None,
    ) -> Json:  # fmt: skip
        config = tools.load_handlers(json.dumps({"handlers": handlers, "case_overrides": overrides or {}}).encode())
        call = tools.new_call(event=event, tool=tool, input=tool_input, codex=codex)
        try:
            tools.decide(call, config, env or {}, guard, lambda _, qs: ([None] * len(qs), None, []))
        except tools.Refused as refused:
            call.update(decision="deny", reason=str(refused))
        found: Json = call
        return found

    return run


@dataclass
class Endpoint:
    """A model endpoint on loopback that gives scripted replies: {status, body, headers, wait, hang up} in turn."""

    replies: list[Json] = field(default_factory=list)
    requests: list[Json] = field(default_factory=list)
    url: str = ""
    done: threading.Event = field(default_factory=threading.Event)

    def use(self, *inputs: Json, text: str | None = None) -> None:
        """Reply with one tool use each, or with a text."""
        for given in inputs:
            content = [
                {"type": "text", "text": "so"},
                {"type": "tool_use", "id": "t", "name": "answer", "input": given},
            ]
            self.replies.append({"content": content})
        if text is not None:
            self.replies.append({"content": [{"type": "text", "text": text}]})


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    found = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            found.requests.append({"path": self.path, "headers": dict(self.headers.items()), **body})
            reply = found.replies[min(len(found.requests), len(found.replies)) - 1]
            found.done.wait(reply.get("wait", 0))
            if reply.get("hang up"):
                self.close_connection = True
                return
            message = {"usage": {"input_tokens": 11, "output_tokens": 7}, "content": reply.get("content", [])}
            data = reply.get("raw", json.dumps(reply.get("error", message)).encode())
            self.send_response(reply.get("status", 200))
            for name, value in {"content-length": str(len(data)), **reply.get("headers", {})}.items():
                self.send_header(name, value)
            self.end_headers()
            for i in range(0, len(data), reply.get("drip", len(data) or 1)):
                self.wfile.write(data[i : i + reply.get("drip", len(data))])
                self.wfile.flush()
                if "drip" in reply and found.done.wait(0.2):
                    break

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that gives up is part of the tests
    found.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield found
    found.done.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def asking(hook: Hook, endpoint: Endpoint) -> Hook:
    """A hook with a handler that answers questions, whose model is the endpoint."""
    hook.env |= {"ANTHROPIC_BASE_URL": endpoint.url, "ANTHROPIC_API_KEY": "sk-ant-secret", "NO_PROXY": "127.0.0.1"}
    return hook.write({"match": "Questions", "patterns": ["AskUserQuestion"], "prompt": "Answer from the case."})


def question(text: str, *labels: str, **more: Any) -> Json:
    """A question as the tool has it."""
    options = [{"label": label, "description": ""} for label in labels]
    return {"question": text, "header": "H", "multiSelect": False, "options": options, **more}


@pytest.fixture(scope="session", name="question")
def question_fixture() -> Callable[..., Json]:
    return question
