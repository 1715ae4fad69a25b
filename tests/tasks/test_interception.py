from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from harbor_tasks.errors import AuthorError, Problems
from harbor_tasks.evalspec import Eval, load_eval
from harbor_tasks.policy.handlers import Handler, Handlers, handlers_of
from harbor_tasks.resources import script_module
from harbor_tasks.tasks.interception import generate_interception, interception_files

MakeEval = Callable[..., Eval]

HANDLERS = """\
handlers:
- {match: questions, patterns: [AskUserQuestion]}
- {match: never delete, patterns: [mcp__shop-api__delete], reason: Ask a colleague to delete it.}
- match: no pushes
  patterns: [Bash]
  input_filters: ['\\bgit\\s+push\\b']
case_overrides: {Which plan?: Keep}
"""


@pytest.fixture
def make_eval(tmp_path: Path) -> MakeEval:
    """Write and load an eval with these keys, and maybe tool_handlers.yaml."""

    def make(more: str = "", handlers: str | None = HANDLERS) -> Eval:
        root = tmp_path / "eval"
        (root / "cases" / "c1").mkdir(parents=True, exist_ok=True)
        (root / "cases" / "c1" / "input.yaml").write_text("prompt: x\n")
        run = "" if "execution:" in more else "execution: {prompt: x}\n"
        (root / "eval.yaml").write_text(f"name: shop\ndataset: {{path: cases}}\n{run}{more}", encoding="utf-8")
        (root / "tool_handlers.yaml").unlink(missing_ok=True)
        if handlers is not None:
            (root / "tool_handlers.yaml").write_text(handlers, encoding="utf-8")
        problems = Problems()
        ev = load_eval(root, problems)
        assert ev is not None
        assert not problems.errors, [str(p) for p in problems]
        return ev

    return make


def files_of(ev: Eval, **options: Any) -> dict[str, bytes]:
    overrides = options.pop("overrides", {})
    return interception_files(ev, handlers_of(ev, Problems()), overrides, **options)


def settings_of(files: dict[str, bytes]) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(files[".claude/settings.json"])
    return settings


def command_of(files: dict[str, bytes]) -> str:
    """The one registered command, with all that Claude Code would drop the file for checked."""
    (group,) = settings_of(files)["hooks"]["PreToolUse"]
    (hook,) = group["hooks"]
    assert set(hook) == {"type", "command", "timeout"}
    assert hook["type"] == "command"
    assert hook["timeout"] == 45
    assert isinstance(hook["timeout"], int)
    assert isinstance(hook["command"], str)
    return str(hook["command"])


def call(files: dict[str, bytes], home: Path, payload: dict[str, Any], **env: str) -> subprocess.CompletedProcess[str]:
    """Write the files and run the registered command as Claude Code does."""
    for name, content in files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    folder = str(Path(sys.executable).parent)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "CLAUDE_PROJECT_DIR": str(home), "HOME": str(home), **env}
    payload = {"hook_event_name": "PreToolUse", "tool_use_id": "t1", "cwd": str(home), **payload}
    command = ["/bin/sh", "-c", command_of(files)]
    return subprocess.run(
        command, input=json.dumps(payload), capture_output=True, text=True, env=environment, cwd="/", timeout=60
    )  # fmt: skip


def decision(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode == 2 and done.stderr.strip():
        return "deny"
    assert done.returncode == 0
    return str(json.loads(done.stdout)["hookSpecificOutput"]["permissionDecision"]) if done.stdout else "none"


def test_an_eval_with_handlers_has_script_handlers_and_settings(make_eval: MakeEval) -> None:
    files = files_of(make_eval())
    assert sorted(files) == [".claude/settings.json", "hooks/tools.py", "tool_handlers.yaml"]
    assert set(settings_of(files)) == {"hooks"}
    assert set(settings_of(files)["hooks"]) == {"PreToolUse"}
    assert not any(b"\r" in content for content in files.values())


def test_an_eval_without_handlers_permissions_and_environment_has_no_policy_files(make_eval: MakeEval) -> None:
    assert files_of(make_eval(handlers=None)) == {}
    assert files_of(make_eval(handlers="handlers: []\n")) == {}


def test_permissions_and_literals_of_the_environment_are_written_without_handlers_too(make_eval: MakeEval) -> None:
    ev = make_eval(
        "execution: {prompt: x, env: {MODE: dry, TOKEN: $TOKEN, URL: '${URL:-http://localhost}'}}\n"
        "permissions: {allow: [Read], deny: [{path: /etc/, tools: [Read]}]}\n",
        handlers=None,
    )
    files = files_of(ev)
    assert sorted(files) == [".claude/settings.json"]
    assert settings_of(files) == {
        "permissions": {"allow": ["Read"], "deny": ["Read(//etc/**)"]}, "env": {"MODE": "dry"},
    }  # fmt: skip
    assert b"TOKEN" not in files[".claude/settings.json"]


def test_settings_of_the_runner_are_merged(make_eval: MakeEval) -> None:
    ev = make_eval(
        "permissions: {allow: [Read]}\n"
        "runner:\n"
        "  settings:\n"
        "    cleanupPeriodDays: 3\n"
        "    env: {A: b}\n"
        "    permissions: {allow: [Glob], additionalDirectories: [/srv]}\n"
    )
    settings = settings_of(files_of(ev))
    assert settings["cleanupPeriodDays"] == 3
    assert settings["env"] == {"A": "b"}
    assert settings["permissions"] == {"allow": ["Read", "Glob"], "additionalDirectories": ["/srv"]}
    assert list(settings["hooks"]) == ["PreToolUse"]


def test_rules_that_would_not_hold_stop_everything(make_eval: MakeEval) -> None:
    with pytest.raises(AuthorError, match="did you mean 'Read'"):
        files_of(make_eval("permissions: {deny: [Raed]}\n"))


def test_the_handlers_are_json_that_a_yaml_reader_reads_alike_whatever_stands_in_them(make_eval: MakeEval) -> None:
    odd = "Größe? \U0001f600 \u2028 \u0085 \x7f \ufeff 'quote' \"double\" # : - \\ \t end"
    overrides = {odd: [odd, "1.10"], "no": "on"}
    files = files_of(make_eval(handlers="handlers:\n- {match: 'Ü\U0001f600', patterns: [Read]}\n"), overrides=overrides)
    text = files["tool_handlers.yaml"].decode("utf-8")
    assert text.endswith("}\n")
    assert json.loads(text) == yaml.safe_load(text)
    assert json.loads(text)["case_overrides"] == overrides


def test_the_interceptor_reads_what_was_written(make_eval: MakeEval) -> None:
    full = """\
handlers:
- match: everything that a handler may hold
  patterns: [mcp__shop__refund, Bash, 'mcp__*__x?']
  input_filters: ['^refund\\b']
  env_checks: {URL: {must_contain: [localhost], host_in: ['*.test'], equals: a, matches: '^a$'}}
  prompt: p
  reason: r
  input_checks:
  - {field: a.b, op: le, value: 500}
  - {field: a, op: lt, value: '7.5'}
  - {field: a, op: in, value: [1, x, true]}
  - {field: a, op: eq, value: x}
  - {field: a, op: matches, value: x+}
  - {field: a, op: glob, value: x*}
  - {field: a, op: exists}
  rewrite: {a: {prefix: x}, b: {suffix: y}, c: {replace: ['(a)', '\\1\\1']}, d: 3, e.f: [1]}
  on_pass: allow
  on_fail: ask
- {match: q, patterns: [AskUserQuestion], on_unanswered: deny}
hook_model: m
"""
    files = files_of(make_eval(handlers=full), overrides={"A?": "b", "C?": ["d", "e"]})
    loaded = script_module("tools").load_handlers(files["tool_handlers.yaml"])
    assert [len(loaded["handlers"]), loaded["hook_model"]] == [2, "m"]
    assert loaded["overrides"] == {"a?": "b", "c?": ["d", "e"]}


def test_answers_to_the_same_question_never_reach_the_interceptor_twice(make_eval: MakeEval) -> None:
    overrides = {"which  PLAN?": "Drop", "Which Plan?": "Sell"}
    files = files_of(make_eval(), overrides=overrides)
    assert script_module("tools").load_handlers(files["tool_handlers.yaml"])["overrides"] == {"which plan?": "Sell"}


def test_the_command_pins_the_handlers_of_its_own_case(make_eval: MakeEval) -> None:
    ev = make_eval()
    for overrides in ({}, {"Which plan?": "Drop"}):
        files = files_of(ev, overrides=overrides)
        digest = hashlib.sha256(files["tool_handlers.yaml"]).hexdigest()
        script = '"$CLAUDE_PROJECT_DIR/hooks/tools.py"'
        assert command_of(files).startswith(f"python3 -I -S -E {script} --handlers-sha256 {digest} || {{ echo ")
        assert command_of(files).endswith(">&2; exit 2; }")


def test_another_home_and_log_are_quoted(make_eval: MakeEval) -> None:
    command = command_of(files_of(make_eval(), home="/srv/a b", log="/var/log/it's.jsonl"))
    assert command.startswith("python3 -I -S -E '/srv/a b/hooks/tools.py' --handlers-sha256 ")
    assert " --log '/var/log/it'\"'\"'s.jsonl' || {" in command


def test_the_registered_command_decides(make_eval: MakeEval, tmp_path: Path) -> None:
    files, home = files_of(make_eval()), tmp_path / "work space"
    denied = call(files, home, {"tool_name": "mcp__shop-api__delete", "tool_input": {"id": 1}})
    assert decision(denied) == "deny"
    assert "Ask a colleague" in denied.stdout
    assert decision(call(files, home, {"tool_name": "Bash", "tool_input": {"command": "git push"}})) == "deny"
    assert decision(call(files, home, {"tool_name": "Bash", "tool_input": {"command": "git status"}})) == "none"
    question = {"question": "Which plan?", "header": "H", "multiSelect": False,
                "options": [{"label": "Drop", "description": ""}, {"label": "Keep", "description": ""}]}  # fmt: skip
    answered = call(files, home, {"tool_name": "AskUserQuestion", "tool_input": {"questions": [question]}})
    assert json.loads(answered.stdout)["hookSpecificOutput"]["updatedInput"]["answers"] == {"Which plan?": "Keep"}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda home: (home / "tool_handlers.yaml").write_text('{"handlers": []}'),
        lambda home: (home / "tool_handlers.yaml").unlink(),
        lambda home: (home / "hooks" / "tools.py").unlink(),
        lambda home: (home / "hooks" / "tools.py").write_text("import os; os.kill(os.getpid(), 9)"),
        lambda home: (home / "hooks" / "tools.py").write_text("raise SystemExit(1)"),
    ],
    ids=["other handlers", "no handlers", "no script", "killed", "exit 1"],
)
def test_a_policy_that_is_not_as_it_was_built_denies(
    make_eval: MakeEval, tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    files, home = files_of(make_eval()), tmp_path / "ws"
    call(files, home, {"tool_name": "Bash", "tool_input": {"command": "ls"}})
    spoil(home)
    settings = {name: content for name, content in files.items() if name == ".claude/settings.json"}
    assert decision(call(settings, home, {"tool_name": "Bash", "tool_input": {"command": "ls"}})) == "deny"


def test_without_python_the_call_is_refused_with_a_reason(make_eval: MakeEval, tmp_path: Path) -> None:
    done = call(
        files_of(make_eval()), tmp_path / "ws", {"tool_name": "Bash", "tool_input": {"command": "ls"}}, PATH="/nowhere"
    )
    assert done.returncode == 2
    assert "could not run" in done.stderr


def test_one_group_covers_what_the_handlers_name_and_for_its_protection_what_writes(make_eval: MakeEval) -> None:
    (group,) = settings_of(files_of(make_eval()))["hooks"]["PreToolUse"]
    tools = ["AskUserQuestion", "mcp__shop-api__delete", "Bash", "Write", "Edit", "MultiEdit", "NotebookEdit"]
    assert all(re.search(group["matcher"], tool) for tool in tools)
    assert not any(re.search(group["matcher"], tool) for tool in ["Read", "Glob", "mcp__shop-api__delete_all", "Agent"])


def test_where_the_policy_is_out_of_reach_only_the_handlers_tools_are_covered(make_eval: MakeEval) -> None:
    ev = make_eval(handlers="handlers: [{match: m, patterns: [AskUserQuestion, Task]}]\n")
    (group,) = settings_of(files_of(ev, protect=False))["hooks"]["PreToolUse"]
    assert group["matcher"] == "AskUserQuestion|Task|Agent"


def test_codex_gets_its_own_hooks_file_and_answers_after_the_call(make_eval: MakeEval) -> None:
    files = files_of(make_eval("runner: {type: codex}\n"))
    hooks = json.loads(files[".codex/hooks.json"])
    assert list(hooks) == ["hooks"]
    (before,), (after,) = hooks["hooks"]["PreToolUse"], hooks["hooks"]["PostToolUse"]
    assert after["matcher"] == "request_user_input|request_user_input_async"
    assert all(re.search(before["matcher"], tool) for tool in ["request_user_input", "apply_patch", "Bash"])
    assert before["hooks"] == after["hooks"]
    assert before["hooks"][0]["command"] == command_of(files)


def test_codex_without_questions_needs_no_hook_after_a_call(make_eval: MakeEval) -> None:
    ev = make_eval("runner: {type: codex}\n", handlers="handlers: [{match: m, patterns: [mcp__a__b]}]\n")
    assert list(json.loads(files_of(ev)[".codex/hooks.json"])["hooks"]) == ["PreToolUse"]


def test_the_files_of_a_case_cost_next_to_nothing_once_the_eval_is_known(make_eval: MakeEval) -> None:
    ev, overrides = make_eval(), {f"Question {at}?": f"answer {at}" for at in range(5)}
    handlers = handlers_of(ev, Problems())
    interception_files(ev, handlers, overrides)
    rounds, start = 300, time.process_time()
    for _ in range(rounds):
        interception_files(ev, handlers, overrides)
    assert (time.process_time() - start) / rounds < 0.0005  # 40 µs where this was written


def test_another_eval_is_not_given_the_files_of_the_last(make_eval: MakeEval) -> None:
    ev = make_eval()
    one, two = (Handlers((Handler("m", (tool,)),)) for tool in ("Read", "Glob"))
    first, second = interception_files(ev, one, {}), interception_files(ev, two, {})
    assert first["tool_handlers.yaml"] != second["tool_handlers.yaml"]
    assert interception_files(ev, one, {}) == first


def test_generate_writes_the_files_and_takes_away_what_is_no_longer_needed(make_eval: MakeEval, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ev = make_eval("runner: {type: codex}\npermissions: {deny: [WebFetch]}\n")
    written = generate_interception(out, ev)
    assert sorted(path.relative_to(out).as_posix() for path in written) == [
        ".claude/settings.json", ".codex/hooks.json", "hooks/tools.py", "tool_handlers.yaml",
    ]  # fmt: skip
    (out / "mine.txt").write_text("stays")
    generate_interception(out, make_eval("permissions: {deny: [WebFetch]}\n", handlers=None))
    assert sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()) == [
        ".claude/settings.json", "mine.txt",
    ]  # fmt: skip
    assert not (out / "hooks").exists()


def test_generate_takes_another_start_of_the_command_and_still_guards_it(make_eval: MakeEval, tmp_path: Path) -> None:
    start = "sudo -n -u interceptor /usr/bin/python3 -I -S -E /opt/x/hooks/tools.py --sealed"
    generate_interception(tmp_path / "out", make_eval(), start)
    files = {".claude/settings.json": (tmp_path / "out" / ".claude" / "settings.json").read_bytes()}
    assert command_of(files).startswith(f"{start} || {{ echo ")


def test_generate_uses_the_resolved_handlers_that_it_is_given(make_eval: MakeEval, tmp_path: Path) -> None:
    resolved = tmp_path / "resolved.yaml"
    resolved.write_text("handlers: [{match: m, patterns: [Glob]}]\n")
    generate_interception(tmp_path / "out", make_eval(), None, resolved)
    written = json.loads((tmp_path / "out" / "tool_handlers.yaml").read_text())
    assert written["handlers"] == [{"match": "m", "patterns": ["Glob"]}]


def test_generate_writes_nothing_when_the_handlers_are_wrong(make_eval: MakeEval, tmp_path: Path) -> None:
    with pytest.raises(AuthorError, match=r"tool_handlers\.yaml"):
        generate_interception(tmp_path / "out", make_eval(handlers="handlers: [{match: m, patterns: Bash}]\n"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "wanted"),
    [("", None), ("models: {hook_budget: {calls: 100}}\n", None),
     ("models: {hook_budget: {calls: 0}}\n", {"calls": 0, "tokens": 1_000_000}),
     ("models: {hook_budget: {tokens: 5}}\n", {"calls": 100, "tokens": 5})],
)  # fmt: skip
def test_a_budget_of_the_evals_own_is_in_the_handlers_of_the_task(
    make_eval: MakeEval, more: str, wanted: dict[str, int] | None
) -> None:
    written = files_of(make_eval(more))["tool_handlers.yaml"]
    assert json.loads(written).get("hook_budget") == wanted
    assert yaml.safe_load(written) == json.loads(written)
    config = script_module("tools").load_handlers(written)
    assert config["hook_budget"] == (wanted or {"calls": 100, "tokens": 1_000_000})
