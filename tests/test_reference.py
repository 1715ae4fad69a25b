"""docs/reference.md names everything that can be written, in its section, with the choices and defaults of the code."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from harbor_tasks.evalspec import dataset, schema
from harbor_tasks.evalspec.rules import BUILTIN_JUDGES, EFFORTS, PERMISSION_MODES, WORKSPACE_MODES
from harbor_tasks.evalspec.schema import Table, keys_of
from harbor_tasks.policy import fields, handlers
from harbor_tasks.resources import script_module

SECTIONS: dict[type[Table], str] = {
    schema.EvalSpec: "eval.yaml", schema.Dataset: "dataset", schema.Workspace: "dataset",
    schema.Execution: "execution", schema.Step: "execution", schema.Runner: "runner", schema.Models: "models",
    schema.HookBudget: "models", schema.Permissions: "permissions", schema.PathRule: "permissions",
    schema.Inputs: "inputs.tools", schema.ToolInput: "inputs.tools", schema.McpServer: "mcp_servers[]",
    schema.Output: "outputs[]", schema.Judge: "judges[]", schema.Reward: "reward", schema.Threshold: "thresholds",
    schema.Hooks: "hooks", schema.HookCommand: "hooks", schema.ProbeSpec: "probes[]", schema.Sandbox: "sandbox",
    schema.Bundle: "bundle", schema.AllowedSecret: "bundle",
}  # fmt: skip
TABLES = sorted(SECTIONS, key=lambda table: table.__name__)
PAGE = Path(__file__).parents[1] / "docs" / "reference.md"


def section(title: str) -> str:
    """The text below a heading, up to the next one."""
    found = re.split(r"^#+ (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))[title]


def row(text: str, key: str) -> str:
    """The line of a table that a key stands in, alone, beside others or below another key."""
    return next(
        (line for line in text.splitlines() if re.match(rf"\|[^|]*`(?:[\w\[\]]+\.)?{key}(?:\.\w+)?`", line)), ""
    )


def choices(annotation: Any) -> set[str]:
    """The words of a `Literal`, however deep it stands in the type."""
    if isinstance(annotation, str):
        return {annotation}
    return {word for part in get_args(annotation) for word in choices(part)}


def test_every_table_has_a_section() -> None:
    known = {one for one in vars(schema).values() if inspect.isclass(one) and issubclass(one, Table)}
    assert known - {Table} == set(SECTIONS)


@pytest.mark.parametrize(
    ("table", "key"), [(table, key) for table in TABLES for key in keys_of(table)],
    ids=lambda part: part if isinstance(part, str) else part.__name__,
)  # fmt: skip
def test_every_key_is_named_with_its_choices_and_its_default(table: type[Table], key: str) -> None:
    text = section(SECTIONS[table])
    if table in (schema.Inputs, schema.Permissions):
        assert key in f"{SECTIONS[table]}\n{text}"
        return
    found = row(text, key)
    assert found, f"{key} is in no table of {SECTIONS[table]}"
    assert [word for word in choices(keys_of(table)[key]) if f"`{word}`" not in found and word != key] == []
    field = next(one for name, one in table.model_fields.items() if (one.alias or name) == key)
    if field.is_required():
        assert "required" in found
    default = field.get_default()
    if isinstance(default, bool):
        assert f"({str(default).lower()})" in found
    elif isinstance(default, (int, float)):
        assert f"({default:g})" in found or f"({default})" in found
    elif isinstance(default, str) and default:
        assert f"(`{default}`)" in found


def test_the_words_of_the_program_are_named() -> None:
    text = section("runner")
    for word in (*PERMISSION_MODES, *WORKSPACE_MODES, *EFFORTS["claude-code"], *EFFORTS["codex"]):
        assert f"`{word}`" in text, word


def test_every_builtin_judge_is_named_with_its_arguments() -> None:
    text, verify = section("judges[]"), script_module("verify")
    assert set(verify.BUILTINS) == set(BUILTIN_JUDGES)
    for name, judge in verify.BUILTINS.items():
        found = row(text, name)
        for argument in [*inspect.signature(judge).parameters.values()][1:]:
            default = argument.default
            shown = "none" if default is None else str(default).lower()
            wanted = f"`{argument.name}`" if default is inspect.Parameter.empty else f"`{argument.name}` ({shown})"
            assert wanted in found, (name, argument.name)


def test_every_key_of_the_handlers_is_named_with_its_choices() -> None:
    text = section("tool_handlers.yaml")
    for key in (*handlers.KNOWN_TOP, *handlers.KNOWN_FIELDS):
        assert row(text, key), key
    for key in handlers.NOT_YET:
        assert f"`{key}`" in text
    for key, words in fields.CHOICES.items():
        found = row(text, key)
        assert f"(`{words[0]}`)" in found
        assert all(f"`{word}`" in found for word in words)


def test_every_check_operator_and_change_is_named() -> None:
    assert [op for op in fields.OPERATORS if not row(section("input_checks"), op)] == []
    assert [check for check in fields.ENV_CHECKS if not row(section("env_checks"), check)] == []
    assert [change for change in fields.REWRITES if f"`{{{change}: " not in section("rewrite")] == []


def test_every_file_of_a_case_and_every_key_of_a_recording_is_named() -> None:
    text = section("A case's files")
    for name in (*dataset.INPUT_NAMES, dataset.ANSWERS, dataset.ANNOTATIONS, dataset.REPLAY, "files/", "solution/"):
        assert f"`{name}`" in text
    assert [place for place in dataset.POLICY_PATHS if f"`{place}`" not in text and "/*" not in place[-2:]] == []
    said = script_module("replay").entry_error({"no such key": 1})
    for key in re.findall(r"\w+", said.partition("(")[2]):
        assert f"`{key}`" in text or key == "or"


def test_what_judges_see_is_named() -> None:
    text = section("judges[]")
    assert [name for name in script_module("judge").KNOWN["outputs"] if f"`{name}`" not in text] == []


@pytest.mark.parametrize("page", ["README.md", "docs/writing-evals.md"])
def test_it_is_linked(page: str, repo_root: Path) -> None:
    assert "reference.md)" in (repo_root / page).read_text(encoding="utf-8")


def test_its_own_links_lead_somewhere(repo_root: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    titles = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in re.findall(r"^#+ (.+)$", text, re.M)}
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert target[1:] in titles if target.startswith("#") else (repo_root / "docs" / target).is_file(), target
