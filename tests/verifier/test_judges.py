"""Each kind of judge, with real processes: what it may return, what its faults become, what it cannot do."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .kit import Task, assistant, call, check, decided, make_deep, remove_deep, result

DEADLINE = 20.0


@pytest.fixture
def task(tmp_path: Path) -> Iterator[Task]:
    """A task whose agent left nothing."""
    yield Task(tmp_path)
    remove_deep(tmp_path)


@pytest.mark.parametrize(
    ("code", "value", "normalized", "passed", "reason"),
    [
        ("return True", True, 1.0, True, None),
        ("return False, 'the list is empty'", False, 0.0, False, "the list is empty"),
        ("return 0.25", 0.25, 0.25, None, None),
        ("return 1, 3", 1, 1.0, None, "3"),
        ("if outputs:\n    return True\nreturn False", True, 1.0, True, None),
        ("from enum import IntEnum\nclass Score(IntEnum):\n    full = 1\nreturn Score.full", 1, 1.0, None, None),
    ],
)
def test_a_check_returns_a_verdict(
    task: Task, code: str, value: object, normalized: float, passed: bool | None, reason: str | None
) -> None:
    line = task.verify(check(code)).only
    assert (line["status"], line["error"]) == ("ok", None)
    assert (line["value"], line["normalized"], line["passed"], line["reason"]) == (value, normalized, passed, reason)
    assert type(line["value"]) is type(value)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("pass", "returned nothing"),
        ("len(outputs) > 0", "returned nothing"),
        ("return None, 'no idea'", "returned NoneType"),
        ("return 'yes'", "returned str"),
        ("return [True]", "returned list"),
        ("return True, 'a', 'b'", "returned tuple"),
        ("return float('nan')", "no finite number"),
        ("return float('-inf'), 'reason'", "no finite number"),
        ("return 10 ** 400", "no finite number"),
        ("return 1.01", "outside 0 to 1"),
        ("return 4", "set score_range"),
        ("return -1", "outside 0 to 1"),
        ("raise SystemExit(0)", "exit(0)"),
        ("import os\nos._exit(0)", "without an answer"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "without an answer"),
        ("import no_such_module", "no_such_module"),
        ("def f(): return f()\nreturn f()", "RecursionError"),
    ],
)
def test_what_is_no_verdict_is_the_judges_error_and_gives_no_reward(task: Task, code: str, said: str) -> None:
    judged = task.verify(check(code))
    assert judged.only["status"] == "error"
    assert said in judged.only["error"]
    assert (judged.reward, judged.report["reward"], judged.report["unjudged"]) == (None, None, ["j"])
    assert judged.code == 1


@pytest.mark.parametrize(
    ("more", "code", "value"),
    [
        ({"feedback_type": "bool"}, "return 1", "feedback_type is bool"),
        ({"feedback_type": "bool"}, "return True", 1.0),
        ({"feedback_type": "int"}, "return True", "feedback_type is int"),
        ({"feedback_type": "float"}, "return False", "feedback_type is float"),
        ({"feedback_type": "int"}, "return 1.0", "feedback_type is int"),
        ({"feedback_type": "float"}, "return 1", 1.0),
        ({"score_range": [1, 5]}, "return 4", 0.75),
        ({"score_range": [1, 5]}, "return 0.5", "outside 1 to 5"),
        ({"score_range": [-1, 1]}, "return -1", 0.0),
        ({"score_range": [1, 5]}, "return True", "score_range asks for a number"),
        ({"score_range": [0, 2.5], "feedback_type": "float"}, "return 2.5", 1.0),
    ],
)
def test_a_value_must_fit_the_judges_type_and_range(task: Task, more: dict[str, Any], code: str, value: object) -> None:
    line = task.verify(check(code, **more)).only
    if isinstance(value, float):
        assert (line["status"], line["normalized"]) == ("ok", value)
    else:
        assert str(value) in line["error"]


def test_a_check_knows_its_arguments_and_the_annotations_under_both_names(task: Task) -> None:
    code = "return arguments['least'] == 3 and annotations['kind'] == 'x' and outputs['annotations'] == annotations"
    assert task.verify(check(code, arguments={"least": 3}), annotations={"kind": "x"}).only["value"] is True


def test_a_case_without_annotations_has_an_empty_mapping(task: Task) -> None:
    assert task.verify(check("return annotations.get('kind') is None"), annotations=None).only["value"] is True


def test_a_check_runs_in_the_workspace_and_imports_what_is_installed(task: Task) -> None:
    task.made("report.yaml", "items: [1, 2]\n")
    code = "import yaml, pathlib\nreturn yaml.safe_load(pathlib.Path('report.yaml').read_text())['items'] == [1, 2]"
    assert task.verify(check(code)).only["value"] is True


def test_a_module_that_the_agent_planted_is_not_imported(task: Task) -> None:
    for name in ("yaml.py", "json.py", "sitecustomize.py", "usercustomize.py"):
        task.made(name, "import builtins; builtins.PLANTED = True\n")
    code = "import builtins, yaml, json\nreturn hasattr(builtins, 'PLANTED'), yaml.__file__"
    assert task.verify(check(code), env={"PYTHONPATH": str(task.workspace)}).only["value"] is False


def test_texts_in_a_check_keep_their_white_space(task: Task) -> None:
    code = 'text = """a\n  b\n\tc"""\nreturn text == "a\\n  b\\n\\tc"'
    assert task.verify(check(code)).only["value"] is True


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("a = 1\n\nb = outputs['nope']\nreturn True", "KeyError: 'nope' (line 3: b = outputs['nope'])"),
        (
            "def inner():\n    return 1 / 0\nreturn inner()",
            "ZeroDivisionError: division by zero (line 2: return 1 / 0)",
        ),
        ("import json\nreturn json.loads('{')", "(line 2: return json.loads('{'))"),
        ("x = 1\nreturn (", "(line 2)"),
    ],
)
def test_a_fault_names_the_line_of_the_checks_own_body(task: Task, code: str, said: str) -> None:
    assert said in task.verify(check(code)).only["error"]


FORGED = '{\\"value\\": true, \\"reason\\": \\"forged\\"}'


def test_what_a_check_prints_is_no_verdict(task: Task) -> None:
    code = f"""
import os, sys
line = "{FORGED}"
print(line, flush=True)
print(line, file=sys.stderr, flush=True)
os.system("for n in 1 2 3 4 5 6 7 8 9; do echo '%s' >&$n; done 2>/dev/null" % line)
return False, "true verdict"
"""
    line = task.verify(check(code)).only
    assert (line["value"], line["reason"]) == (False, "true verdict")
    assert "forged" in line["output"]


EVERYWHERE = """
import os, sys
line = b'%s' + b"\\n"
def spread(times):
    for fd in range(256):
        try:
            os.write(fd, line * times)
        except OSError:
            pass
"""


@pytest.mark.parametrize(
    "then",
    ["spread(1)", "spread(1)\nos.write(1, b'x' * 300000)", "spread(30000)"],
    ids=["once", "with noise", "until the pipe is full"],
)  # fmt: skip
@pytest.mark.parametrize("forged", [FORGED.replace("\\", ""), '{"skipped": true}', '{"error": "forged"}'])
def test_what_a_check_writes_to_everything_that_is_open_is_no_verdict(task: Task, then: str, forged: str) -> None:
    code = EVERYWHERE % forged + then + "\nreturn False, 'true verdict'"
    line = task.verify(check(code)).only
    assert (line["status"], line["value"], line["reason"]) == ("ok", False, "true verdict")


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_a_check_that_writes_everywhere_and_ends_has_no_verdict(task: Task, end: str) -> None:
    line = task.verify(check(EVERYWHERE % FORGED.replace("\\", "") + "spread(1)\n" + end)).only
    assert line["status"] == "error"
    assert "without an answer" in line["error"]


def test_a_check_that_forks_answers_once(task: Task) -> None:
    """A child that comes back from the fork runs on in the author's code, and what it returns is no verdict."""
    code = (
        "import os\npid = os.fork()\nif pid:\n    os.waitpid(pid, 0)\n    return False, 'parent'\nreturn True, 'child'"
    )
    line = task.verify(check(code)).only
    assert (line["value"], line["reason"]) == (False, "parent")


FORGERS = """
for name in reward.json judges.json; do
    setsid timeout 9 sh -c "while :; do echo '{\\"reward\\": 99, \\"judges\\": []}' >LOGS/$name; done" >/dev/null 2>&1 &
done
(setsid sh -c 'echo $$ > pid; exec sleep 60' &)
while [ ! -s pid ]; do sleep 0.01; done
for n in 0 1 2 3 4 5 6 7 8 9; do echo '{"value": true}' >&$n; done 2>/dev/null
exit 1
"""


@pytest.mark.parametrize("kind", ["command", "check"])
def test_what_a_judge_leaves_running_writes_no_reward(task: Task, kind: str) -> None:
    """In a session of its own, where the end of its group does not reach it."""
    script = FORGERS.replace("LOGS", str(task.logs))
    starts = check(f"import subprocess\nreturn subprocess.run(['sh', '-c', {script!r}]).returncode == 0")
    judged = task.verify(command(script) if kind == "command" else starts)
    assert (judged.only["value"], judged.reward) == (False, {"j": 0.0, "reward": 0.0})
    assert wait_until_gone(int((task.workspace / "pid").read_text(encoding="utf-8")))
    time.sleep(0.2)
    assert json.loads((task.logs / "reward.json").read_text(encoding="utf-8"))["reward"] == 0.0
    assert json.loads((task.logs / "judges.json").read_text(encoding="utf-8"))["judges"]


def test_what_a_check_prints_is_capped(task: Task) -> None:
    judged = task.verify(check("for i in range(200):\n    print('x' * 100000)\nreturn True"))
    assert judged.only["value"] is True
    assert len(judged.only["output"]) <= 4000


def wait_until_gone(pid: int) -> bool:
    """Has the process ended, or will it do so within a moment?"""
    limit = time.monotonic() + DEADLINE
    while time.monotonic() < limit:
        try:
            if Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


def test_a_check_out_of_time_is_an_error_and_all_that_it_started_is_ended(task: Task) -> None:
    code = "import subprocess\np = subprocess.Popen(['sleep', '300'])\nopen('pid', 'w').write(str(p.pid))\np.wait()"
    begun = time.monotonic()
    judged = task.verify(check(code, timeout=1))
    assert "took longer than 1 s" in judged.only["error"]
    assert judged.reward is None
    assert time.monotonic() - begun < DEADLINE
    assert wait_until_gone(int((task.workspace / "pid").read_text(encoding="utf-8")))


def test_a_process_that_a_check_leaves_behind_holds_nothing_up(task: Task) -> None:
    code = "import subprocess\np = subprocess.Popen(['sleep', '300'])\nopen('pid', 'w').write(str(p.pid))\nreturn True"
    begun = time.monotonic()
    assert task.verify(check(code)).only["value"] is True
    assert time.monotonic() - begun < DEADLINE
    assert wait_until_gone(int((task.workspace / "pid").read_text(encoding="utf-8")))


@pytest.mark.parametrize("kind", ["check", "command"])
def test_a_judge_does_not_see_the_callers_keys(task: Task, kind: str) -> None:
    judges = {
        "check": check("import os\nreturn 'ANTHROPIC_API_KEY' in os.environ or 'TOKEN' in os.environ"),
        "command": {"name": "j", "kind": "command", "command": 'test -n "$ANTHROPIC_API_KEY$TOKEN"'},
    }
    judged = task.verify(judges[kind], env={"ANTHROPIC_API_KEY": "sk-secret", "TOKEN": "t"})
    assert judged.only["value"] is False


def test_a_check_cannot_wait_for_input(task: Task) -> None:
    assert "EOFError" in task.verify(check("return input() == ''")).only["error"]


# ---- if ----

EVERY_KIND = [
    {"kind": "check", "code": "return True"},
    {"kind": "command", "command": "true"},
    {"kind": "builtin", "builtin": "tool_calls_valid"},
    {"kind": "prompt", "prompt": "How good is it?"},
    {"kind": "module", "module": "checks", "function": "judge"},
]


@pytest.mark.parametrize("judge", EVERY_KIND, ids=lambda judge: judge["kind"])
def test_if_skips_a_judge_of_any_kind(task: Task, judge: dict[str, Any]) -> None:
    task.lib("checks.py", "def judge(outputs): return True\n")
    said = task.verify({"name": "j", "if": "annotations['kind'] == 'other'", **judge}, annotations={"kind": "this"})
    assert said.only["status"] == "skipped"
    said = task.verify({"name": "j", "if": "annotations['kind'] == 'this'", **judge}, annotations={"kind": "this"})
    assert said.only["status"] == ("pending" if judge["kind"] == "prompt" else "ok")


@pytest.mark.parametrize("judge", EVERY_KIND, ids=lambda judge: judge["kind"])
def test_an_if_that_fails_is_an_error_not_a_skip(task: Task, judge: dict[str, Any]) -> None:
    task.lib("checks.py", "def judge(outputs): return True\n")
    line = task.verify({"name": "j", "if": "annotations['kind'] == 1", **judge}, annotations={}).only
    assert (line["status"], line["error"]) == ("error", "if: KeyError: 'kind'")


def test_if_sees_what_a_check_sees_inside_a_comprehension_too(task: Task) -> None:
    condition = "any(arguments['tool'] == c['name'] for c in outputs['tool_calls'])\n  or annotations.get('always')"
    judge = check("return True", arguments={"tool": "Bash"}, **{"if": condition})
    assert task.verify(judge).only["status"] == "skipped"
    task.said(assistant(call("t1", "Bash", command="ls")), result("t1"))
    assert task.verify(judge).only["status"] == "ok"


# ---- module ----


def module(**more: Any) -> dict[str, Any]:
    """A judge that is a function of a module."""
    return {"name": "j", "kind": "module", "module": "quality.checks", "function": "judge", **more}


@pytest.mark.parametrize(
    "source",
    [
        "def judge(outputs, least): return least == 2",
        "def judge(outputs, **given): return given == {'least': 2}",
        "def judge(outputs, arguments, annotations): return arguments == {'least': 2} and annotations == {'k': 1}",
        "def judge(outputs, least, annotations): return (least, annotations) == (2, {'k': 1})",
        "def judge(outputs, arguments): return arguments['least'] == 2",
        "def judge(record, /, least): return 'files' in record and least == 2",
        "class Judge:\n    def __call__(self, outputs, least=0): return least == 2\njudge = Judge()",
    ],
)
def test_a_function_is_called_as_its_signature_asks(task: Task, source: str) -> None:
    task.lib("quality/checks.py", source)
    line = task.verify(module(arguments={"least": 2}), annotations={"k": 1}).only
    assert (line["value"], line["error"]) == (True, None)


def test_a_module_finds_the_rest_of_its_package(task: Task) -> None:
    task.lib("quality/__init__.py", "")
    task.lib("quality/limits.py", "LEAST = 2")
    task.lib("quality/words.txt", "a b")
    source = "from .limits import LEAST\nfrom pathlib import Path\n"
    source += "def judge(outputs): return len((Path(__file__).parent / 'words.txt').read_text().split()) == LEAST\n"
    task.lib("quality/checks.py", source)
    assert task.verify(module()).only["value"] is True


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def judge(outputs): return True", "least"),
        ("def other(outputs): return True", "judge"),
        ("import no_such_module", "no_such_module"),
        ("def judge(outputs, least):\n    return 1 / 0", "quality/checks.py, line 2"),
        ("def judge(outputs, least): return 'fine'", "returned str"),
    ],
)
def test_a_modules_fault_is_the_judges_error(task: Task, source: str, said: str) -> None:
    task.lib("quality/checks.py", source)
    line = task.verify(module(arguments={"least": 2})).only
    assert line["status"] == "error"
    assert said in line["error"]


# ---- command ----


def command(text: str, **more: Any) -> dict[str, Any]:
    """A judge that is a shell command."""
    return {"name": "j", "kind": "command", "command": text, **more}


@pytest.mark.parametrize(
    ("shell", "value", "reason"),
    [
        ("test -f made.txt", True, "exit code 0"),
        ("cat made.txt; exit 3", False, "second"),
        ("echo broken >&2; false", False, "broken"),
        ("cat", True, "exit code 0"),
        ("grep -c first made.txt | grep -x 1", True, "1"),
    ],
)
def test_a_commands_exit_code_is_the_verdict_and_its_last_line_the_reason(
    task: Task, shell: str, value: bool, reason: str
) -> None:
    task.made("made.txt", "first\nsecond\n")
    line = task.verify(command(shell)).only
    assert (line["status"], line["value"], line["reason"]) == ("ok", value, reason)


@pytest.mark.parametrize(
    ("shell", "said"),
    [("no-such-program --check", "exit code 127"), ("./data.txt", "exit code 126"), ("kill -9 $$", "exit code -9")],
)
def test_a_command_that_cannot_be_run_is_an_error_not_a_failure(task: Task, shell: str, said: str) -> None:
    task.made("data.txt", "x")
    judged = task.verify(command(shell))
    assert judged.only["status"] == "error"
    assert said in judged.only["error"]
    assert judged.reward is None


def test_a_command_out_of_time_is_ended_with_its_children(task: Task) -> None:
    judged = task.verify(command("sleep 300 & echo $! > pid; wait", timeout=1))
    assert "took longer than 1 s" in judged.only["error"]
    assert wait_until_gone(int((task.workspace / "pid").read_text(encoding="utf-8")))


# ---- builtin ----


def builtin(name: str, **arguments: Any) -> dict[str, Any]:
    """A judge that comes with the product."""
    return {"name": "j", "kind": "builtin", "builtin": name, "arguments": arguments}


@pytest.mark.parametrize(("cost", "passed"), [(0.5, True), (0.25, True), (0.51, False), (0, True)])
def test_the_cost_stays_in_its_budget(task: Task, cost: float, passed: bool) -> None:
    task.said({"type": "result", "total_cost_usd": cost, "result": "done"})
    assert task.verify(builtin("cost_budget", max_cost_usd=0.5)).only["passed"] is passed


def test_a_cost_that_nobody_knows_is_no_pass_and_no_failure(task: Task) -> None:
    judged = task.verify(builtin("cost_budget", max_cost_usd=0.5))
    assert judged.only["status"] == "error"
    assert "nobody knows" in judged.only["error"]


@pytest.mark.parametrize(
    ("made", "read"),
    [
        (call("t", "Read", file_path="/workspace/docs/setup.md"), True),
        (call("t", "Read", file_path="docs/./setup.md"), True),
        (call("t", "Read", file_path="/workspace/old-docs/setup.md"), False),
        (call("t", "Read", file_path="/workspace/docs/setup.md.bak"), False),
        (call("t", "Grep", pattern="x", path="docs/setup.md"), True),
        (call("t", "Bash", command="head -5 /workspace/docs/setup.md | wc -l"), True),
        (call("t", "Bash", command="cat ./docs/setup.md"), True),
        (call("t", "Bash", command="cat mydocs/setup.md docs/setup.md.bak docs/setup.md/x"), False),
        (call("t", "Write", file_path="/workspace/docs/setup.md", content="x"), False),
    ],
)
def test_a_document_is_consulted_by_reading_it(task: Task, made: dict[str, Any], read: bool) -> None:
    task.said(assistant(made), result("t", "text"))
    assert task.verify(builtin("documents_consulted", paths=["docs/setup.md"])).only["value"] is read


def test_a_read_that_was_denied_or_failed_consulted_nothing(task: Task) -> None:
    task.said(
        assistant(call("t1", "Read", file_path="docs/a.md"), call("t2", "Read", file_path="docs/b.md")),
        result("t1", "no", error=True), result("t2", "File does not exist.", error=True),
    )  # fmt: skip
    task.logged(decided("t1", "Read", "deny", reason="no"))
    line = task.verify(builtin("documents_consulted", paths=["docs/a.md", "docs/b.md"])).only
    assert (line["value"], line["reason"]) == (False, "0 of 2 read; not: docs/a.md, docs/b.md")


def test_a_cases_own_documents_come_from_its_annotations(task: Task) -> None:
    task.said(assistant(call("t", "Read", file_path="a.md")), result("t", "text"))
    judge = builtin("documents_consulted", annotation="must_read", min_coverage=0.5)
    assert task.verify(judge, annotations={"must_read": ["a.md", "b.md"]}).only["value"] is True
    assert task.verify(judge, annotations={"must_read": ["c.md", "b.md"]}).only["value"] is False
    assert "must_read" in task.verify(judge, annotations={}).only["error"]


@pytest.mark.parametrize(
    ("shown", "decision", "allowed", "passed"),
    [
        ("fine", "none", False, True),
        ("Exit code 1\nno such file", "none", False, True),
        ("<tool_use_error>InputValidationError: command is missing</tool_use_error>", "none", False, False),
        ("<tool_use_error>Error: No such tool available: Bsh</tool_use_error>", "none", True, False),
        ("Not permitted here: pushes", "deny", False, False),
        ("Not permitted here: pushes", "deny", True, True),
    ],
)
def test_tool_calls_are_valid_when_they_could_be_run(
    task: Task, shown: str, decision: str, allowed: bool, passed: bool
) -> None:
    task.said(assistant(call("t", "Bash", command="x")), result("t", shown, error=shown != "fine"))
    task.logged(decided("t", "Bash", decision))
    line = task.verify(builtin("tool_calls_valid", allow_denied=allowed)).only
    assert (line["status"], line["value"]) == ("ok", passed)


def test_a_model_judge_waits_and_so_does_the_reward(task: Task) -> None:
    judged = task.verify(check("return True"), {"name": "quality", "kind": "prompt", "prompt": "Good?"})
    assert judged.judge("quality")["status"] == "pending"
    assert (judged.reward, judged.report["unjudged"], judged.code) == (None, ["quality"], 1)


def test_a_broken_judge_does_not_stop_the_others(task: Task) -> None:
    judged = task.verify(check("return 1/0", "a"), {"name": "b", "kind": "no-such-kind"}, check("return True", "c"))
    assert [line["status"] for line in judged.report["judges"]] == ["error", "error", "ok"]


def test_every_judge_has_its_time(task: Task) -> None:
    line = task.verify(check("import time\ntime.sleep(0.2)\nreturn True")).only
    assert 0.2 <= line["seconds"] < DEADLINE


@pytest.mark.pythons
def test_the_verifier_works_on_every_python(task: Task, pythons: tuple[Path, ...]) -> None:
    task.made("out.txt", "Größe\n")
    (task.workspace / "e").mkdir()
    make_deep(task.workspace / "e", 1050, "d")
    task.lib("checks.py", "def judge(outputs, least): return len(outputs['files']['out.txt']) >= least\n")
    judges = [
        check("import re\nreturn bool(re.search('Größe', outputs['main_content'])), 'Größe'"),
        command("test -s out.txt"),
        {"name": "m", "kind": "module", "module": "checks", "function": "judge", "arguments": {"least": 2}},
        builtin("tool_calls_valid"),
    ]
    for at, judge in enumerate(judges):
        judge["name"] = f"j{at}"
    for python in pythons:
        (task.logs / "reward.json").unlink(missing_ok=True)
        (task.logs / "reward.json").mkdir()
        make_deep(task.logs / "reward.json", 1050)
        judged = task.verify(*judges, python=python, env={"LC_ALL": "C", "PYTHONUTF8": "0"})
        assert (judged.reward or {}).get("reward") == 1.0, (python, judged)
        assert judged.judge("j0")["reason"] == "Größe"
