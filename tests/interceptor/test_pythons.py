"""The script on every Python from 3.8 on that this machine has."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.interceptor.conftest import Endpoint, Hook


def pythons() -> list[str]:
    """Python 3.8 and later: on PATH and of pyenv, one of each version."""
    found: dict[str, str] = {}
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    candidates = [
        *(str(p) for p in sorted(pyenv.glob("3.*/bin/python"))),
        *(shutil.which(f"python3.{n}") for n in range(8, 20)),
    ]
    for path in candidates:
        code = "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"
        done = subprocess.run([path or "false", "-I", "-c", code], capture_output=True, text=True, check=False)
        version, _, executable = done.stdout.strip().partition(" ")
        if version and int(version.partition(".")[2]) >= 8:
            found.setdefault(version, executable)
    return sorted(found.values())


CORE: list[tuple[str, Any, str]] = [
    ("mcp__t__get", {}, "deny"), ("Read", {"file_path": "a"}, "none"), ("pay", {"n": "4.5"}, "none"),
    ("pay", {"n": 5.01}, "deny"),
    ("pay", {"n": True}, "deny"), ("Bash", {"command": "cd x; nice /usr/bin/git -C d 'push'"}, "deny"),
    ("Bash", {"command": None}, "deny"),
    ("Bash", {"command": "git commit -m 'git push'"}, "none"),
    ("Bash", {"command": "bash <<'E'\n$'\\x67it' push\nE"}, "deny"),
    ("Bash", {"command": "tracker x"}, "none"), ("Bash", {"command": "URL=https://acme.example tracker x"}, "deny"),
    ("Write", {"file_path": "n.md", "content": "ö\u2028"}, "allow"),
]  # fmt: skip


DRIVER = """
import json, runpy, sys
script, given = runpy.run_path(sys.argv[1]), json.loads(sys.stdin.read())
for tool, tool_input in given["calls"]:
    call = script["new_call"](tool=tool, input=tool_input)
    try:
        config = script["load_handlers"](json.dumps(given["config"]).encode())
        script["decide"](call, config, given["env"], None, None)
    except script["Refused"]:
        call.update(decision="deny")
    print(json.dumps(script["output"](call)))
"""


@pytest.mark.pythons
def test_every_python_decides_alike(hook: Hook, endpoint: Endpoint) -> None:
    config: dict[str, Any] = {
        "handlers": [
            {"match": "m", "patterns": ["mcp__t__*"]},
            {"match": "m", "patterns": ["pay"], "input_checks": [{"field": "n", "op": "le", "value": 5}]},
            {"match": "m", "patterns": ["Bash"], "input_filters": [r"^git\s+push\b"]},
            {"match": "m", "patterns": ["Bash"], "input_filters": [r"\btracker\b"],
            "env_checks": {"URL": {"must_contain": ["localhost"]}}},
            {"match": "m", "patterns": ["Write"], "rewrite": {"file_path": {"replace": [r"(\w+)\.md", r"\1.txt"]}}},
            {"match": "m", "patterns": ["AskUserQuestion"], "prompt": "p"},
        ],
        "case_overrides": {"Größe?": "Hoch"},
    }  # fmt: skip
    hook.handlers_file.write_text(json.dumps(config), encoding="utf-8")
    hook.env |= {"ANTHROPIC_BASE_URL": endpoint.url, "ANTHROPIC_API_KEY": "k", "NO_PROXY": "127.0.0.1"}
    endpoint.use({"answer_1": "b"})
    questions = [{"question": "Größe?", "options": ["Tief", "Hoch"]}, {"question": "B?", "options": ["a", "b"]}]
    given = {"config": config, "calls": [call[:2] for call in CORE], "env": {"URL": "http://localhost:8080"}}
    tried = pythons()
    assert tried
    for python in tried:
        line = [python, "-I", "-S", "-c", DRIVER, str(hook.home / "hooks" / "tools.py")]
        done = subprocess.run(line, input=json.dumps(given), capture_output=True, encoding="utf-8", check=False)
        said = [json.loads(text) for text in done.stdout.splitlines()]
        found = [json.loads(text)["hookSpecificOutput"]["permissionDecision"] if text else "none" for text in said]
        assert found == [call[2] for call in CORE], (python, done.stderr)
        assert json.loads(said[-1])["hookSpecificOutput"]["updatedInput"] == {
            "file_path": "n.txt",
            "content": "ö\u2028",
        }
        hook.python = python
        for tool, tool_input, decision in (
            CORE[0],
            CORE[5],
            CORE[7],
            ("Write", {"file_path": "tool_handlers.yaml"}, "deny"),
        ):
            assert hook.call(tool, tool_input).decision == decision, python
        assert hook.call("AskUserQuestion", {"questions": questions}).answers == {"Größe?": "Hoch", "B?": "b"}, python
        assert hook.send(b"[" * 100_000).decision == "deny", python
        assert hook.log[-1]["decision"] == "deny"
