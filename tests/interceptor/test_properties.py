"""Properties: no payload or handler opens the gate, and no way to run a program that bash takes hides it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.interceptor.conftest import whole_script

if TYPE_CHECKING:
    from collections.abc import Callable

TOOLS = whole_script()
QUICK = settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)

names = st.sampled_from(
    ["Bash", "Write", "AskUserQuestion", "request_user_input", "apply_patch", "Task", "mcp__a__b", "x", "*", "mcp__*"]
)
words = st.sampled_from(
    ["a", "A", "Which?", "ls", "git push", "", " ", "tool_handlers.yaml", "5", "$5", "\ud800", "ö", "(", "a, b"]
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-10, 600)
    | st.floats(allow_nan=False, allow_infinity=False)
    | words
    | st.text(max_size=8)
)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=8
)
fields = st.sampled_from(["match", "patterns", "input_filters", "env_checks", "prompt", "reason", "input_checks",
    "rewrite", "on_pass",
                          "on_fail", "on_unanswered", "input_filter", "requires"])  # fmt: skip
inputs = st.fixed_dictionaries({}, optional={
    "command": words | values, "file_path": words | values, "amount": leaves, "a": values,
    "questions": st.lists(st.fixed_dictionaries({"question": words | values}, optional={
        "options": st.lists(words | st.fixed_dictionaries({"label": words | values}), max_size=3) | values,
        "multiSelect": leaves, "id": leaves,
    }), max_size=3) | values,
})  # fmt: skip
checks = st.fixed_dictionaries(
    {"field": st.sampled_from(["amount", "a.a", "a.0"]), "op": st.sampled_from(TOOLS.OPS), "value": values}
)
rules = st.fixed_dictionaries(
    {"match": words, "patterns": st.lists(names, min_size=1, max_size=3)},
    optional={
        "input_filters": st.lists(st.sampled_from(["ls", "push", "^git", "(a|b)*c"]), max_size=2),
        "env_checks": st.dictionaries(st.sampled_from(["A", "B"]), st.dictionaries(
            st.sampled_from(["must_contain", "equals", "host_in", "matches"]), words | st.lists(words, max_size=2),
                max_size=2), max_size=2),
        "input_checks": st.lists(checks, max_size=2), "on_pass": st.sampled_from(["none", "allow"]),
        "on_fail": st.sampled_from(["deny", "ask"]),
        "on_unanswered": st.sampled_from(["first_option", "deny"]),
        "rewrite": st.dictionaries(st.sampled_from(["a", "file_path", "command"]), values | st.dictionaries(
            st.sampled_from(["prefix", "suffix", "replace"]), words | st.lists(words, max_size=2), max_size=1),
                max_size=2),
    },
)  # fmt: skip
handlers = st.lists(rules | st.dictionaries(fields, values, max_size=3), max_size=3)
calls = st.fixed_dictionaries({"tool_name": names | values, "tool_input": inputs | values,
    "hook_event_name": st.sampled_from(["PreToolUse"] * 9 + ["PostToolUse"])},
                              optional={"turn_id": words, "cwd": values})  # fmt: skip


def judged(config: Any, call: dict[str, Any]) -> tuple[str, bool]:
    """(what goes to stdout, whether handlers and payload were fine), as main() comes to it."""
    known = TOOLS.new_call(
        event=call["hook_event_name"], codex="turn_id" in call, tool=call["tool_name"], input=call["tool_input"]
    )
    fine = isinstance(call["tool_name"], str) and isinstance(call["tool_input"], dict)
    try:
        loaded = TOOLS.load_handlers(json.dumps(config).encode())
        guard = TOOLS.Guard("/opt/x/hooks/tools.py", "/opt/x", "/opt/x/interceptions.jsonl", "/opt/x")
        if fine:
            TOOLS.decide(known, loaded, {"A": "a"}, guard, lambda _, asked: ([["a"]] * len(asked), None, []))
    except TOOLS.Refused:
        fine = False
        known.update(decision="deny", reason="refused", updated=None)
    return str(TOOLS.output(known)), fine


@QUICK
@given(
    handlers=handlers,
    more=st.dictionaries(
        st.sampled_from(["case_overrides", "hook_model", "x"]), values | st.dictionaries(words, words), max_size=1
    ),
    call=calls,
)
def test_whatever_comes_in_a_decision_that_the_program_takes_goes_out(
    handlers: Any, more: dict[str, Any], call: dict[str, Any]
) -> None:
    out, fine = judged({"handlers": handlers, **more}, call)
    if not fine:
        assert out
    if not out:
        return
    said = json.loads(out)
    assert out.isascii() and "\n" not in out
    if call["hook_event_name"] == "PostToolUse":
        assert (said["decision"], set(said)) == ("block", {"decision", "reason"})
        assert said["reason"].strip()
        return
    inner = said["hookSpecificOutput"]
    assert set(said) == {"hookSpecificOutput"}
    assert inner["hookEventName"] == "PreToolUse"
    assert inner["permissionDecision"] in {"allow", "deny", "ask"}
    assert isinstance(inner["permissionDecisionReason"], str) and inner["permissionDecisionReason"].strip()
    assert fine or inner["permissionDecision"] == "deny"
    if "updatedInput" in inner:
        assert inner["permissionDecision"] == "allow"
        assert set(call["tool_input"]) <= set(inner["updatedInput"])
        if "answers" in inner["updatedInput"] and call["tool_name"] == "AskUserQuestion":
            assert inner["updatedInput"]["questions"] == call["tool_input"]["questions"]


@QUICK
@given(
    st.lists(rules, min_size=1, max_size=2),
    calls,
    st.integers(0, 400),
    st.sampled_from(["", "}", '"', "[", "\\", "0", "null", "\x00"]),
)
def test_a_handlers_file_that_was_damaged_never_lets_more_through(
    handlers: Any, call: dict[str, Any], place: int, bytes_: str
) -> None:
    text = json.dumps({"handlers": handlers})
    damaged = text[: place % len(text)] + bytes_ + text[place % len(text) + 1 :]
    try:
        TOOLS.load_handlers(damaged.encode("utf-8", "surrogatepass"))
    except TOOLS.HandlersError as error:
        assert "tool_handlers.yaml" in str(error)
    else:
        assert json.loads(damaged)["handlers"] is not None


# -------------------------------------------------------------------------- what bash runs is found

PUSHES = ["git push", "git push origin", "g\"i\"t push", "git 'push'", "gi\\t push", "git \\\n push",
    "$'\\x67it' push", "command git push",
          "/usr/bin/env git push", "FOO=bar git push", "git${IFS}push", "{git,push}",
          "git pus{h,}", "g$()i``t push", "{'git',\"push\"}''", "exec -a x git push", "nice -n 5 git push",
          "xargs git <<< push", "echo push | xargs git", "printf 'git %s' push | bash", "bash -c '$0 push' git",
          "bash -c '\"$@\"' _ git push"]  # fmt: skip
HARMLESS = ["true", "echo hi", "git status", "git commit -m 'note'", "echo it\\'s", "x='a b'"]
ENDS = ["EOF", "'EOF'", "\\EOF", '"EOF"']


def quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def double(text: str) -> str:
    return '"' + re.sub(r'([\\"$`])', r"\\\1", text) + '"'


def backticks(text: str) -> str:
    return "`" + re.sub(r"([\\`$])", r"\\\1", text) + "`"


WRAP: list[Callable[[str], str]] = [
    lambda c: f"( {c}\n)", lambda c: f"{{ {c}\n}}", lambda c: f"if true; then {c}\nfi",
        lambda c: f"for i in 1; do {c}\ndone",
    lambda c: f"f() {{ {c}\n}}; f", lambda c: f"case a in a) {c}\n;; esac", lambda c: f"! {c}",
        lambda c: f"echo a | {c}",
    lambda c: f"bash -c {quote(c)}", lambda c: f"bash -c {double(c)}", lambda c: f"eval {quote(c)}",
        lambda c: f"trap {quote(c)} EXIT",
    lambda c: f"x=$({c}\n)", lambda c: f'echo "a$({c}\n)"', lambda c: f"echo {backticks(c)}",
        lambda c: f"cat <({c}\n)",
    lambda c: f'git commit -m "a $({c}\n)"', lambda c: f"bash <<< {quote(c)}", lambda c: f"echo {quote(c)} | bash",
    lambda c: f"printf '%s\\n' {quote(c)} | sh", lambda c: f"{{ {c}\n}} | cat",
        lambda c: f"{{ echo {quote(c)}\n}} | bash",
    lambda c: f"echo $((1 << 2)); {c}", lambda c: f"cat > n <<'EOF'\nit's\nEOF\n{c}",
        lambda c: f"git commit -m 'it is' && {c}",
    lambda c: f"git commit -m \"it's\"\n{c}", lambda c: f"ls # it's\n{c}", lambda c: f'echo "${{x:-$({c}\n)}}"',
    lambda c: f"{c}\ngit commit -m 'a'", lambda c: f"while {c}\ndo break; done",
        lambda c: f"timeout 5 bash -c {quote(c)}",
    lambda c: f"coproc {{ {c}\n}}; wait", lambda c: f"find . -maxdepth 0 -exec bash -c {quote(c)} \\;",
    lambda c: f"eval -- {quote(c)}", lambda c: f"sh -c 'eval \"$1\"' _ {quote(c)}",
    lambda c: f"bash -c '\"$@\"' _ bash -c {quote(c)}",
        lambda c: f"while read -r l; do eval \"$l\"; done <<< {quote(c)}",
    lambda c: f"env -S bash -c {quote(c)}", lambda c: f"cat <<'X' > n.md\nit's\nX\n{c}",
]  # fmt: skip
FEED: list[Callable[[str, str], str]] = [
    lambda c, e: f"bash <<{e}\n{c}\nEOF", lambda c, e: f"cat <<{e} | bash\n{c}\nEOF", lambda c,
        e: f"cat <<{e} | cat | sh -s\n{c}\nEOF",
    lambda c, e: f"(bash) <<{e}\n{c}\nEOF", lambda c, e: f"{{ cat <<{e}\n{c}\nEOF\n}} | bash", lambda c,
        e: f"eval \"$(cat <<{e}\n{c}\nEOF\n)\"",
    lambda c, e: f"cat > go.sh <<{e}; cat go.sh | bash\n{c}\nEOF",
    lambda c, e: f"cat > go.md <<{e}; mv go.md x; . ./x\n{c}\nEOF", lambda c, e: f"tee go <<{e}; bash ./g*\n{c}\nEOF",
    lambda c, e: f"cat > go.sh <<{e}; bash go.sh\n{c}\nEOF", lambda c, e: f"bash <(cat <<{e}\n{c}\nEOF\n)",
]  # fmt: skip


@st.composite
def command_lines(draw: st.DrawFn) -> str:
    """A command line, in which some program may or may not be `git push`."""
    line = draw(st.sampled_from(PUSHES) | st.sampled_from(HARMLESS))
    for _ in range(draw(st.integers(0, 3))):
        if "EOF" not in line and draw(st.integers(0, 3)) == 0:
            line = draw(st.sampled_from(FEED))(line, draw(st.sampled_from(ENDS)))
        else:
            line = draw(st.sampled_from(WRAP))(line)
        if draw(st.integers(0, 3)) == 0:
            line = draw(st.sampled_from(HARMLESS)) + draw(st.sampled_from(["\n", "; ", " && "])) + line
    return line


@pytest.fixture(scope="module")
def runs_push(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], bool]:
    """Whether the real bash runs `git push` for a command line: git is a script here that says so."""
    bash = shutil.which("bash")
    assert bash, "the command lines are run by bash"
    folder = tmp_path_factory.mktemp("run")
    said = folder / "said"
    git = folder / "git"
    git.write_text(f'#!/bin/sh\n[ "$1" != push ] || echo >> "{said}"\n')
    git.chmod(0o755)
    env = {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder)}

    def run(line: str) -> bool:
        said.unlink(missing_ok=True)
        streams: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        subprocess.run([bash, "-c", line], cwd=folder, env=env, timeout=30, check=False, **streams)
        return said.exists()

    return run


@settings(
    deadline=None, max_examples=1500, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(line=command_lines())
def test_what_bash_runs_is_found(line: str, runs_push: Callable[[str], bool]) -> None:
    anchored = re.compile(r"^git\s+push\b", re.IGNORECASE)
    if runs_push(line):
        assert any(map(anchored.search, TOOLS.Reading(line).texts))


@QUICK
@given(
    st.sampled_from(PUSHES[:2]),
    st.text(alphabet="ab '\"\\$`(){}<>|&;#\n-=", max_size=30),
    st.text(alphabet="ab '\"\\$`(){}<>|&;#\n-=", max_size=30),
)
def test_a_command_on_a_line_of_its_own_is_found_amid_any_text(push: str, before: str, after: str) -> None:
    text = f"{before}\n{push}\n{after}"
    if "-m" not in before and "<<" not in before:
        assert any(re.search(r"\bgit push\b", found) for found in TOOLS.Reading(text).texts)


@QUICK
@given(st.text(alphabet="git push-m'\"\\$`(){}<EOF\n;&|=", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        texts = TOOLS.Reading(text).texts
    except TOOLS.Refused:
        return
    assert texts
