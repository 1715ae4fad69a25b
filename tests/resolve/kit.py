"""An eval with three entries, a right proposal for it, and the command on both."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from harbor_tasks.endpoint import Endpoint, Replies, Reply, says

KEY = "sk-ant-test-0123456789abcdef"
NAME = "model"
EVAL = """\
name: desk
dataset: {path: cases}
execution:
  prompt: settle it
  env: {TRACKER_URL: "http://localhost:1234", API_TOKEN: $NOBODY_SET_THIS}
mcp_servers:
  - {name: desk, command: python3, args: [desk.py]}
inputs:
  tools:
    - match: Questions by AskUserQuestion
      prompt: Say yes to everything.
    - match: |
        Refunds by mcp__desk__refund above 50
      prompt: Deny.
    - match: Downloads (curl, wget) in Bash
    - match: |
        The script submit.py, which uses TRACKER_URL
      prompt: Only on this machine.
"""
MATCHES = (
    "Questions by AskUserQuestion", "Refunds by mcp__desk__refund above 50", "Downloads (curl, wget) in Bash",
    "The script submit.py, which uses TRACKER_URL",
)  # fmt: skip


def write_eval(folder: Path, more: str = "") -> Path:
    """The eval with one case in a folder."""
    case = folder / "cases" / "c1"
    case.mkdir(parents=True)
    (folder / ".git").mkdir()
    (case / "input.yaml").write_text("customer: Ada\npassword: hunter2hunter2\nnote: key sk-ant-abcdefghijkl\n")
    (case / "answers.yaml").write_text("Which colour?: the-secret-answer\n")
    (case / "annotations.yaml").write_text("right: the-secret-annotation\n")
    (case / "replay.yaml").write_text("- tool: Bash\n  input: {command: python3 submit.py now}\n")
    (folder / "eval.yaml").write_text(EVAL + more)
    return folder


def probe(name: str, tool: str, given: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "tool": tool, "input_json": json.dumps(given), "env": [], "answers": [], **more}


def bash(command: str, **more: Any) -> dict[str, Any]:
    return probe(command, "Bash", {"command": command}, **more)


def question(text: str) -> dict[str, Any]:
    options = [{"label": "Yes"}, {"label": "No"}]
    return {"questions": [{"question": text, "header": "Q", "multiSelect": False, "options": options}]}


def rule(entry: int, *patterns: str, **more: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {"input_filters": [], "env_checks": [], "input_checks": [], "caught": [], "passing": []}
    return {"entry": entry, "patterns": list(patterns), "reason": "Ask a person instead.", **empty, **more}


def variable(value: str) -> list[dict[str, str]]:
    return [{"name": "TRACKER_URL", "value": value}]


def env_check(name: str, *hosts: str) -> dict[str, Any]:
    return {"variable": name, "must_contain": [], "host_in": list(hosts), "equals": "", "matches": ""}


PROPOSAL: dict[str, Any] = {
    "rules": [
        rule(
            0, "AskUserQuestion",
            caught=[
                probe("go on", "AskUserQuestion", question("Go on?"),
                      answers=[{"question": "Go on?", "answers": ["Yes"]}]),
                probe("again", "AskUserQuestion", question("Again?")),
            ],
            passing=[probe("a file", "Read", {"file_path": "a"}), probe("a look", "Glob", {"pattern": "*"})],
        ),
        rule(
            1, "mcp__desk__refund",
            input_checks=[{"field": "amount", "op": "le", "value_json": "50"}],
            reason="At most 50: for more ask a person, who can look at the order and decide what is right for all.",
            caught=[probe("above", "mcp__desk__refund", {"amount": 50.01}),
                    probe("as a text", "mcp__desk__refund", {"amount": "$5"})],
            passing=[probe("at it", "mcp__desk__refund", {"amount": 50}),
                     probe("small", "mcp__desk__refund", {"amount": 1})],
        ),
        rule(
            2, "Bash", input_filters=[r"^(curl|wget)\b"],
            caught=[bash("curl -s http://example.test"), bash("cd out && wget x")],
            passing=[bash("ls -la"), bash("cat curl.txt")],
        ),
        rule(
            3, "Bash", input_filters=[r"\bsubmit\.py\b"],
            env_checks=[env_check("TRACKER_URL", "localhost")],
            caught=[bash("python3 submit.py a", env=variable("https://live.example.test")),
                    bash("TRACKER_URL=http://other.test ./submit.py")],
            passing=[bash("python3 submit.py b"), bash("python3 submit.py c", env=variable("http://localhost"))],
        ),
    ],
    "case_overrides": [{"question": "Go on?", "answers": ["Yes"]}],
}  # fmt: skip


def proposal(**changes: Any) -> dict[str, Any]:
    """The right proposal; ``r2={...}`` changes its third rule, ``case_overrides`` the whole."""
    data = copy.deepcopy(PROPOSAL)
    for key, value in changes.items():
        if key.startswith("r") and key[1:].isdigit():
            data["rules"][int(key[1:])].update(value)
        else:
            data[key] = value
    return data


def answer(**changes: Any) -> Reply:
    return says(json.dumps(proposal(**changes)))


def asked(endpoint: Endpoint) -> list[dict[str, Any]]:
    """The bodies of all requests."""
    return [dict(one.body) for one in endpoint.recorded(NAME)]


def replies(endpoint: Endpoint, *given: Reply) -> str:
    return endpoint.add(NAME, Replies(*given))
