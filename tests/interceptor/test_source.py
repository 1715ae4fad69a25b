"""The script as text: one file for Python 3.8 with nothing but the standard library, and no part of it left unread."""

from __future__ import annotations

import ast
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from harbor_tasks.resources import resource

if TYPE_CHECKING:
    from tests.interceptor.conftest import Hook

SOURCE = resource("interceptor", "tools.py").read_text(encoding="utf-8")
PLAIN = SOURCE.replace("MODEL_TIER = r'''\n", "").replace("\n'''\n", "\nMODEL_TIER = ''\n")
"""The script with the part that is compiled late in its place."""


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


def test_the_part_that_is_compiled_late_keeps_the_rules_of_the_rest() -> None:
    assert PLAIN != SOURCE
    assert "\ndef ask_model(" in PLAIN
    pytest.importorskip("ruff", reason="ruff is not installed; make installs it")
    command = [sys.executable, "-m", "ruff", "check", "--stdin-filename", "interceptor/tools.py", "-"]
    done = subprocess.run(command, input=PLAIN, capture_output=True, encoding="utf-8", cwd=resource(), check=False)
    assert done.returncode == 0, done.stdout


def test_a_call_that_asks_no_model_does_not_compile_that_part(hook: Hook) -> None:
    script = hook.home / "hooks" / "tools.py"
    script.write_text(SOURCE.replace("MODEL_TIER = r'''", "MODEL_TIER = r'''\nthis is no Python"), encoding="utf-8")
    hook.write({"match": "q", "patterns": ["AskUserQuestion"]}, case_overrides={"A?": "b"})
    asked = {"question": "A?", "options": ["a", "b"]}
    assert hook.bash("ls").decision == "none"
    assert hook.ask(asked).answers == {"A?": "b"}
    assert hook.ask({**asked, "question": "B?"}).decision == "deny", "nor does a fault in it open anything"
