"""A finished run to be judged: a workspace, a transcript, a log, and the task's tests/ folder with the real script."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harbor_tasks.resources import resource, script_module

POWERLESS = () if os.geteuid() else ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
"""Put before a command: it obeys the modes of files, as root would not."""


@dataclass(frozen=True)
class Judged:
    """What the verifier left: judges.json, reward.json if it wrote one, its exit code and standard error."""

    report: dict[str, Any]
    reward: dict[str, float] | None
    code: int
    stderr: str

    def judge(self, name: str) -> dict[str, Any]:
        """One judge's line."""
        found: dict[str, Any] = next(line for line in self.report["judges"] if line["name"] == name)
        return found

    @property
    def only(self) -> dict[str, Any]:
        """The line of the only judge."""
        (line,) = self.report["judges"]
        assert isinstance(line, dict)
        return line


class Task:
    """A task whose agent is done. Files are written as the agent or the author would; `verify` runs the script."""

    def __init__(self, folder: Path) -> None:
        self.workspace, self.tests = folder / "ws", folder / "tests"
        self.logs, self.home = folder / "logs", folder / "home"
        self.transcript, self.log, self.run = folder / "transcript.jsonl", folder / "log.jsonl", folder / "run.json"
        self.prefix: tuple[str, ...] = ()
        self.more: tuple[str, ...] = ()
        for path in (self.workspace, self.tests, self.logs, self.home):
            path.mkdir()
        for name in ("verify.py", "judge.py"):
            shutil.copy(resource("interceptor", name), self.tests)

    def made(self, path: str, content: str | bytes = "") -> Path:
        """A file in the workspace that was not there when the agent began."""
        target = self.workspace / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
        return target

    def lib(self, path: str, source: str) -> None:
        """A file of a judge's module."""
        target = self.tests / "lib" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(source, encoding="utf-8")

    def said(self, *lines: object) -> None:
        """The lines of the transcript; a text is written as it is."""
        write_lines(self.transcript, lines)

    def logged(self, *lines: object) -> None:
        """The lines of the interception log."""
        write_lines(self.log, lines)

    def command(self, python: str | Path = sys.executable) -> list[str]:
        """How the verifier is started."""
        places = {
            "workspace": self.workspace, "logs": self.logs, "home": self.home, "transcript": self.transcript,
            "interceptions": self.log, "run": self.run,
        }  # fmt: skip
        options = [text for name, path in places.items() for text in (f"--{name}", str(path))]
        return [*self.prefix, str(python), "-I", str(self.tests / "verify.py"), *options, *self.more]

    def verify(
        self, *judges: dict[str, Any], python: str | Path = sys.executable, env: dict[str, str] | None = None,
        **config: Any,
    ) -> Judged:  # fmt: skip
        """Judge the run."""
        text = json.dumps({"judges": judges, **config})
        (self.tests / "judges.json").write_text(text, encoding="utf-8")
        done = subprocess.run(
            self.command(python), capture_output=True, text=True, timeout=120, check=False, cwd="/",
            env={**os.environ, **(env or {})},
        )  # fmt: skip
        return self.result(done.returncode, done.stderr)

    def result(self, code: int, stderr: str = "") -> Judged:
        """What lies in the folder of the verifier's results now."""
        report = json.loads((self.logs / "judges.json").read_text(encoding="utf-8"))
        path = self.logs / "reward.json"
        return Judged(report, json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None, code, stderr)


def write_lines(path: Path, lines: tuple[object, ...]) -> None:
    """One JSON value a line."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")


def make_deep(folder: Path, levels: int, name: str = "folder") -> None:
    """Folders in folders, each with a file, deeper than any path may be long."""
    at = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=at))
        os.mkdir(name, dir_fd=at)
        inner = os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)


def remove_deep(folder: Path) -> None:
    """Remove what lies in a folder, which pytest could not."""
    for path in folder.iterdir():
        script_module("verify").remove(str(path))


def check(code: str, name: str = "j", **more: Any) -> dict[str, Any]:
    """A judge with a check's body."""
    return {"name": name, "kind": "check", "code": code, **more}


def assistant(*blocks: dict[str, Any], agent: str | None = None) -> dict[str, Any]:
    """A message of the model."""
    return {"type": "assistant", "message": {"content": list(blocks)}, "parent_tool_use_id": agent}


def text(words: str) -> dict[str, Any]:
    """A block of text."""
    return {"type": "text", "text": words}


def call(ident: str, name: str, **given: Any) -> dict[str, Any]:
    """A block with a tool call."""
    return {"type": "tool_use", "id": ident, "name": name, "input": given}


def result(ident: str, content: Any = "", *, error: bool = False) -> dict[str, Any]:
    """The result of a call, as the model is shown it."""
    block = {"type": "tool_result", "tool_use_id": ident, "content": content, "is_error": error}
    return {"type": "user", "message": {"content": [block]}}


def decided(ident: str, tool: str, decision: str, **more: Any) -> dict[str, Any]:
    """A line of the interception log."""
    return {"event": "PreToolUse", "tool_use_id": ident, "tool": tool, "decision": decision, **more}
