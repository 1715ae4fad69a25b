"""What one call of the interceptor costs: its CPU time over that of a Python that does nothing, in alternating runs."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.resources import resource

LIMIT = 3.5
ROUNDS = 25
PYTHON = [sys.executable, "-I", "-S", "-E"]
POLICY: dict[str, Any] = {
    "handlers": [
        {"match": "Questions to the user", "patterns": ["AskUserQuestion"]},
        {"match": "Nothing is deleted", "patterns": ["mcp__tracker__delete_issue", "mcp__tracker__close_*"]},
        {
            "match": "Refunds above the ceiling",
            "patterns": ["mcp__desk__process_refund"],
            "input_checks": [
                {"field": "amount", "op": "gt", "value": 0},
                {"field": "amount", "op": "le", "value": 500},
                {"field": "currency", "op": "in", "value": ["USD", "EUR"]},
            ],
        },
        {
            "match": "Any interaction with the tracker",
            "patterns": ["Bash", "mcp__tracker__*"],
            "input_filters": [r"\bsubmit\.py\b", r"\bTRACKER_URL\b"],
            "env_checks": {"TRACKER_URL": {"host_in": ["localhost", "127.0.0.1"]}},
        },
    ],
    "hook_model": "claude-haiku-4-5-20251001",
    "case_overrides": {"Who are the notes for?": "Customers", "What is the headline?": "Faster"},
}
QUESTION = {
    "question": "Who are the notes for?",
    "header": "Audience",
    "multiSelect": False,
    "options": [{"label": "Customers", "description": "c"}, {"label": "Partners", "description": "p"}],
}
CALLS: dict[str, tuple[str, dict[str, Any], str]] = {
    "a denied MCP call": ("mcp__tracker__delete_issue", {"key": "CAD-1"}, "deny"),
    "an input check": ("mcp__desk__process_refund", {"order_id": "A-1", "amount": 700, "currency": "USD"}, "deny"),
    "a Bash call with filters": (
        "Bash",
        {"command": "cd src && git status -s | head -5; python3 scripts/submit.py CAD triage.json", "description": "d"},
        "none",
    ),
    "an answer from an override": ("AskUserQuestion", {"questions": [QUESTION]}, "answer"),
}


def cpu_seconds(command: Sequence[str], stdin: bytes, env: dict[str, str]) -> float:
    """User and system time of one process, itself and what it waited for."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env
    )
    assert process.stdin is not None
    process.stdin.write(stdin)
    process.stdin.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder as the hook finds it: its script below hooks/, the handlers beside."""
    (tmp_path / "hooks").mkdir()
    shutil.copy(resource("interceptor", "tools.py"), tmp_path / "hooks" / "tools.py")
    (tmp_path / "tool_handlers.yaml").write_text(json.dumps(POLICY), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("call", CALLS)
def test_a_call_costs_little_more_than_starting_python(call: str, home: Path) -> None:
    tool, tool_input, decision = CALLS[call]
    payload = {
        "session_id": "s", "transcript_path": "/tmp/t.jsonl", "cwd": str(home), "permission_mode": "default",
        "hook_event_name": "PreToolUse", "tool_name": tool, "tool_use_id": "toolu_01", "tool_input": tool_input,
    }  # fmt: skip
    stdin = json.dumps(payload).encode()
    digest = hashlib.sha256((home / "tool_handlers.yaml").read_bytes()).hexdigest()
    hook = [*PYTHON, str(home / "hooks" / "tools.py"), "--handlers-sha256", digest]
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "TRACKER_URL": "http://localhost:8080"}
    idle, used = [], []
    for _ in range(ROUNDS):
        idle.append(cpu_seconds([*PYTHON, "-c", "pass"], b"", env))
        used.append(cpu_seconds(hook, stdin, env))
    log = [json.loads(line) for line in (home / "interceptions.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {line["decision"] for line in log} == {decision}, "the call that was meant is the one that was measured"
    ratio = statistics.median(used) / statistics.median(idle)
    print(f"\n{call}: {ratio:.2f} times an idle Python ({statistics.median(used) * 1000:.1f} ms; limit {LIMIT})")
    assert ratio <= LIMIT
