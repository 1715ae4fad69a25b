"""The script as text: one file for Python 3.8 with nothing but the standard library, and no part of it left unread."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from harbor_tasks.resources import resource

if TYPE_CHECKING:
    from tests.interceptor.conftest import Hook

SOURCE = resource("interceptor", "tools.py").read_text(encoding="utf-8")
PART = re.compile(r'PARTS\["(\w+)"\] = r\'\'\'\n(.*?\n)\'\'\'\n', re.DOTALL)
PARTS = dict(PART.findall(SOURCE))
PLAIN = PART.sub(r"# part \1\n\2\n\n# end\n", SOURCE)
"""The script with the parts that are compiled late in their places."""


def test_it_is_written_for_python_3_8() -> None:
    ast.parse(PLAIN, feature_version=(3, 8))


def test_it_imports_the_standard_library_alone() -> None:
    names: set[str] = set()
    for node in ast.walk(ast.parse(PLAIN)):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(str(node.module).partition(".")[0])
    assert names <= sys.stdlib_module_names | {"_sha256", "_sha2", "sre_compile"}


def test_the_parts_that_are_compiled_late_keep_the_rules_of_the_rest() -> None:
    assert set(PARTS) == {"input", "env", "shell", "expansions", "variables", "guard", "answers", "model"}
    assert "r'''" not in PLAIN
    pytest.importorskip("ruff", reason="ruff is not installed; make installs it")
    stdin = ["--stdin-filename", "interceptor/tools.py", "-"]
    for rule in (["check"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *rule, *stdin]
        done = subprocess.run(command, input=PLAIN, capture_output=True, encoding="utf-8", cwd=resource(), check=False)
        assert done.returncode == 0, done.stdout + done.stderr


CALLS: dict[str, tuple[str, dict[str, Any], set[str]]] = {
    "another tool": ("Read", {"file_path": "a"}, set()),
    "a checked input": ("pay", {"n": 5}, {"input"}),
    "a checked variable": ("tracker", {}, {"env"}),
    "a plain command": ("Bash", {"command": "cd src && git status -s | head -5; ls 'a b'"}, {"shell"}),
    "a command with an expansion": ("Bash", {"command": 'echo "$(date)"'}, {"shell", "expansions", "guard"}),
    "a question with an override": (
        "AskUserQuestion",
        {"questions": [{"question": "A?", "options": ["b"]}]},
        {"answers"},
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_compiles_the_parts_that_it_needs_and_a_fault_in_one_opens_nothing(call: str, hook: Hook) -> None:
    tool, tool_input, needed = CALLS[call]
    hook.env["URL"] = "http://localhost"
    hook.write(
        {"match": "q", "patterns": ["AskUserQuestion"]},
        {"match": "p", "patterns": ["pay"], "input_checks": [{"field": "n", "op": "le", "value": 5}]},
        {"match": "t", "patterns": ["tracker"], "env_checks": {"URL": {"host_in": ["localhost"]}}},
        {"match": "b", "patterns": ["Bash"], "input_filters": ["^rm"]},
        case_overrides={"A?": "b"},
    )
    script = hook.home / "hooks" / "tools.py"
    expected = "allow" if tool == "AskUserQuestion" else "none"

    def with_faults_in(names: set[str]) -> str:
        def broken(match: re.Match[str]) -> str:
            fault = "this is no Python\n" if match.group(1) in names else ""
            return match.group().replace("r'''\n", "r'''\n" + fault)

        script.write_text(PART.sub(broken, SOURCE), encoding="utf-8")
        return hook.call(tool, tool_input).decision

    assert with_faults_in(set(PARTS) - needed) == expected
    for name in needed:
        assert with_faults_in({name}) == "deny"
