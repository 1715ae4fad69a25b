"""It must not fail open: every fault on the way of a call ends in a deny that Claude Code and Codex take for one."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.interceptor.conftest import Hook

HANDLER = {"match": "No tracker", "patterns": ["mcp__t__*"]}
CALL = json.dumps({"hook_event_name": "PreToolUse", "tool_name": "mcp__t__get", "tool_input": {}, "cwd": "/"}).encode()
FREE = CALL.replace(b"mcp__t__get", b"Read")

PAYLOADS: dict[str, bytes] = {
    "nothing": b"", "blank": b" \n", "a list": b"[]", "a text": b'"x"', "null": b"null", "a number": b"5",
    "not JSON": b"{tool_name: Read}",
    "cut off": FREE[:-5], "text behind": FREE + b" x", "two objects": FREE + b"\n" + FREE,
    "not UTF-8": FREE.replace(b"/", b"\xff"),
    "UTF-16": FREE.decode().encode("utf-16"), "no tool": b'{"tool_input": {}}',
    "tool null": b'{"tool_name": null, "tool_input": {}}',
    "tool a number": b'{"tool_name": 5, "tool_input": {}}',
    "tool a list": b'{"tool_name": ["Read"], "tool_input": {}}',
    "tool empty": b'{"tool_name": "", "tool_input": {}}', "tool blank": b'{"tool_name": " ", "tool_input": {}}',
    "no input": b'{"tool_name": "Read"}', "input null": b'{"tool_name": "Read", "tool_input": null}',
    "input a text": b'{"tool_name": "Read", "tool_input": "ls"}',
    "input a list": b'{"tool_name": "Read", "tool_input": []}',
    "command null": b'{"tool_name": "Bash", "tool_input": {"command": null}}',
    "command missing": b'{"tool_name": "Bash", "tool_input": {}}',
    "command a list": b'{"tool_name": "Bash", "tool_input": {"command": ["ls"]}}',
    "another event": FREE.replace(b"PreToolUse", b"Stop"),
    "event in another case": FREE.replace(b"PreToolUse", b"pretooluse"),
    "tool twice": b'{"tool_name": "a", "tool_name": "b", "tool_input": {}}',
    "NaN": b'{"tool_name": "Read", "tool_input": {"a": NaN}}', "deep list": b"[" * 200_000,
    "deep object": b'{"a":' * 200_000,
    "deep input": b'{"tool_name": "Read", "tool_input": {"a": ' + b"[" * 700 + b"]" * 700 + b"}}",
    "NUL": b'{"tool_name": "Read\x00", "tool_input": {}}',
}  # fmt: skip


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_a_payload_of_another_form_is_denied(payload: bytes, hook: Hook) -> None:
    done = hook.write(HANDLER).send(payload)
    assert (done.decision, done.code) == ("deny", 0)
    assert "deny" in {line["decision"] for line in done.log}


def test_odd_but_whole_payloads_are_judged(hook: Hook) -> None:
    hook.write(HANDLER, {"match": "m", "patterns": ["Bash"], "input_filters": ["jira"]})
    odd = rb'"cwd":5,"tool_use_id":[],"agent_id":{}'
    surrogate = rb'{"tool_name":"Bash","tool_input":{"command":"echo \ud800 jira \u0000"},%s}' % odd
    assert hook.send(surrogate).decision == "deny"
    assert hook.send(surrogate.replace(b"jira", b"x")).decision == "none"
    assert hook.send(b"\n" + FREE + b"\r\n").decision == "none"
    big = json.dumps({"tool_name": "mcp__t__x", "tool_input": {"text": "x" * 8_000_000}}).encode()
    assert hook.send(big).decision == "deny"


def test_a_payload_beyond_all_measure_is_denied(hook: Hook) -> None:
    done = hook.write(HANDLER).send(b" " * (65 << 20) + FREE)
    assert done.decision == "deny"


def test_no_handlers_file_denies(hook: Hook) -> None:
    done = hook.send(FREE)
    assert done.decision == "deny"
    assert "tool_handlers.yaml" in done.reason
    hook.handlers_file.mkdir()
    assert hook.send(FREE).decision == "deny"


def test_a_handlers_file_without_an_end_denies_at_once(hook: Hook) -> None:
    """A plain read of these does not return, not even for the interceptor's own deadline: the tool would run."""
    hook.pin = False
    for endless in (lambda path: path.symlink_to("/dev/zero"), os.mkfifo):
        endless(hook.handlers_file)
        done = hook.send(FREE)
        assert (done.decision, "tool_handlers.yaml cannot be read: it is no regular file" in done.reason) == (
            "deny",
            True,
        )
        hook.handlers_file.unlink()
    with hook.handlers_file.open("wb") as huge:
        huge.truncate(1 << 40)  # which takes no room
    done = hook.send(FREE)
    assert (done.decision, "tool_handlers.yaml cannot be read: it has more than" in done.reason) == ("deny", True)


def test_no_stdin_denies(hook: Hook) -> None:
    hook.write(HANDLER)
    closed = subprocess.run(["/bin/sh", "-c", hook.command() + " <&-"], capture_output=True, check=False,
                            env={"PATH": os.environ["PATH"], "CLAUDE_PROJECT_DIR": str(hook.home)})  # fmt: skip
    assert json.loads(closed.stdout)["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert hook.call("x", {}, stdin=subprocess.DEVNULL).decision == "deny"


@pytest.mark.parametrize("broken", [">&-", ">/dev/full", ">&- 2>&-", "2>&-", "2>/dev/full"])
def test_a_deny_that_cannot_be_written_blocks_by_its_exit_code(broken: str, hook: Hook) -> None:
    hook.write(HANDLER)
    command = hook.command().replace(" || {", f" {broken} || {{")
    run: Any = {
        "capture_output": True,
        "check": False,
        "env": {"PATH": os.environ["PATH"], "CLAUDE_PROJECT_DIR": str(hook.home)},
    }
    done: Any = subprocess.run(["/bin/sh", "-c", command], input=CALL, **run)
    if broken.startswith(">"):
        assert done.returncode == 2
        assert done.stderr.strip(), "Codex runs the tool when exit 2 says nothing"
    else:
        assert json.loads(done.stdout)["hookSpecificOutput"]["permissionDecision"] == "deny"
    free: Any = subprocess.run(["/bin/sh", "-c", command], input=FREE, **run)
    assert (free.returncode, free.stdout) == (0, b"")
    assert [line["decision"] for line in hook.log] == ["deny", "none"], "no text of the decision goes into another file"


def test_a_reader_that_is_gone_blocks_too(hook: Hook) -> None:
    hook.write(HANDLER)
    read, write = os.pipe()
    os.close(read)
    process = hook.start(stdout=write)
    os.close(write)
    _, err = process.communicate(CALL, timeout=30)
    assert process.returncode == 2
    assert err.strip()


def test_no_python_and_no_script_block(hook: Hook) -> None:
    hook.write(HANDLER)
    hook.python = "/no/such/python3"
    assert hook.send(FREE).decision == "deny"
    hook.python = sys.executable
    (hook.home / "hooks" / "tools.py").unlink()
    assert hook.send(FREE).decision == "deny"
    (hook.home / "hooks" / "tools.py").write_text("import nothing_of_that_name\n")
    assert hook.send(FREE).decision == "deny"


@pytest.mark.parametrize("options", [["--unsealed"], ["--log"], ["x"], ["--handlers-sha256"],
    ["--handlers-sha256", ""],
                                     ["--handlers-sha256", "0" * 64], ["--sealed=1"], ["-h"]])  # fmt: skip
def test_options_that_are_not_understood_deny(options: list[str], hook: Hook) -> None:
    hook.write(HANDLER)
    hook.pin = False
    hook.options = options
    assert hook.send(FREE).decision == "deny"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_while_it_works_ends_in_a_deny(number: int, hook: Hook) -> None:
    hook.write(HANDLER)
    script = [sys.executable, "-I", "-S", "-E", str(hook.home / "hooks" / "tools.py")]
    process = subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    status = Path(f"/proc/{process.pid}/status")
    for _ in range(400):  # until it has set its handlers: the signal is among those that are caught
        caught = int(re.findall(r"SigCgt:\s*(\w+)", status.read_text())[0], 16)
        if caught >> (number - 1) & 1 and caught >> (signal.SIGALRM - 1) & 1 and caught >> (signal.SIGHUP - 1) & 1:
            break
        time.sleep(0.02)
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert json.loads(out)["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert len(hook.log) == 1


def test_a_signal_that_kills_it_blocks(hook: Hook) -> None:
    hook.write(HANDLER)
    process = hook.start()
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    for _ in range(400):
        if children.read_text().strip():
            break
        time.sleep(0.02)
    os.kill(int(children.read_text().split()[0]), signal.SIGKILL)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 2
    assert b"did not run" in err


def with_deadline(hook: Hook, seconds: float) -> None:
    """The script with a shorter deadline, all else as it is."""
    script = hook.home / "hooks" / "tools.py"
    text, count = re.subn(r"(?m)^DEADLINE_S = 40\b", f"DEADLINE_S = {seconds}", script.read_text(encoding="utf-8"))
    assert count == 1
    script.write_text(text, encoding="utf-8")


def test_the_deadline_lies_within_the_limit_of_the_settings(tools: Any) -> None:
    assert 30 < tools.DEADLINE_S <= 40
    assert tools.MODEL_S <= 30


def test_a_regular_expression_that_does_not_end_is_denied_by_entry(hook: Hook) -> None:
    with_deadline(hook, 0.7)
    hook.write(HANDLER, {"match": "m", "patterns": ["Bash"], "input_filters": ["(a+)+$"]})
    start = time.monotonic()
    done = hook.bash("a" * 60 + "!")
    assert time.monotonic() - start < 20
    assert done.decision == "deny"
    assert "tool_handlers.yaml" in done.reason
    assert "handlers[1]" in done.reason
    assert done.log[0]["decision"] == "deny"


def test_a_payload_that_never_ends_is_denied_in_time(hook: Hook) -> None:
    with_deadline(hook, 0.7)
    process = hook.write(HANDLER).start()
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    process.stdin.write(CALL[:20])
    process.stdin.flush()
    assert json.loads(process.stdout.read())["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert process.wait(20) == 0
    process.stdin.close()
    process.stdout.close()
    process.stderr.close()


def test_a_blocked_alarm_does_not_take_the_deadline_away(hook: Hook) -> None:
    with_deadline(hook, 0.7)
    hook.write({"match": "m", "patterns": ["Bash"], "input_filters": ["(a+)+$"]})
    block = (
        "import os, signal; signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32)); os.execvp('sh', ['sh', '-c', {!r}])"
    )
    done = subprocess.run(
        [sys.executable, "-c", block.format(hook.command())], capture_output=True, timeout=60, check=False,
        input=json.dumps({"tool_name": "Bash", "tool_input": {"command": "a" * 60 + "!"}}).encode(),
        env={"PATH": os.environ["PATH"], "CLAUDE_PROJECT_DIR": str(hook.home)},
    )  # fmt: skip
    assert json.loads(done.stdout)["hookSpecificOutput"]["permissionDecision"] == "deny"


def test_planted_modules_are_not_imported(hook: Hook) -> None:
    hook.write(HANDLER, {"match": "m", "patterns": ["Bash"], "input_filters": ["jira"]})
    for folder in (hook.home / "hooks", hook.home, hook.home / "site"):
        folder.mkdir(exist_ok=True)
        for name in (
            "json",
            "os",
            "re",
            "sitecustomize",
            "usercustomize",
            "enum",
            "signal",
            "_json",
            "fcntl",
            "sre_compile",
        ):
            (folder / f"{name}.py").write_text("raise SystemExit(0)\n")
        (folder / "re").mkdir()
        (folder / "re" / "__init__.py").write_text("raise SystemExit(0)\n")
    site = str(hook.home / "site")
    hook.env |= {"PYTHONPATH": site, "PYTHONSTARTUP": f"{site}/os.py", "PYTHONINSPECT": "1", "PYTHONHOME": "/nowhere"}
    assert hook.send(CALL).decision == "deny"
    assert hook.bash("jira x").decision == "deny"
    assert hook.bash("ls").decision == "none"
    assert len(hook.log) == 3


def test_it_finds_its_files_wherever_it_is_started(hook: Hook, tmp_path: Path) -> None:
    hook.write(HANDLER)
    gone = tmp_path / "gone"
    for folder in (tmp_path / "a b", gone):
        folder.mkdir()
        (folder / "tool_handlers.yaml").write_text('{"handlers": []}')
        command = f"cd '{folder}'; rm -rf '{gone}'; {hook.command()}"
        env = {"PATH": os.environ["PATH"], "CLAUDE_PROJECT_DIR": str(hook.home)}
        done = subprocess.run(["/bin/sh", "-c", command], input=CALL, capture_output=True, env=env, check=False)
        assert json.loads(done.stdout)["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert len(hook.log) == 2


def test_a_home_with_an_odd_name_works(hook: Hook, tmp_path: Path) -> None:
    hook.write(HANDLER)
    home = tmp_path / "ö 'x\" $y"
    home.mkdir()
    shutil.copytree(hook.home / "hooks", home / "hooks")
    shutil.copy(hook.handlers_file, home)
    hook.home = home
    hook.env |= {"LC_ALL": "C", "PYTHONUTF8": "0"}
    assert hook.send(CALL).decision == "deny"
    assert hook.send(FREE).decision == "none"
    assert len(hook.log) == 2


def test_a_python_without_the_c_scanner_decides_alike(hook: Hook) -> None:
    hook.write(HANDLER, {"match": "m", "patterns": ["Bash"], "input_filters": ["jira"]})
    script = hook.home / "hooks" / "tools.py"
    hidden = "import sys\nsys.modules['_json'] = None\n"
    script.write_text(hidden + script.read_text(encoding="utf-8"), encoding="utf-8")
    assert hook.send(CALL).decision == "deny"
    assert hook.send(FREE).decision == "none"
    assert hook.bash("jira").decision == "deny"
    for name in ("nothing", "a list", "cut off", "text behind", "NaN", "tool twice", "deep list"):
        assert hook.send(PAYLOADS[name]).decision == "deny"


def test_a_failure_inside_is_a_deny_that_shows_no_value(hook: Hook) -> None:
    script = hook.home / "hooks" / "tools.py"
    text = script.read_text(encoding="utf-8")
    for fault in ("raise MemoryError('secret')", "raise KeyboardInterrupt('secret')", "raise SystemExit(0)",
        "raise ValueError('secret')",
                  "raise RecursionError", "raise GeneratorExit"):  # fmt: skip
        script.write_text(
            text.replace("def load_handlers(data):", f"def load_handlers(data):\n    {fault}"), encoding="utf-8"
        )
        done = hook.write(HANDLER).send(FREE)
        assert (done.decision, done.code) == ("deny", 0), fault
        assert "secret" not in done.out + done.stderr


def test_a_failure_in_the_way_out_is_a_deny_too(hook: Hook) -> None:
    script = hook.home / "hooks" / "tools.py"
    text = script.read_text(encoding="utf-8")
    for place in ("def output(call):", "def say(text):", "def append_to_log(call, start):"):
        assert place in text
        script.write_text(text.replace(place, f"{place}\n    raise MemoryError"), encoding="utf-8")
        assert hook.write(HANDLER).send(CALL).decision == "deny", place


@pytest.mark.parametrize("text", ["{a}", '{"handlers": [', '{"handlers": [}', "[1,,2]", '{"handlers": [] "x": 1}'])
def test_broken_json_is_named_whichever_python_reads_it(text: str, hook: Hook) -> None:
    hook.pin = False
    hook.handlers_file.write_text(text, encoding="utf-8")
    done = hook.bash("ls")
    assert done.decision == "deny"
    assert "tool_handlers.yaml is not JSON as the build writes it" in done.reason
    hook.write()
    done = hook.send(text.encode())
    assert done.decision == "deny"
    assert "the payload is not the JSON of a tool call" in done.reason


@pytest.mark.parametrize(
    ("tool", "tool_input"),
    [
        ("Write", {"file_path": "a\0b.md"}), ("Write", {"file_path": ".claude/a\ud83d.md"}),
        ("Bash", {"command": "rm hooks\0"}), ("Bash", {"command": "cat settings\ud83d"}),
        ("Bash", {"command": "rm \ud800"}),
    ],
)  # fmt: skip
def test_a_path_that_no_system_takes_is_denied_with_a_reason(tool: str, tool_input: dict[str, Any], hook: Hook) -> None:
    payload = {"hook_event_name": "PreToolUse", "tool_name": tool, "tool_use_id": "t", "tool_input": tool_input}
    done = hook.write().send(json.dumps(payload).encode())
    assert done.decision == "deny"
    assert "the call has a path that is none" in done.reason
