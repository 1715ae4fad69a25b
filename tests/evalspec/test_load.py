"""Loading an eval: where its paths lead, what of the project comes with it, evals as authors write them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec import list_cases, load_eval, network_fault, read_case

Load = Callable[..., Any]
TRACKER = Path(__file__).parent / "evals" / "tracker"
MINIMAL = "name: e\nexecution: {skill: s}\ndataset: {path: cases}\n"


@pytest.fixture
def tracker(tmp_path: Path) -> Path:
    """A project with an eval that has everything that authors use."""
    project = tmp_path / "tracker"
    shutil.copytree(TRACKER, project)
    (project / ".git").mkdir()
    return project


def test_an_eval_as_authors_write_them_loads(tracker: Path) -> None:
    problems = Problems()
    ev = load_eval(tracker / "eval", problems)
    assert ev is not None
    assert [problem.message for problem in problems] == ["unknown key 'agent' in judges[3]"]
    problems = Problems()
    assert (ev.root, ev.project, ev.file) == (tracker / "eval", tracker, tracker / "eval" / "eval.yaml")
    spec = ev.spec
    assert (spec.version, spec.execution.skill, spec.execution.timeout) == ("1.10", "desk:triage", 3600)
    assert spec.execution.env == {
        "TRACKER_SERVER": "${TRACKER_SERVER:-http://127.0.0.1:8931}",
        "TRACKER_TOKEN": "$TRACKER_TOKEN",
        "RETRIES": "08",
    }
    assert ev.not_packed == ("mlflow", "generation")
    assert spec.traces == {"stdout": True, "events": True}
    assert [server.name for server in spec.mcp_servers] == ["tracker", "wiki"]
    assert list(spec.judges[1].score_range or ()) == [1, 5]
    assert spec.judges[4].builtin == "tool_calls_valid"
    cases = [read_case(ev, case, problems) for case in list_cases(ev, problems)]
    assert list(map(str, problems)) == []
    assert [(case.id, case.input["prompt"]) for case in cases if case] == [
        ("case-001", "Triage the crash report"),
        ("case-002", "Triage the wish"),
    ]


def test_every_key_has_its_line(tracker: Path) -> None:
    ev = load_eval(tracker / "eval", Problems())
    assert ev is not None
    lines = (tracker / "eval" / "eval.yaml").read_text().splitlines()
    assert lines[(ev.line("judges", 2, "builtin") or 0) - 1].strip() == "builtin: cost_budget"
    assert lines[(ev.line("inputs", "tools", 1) or 0) - 1].strip().startswith("- match: any HTTP")


def test_the_folder_of_eval_yaml_comes_before_the_project(tracker: Path) -> None:
    for folder in (tracker, tracker / "eval" / "eval"):
        (folder / "prompts").mkdir(parents=True)
        (folder / "prompts" / "block.md").write_text("another")
    problems = Problems()
    ev = load_eval(tracker / "eval", problems)
    assert ev is not None
    at = ("inputs", "tools", 1, "prompt_file")
    assert ev.resolve("eval/prompts/block.md", problems, *at, what="prompt") == tracker / "eval/eval/prompts/block.md"
    # It is said once, although it was asked for twice.
    (warning,) = [str(problem) for problem in problems.warnings if problem.code == "path-twice"]
    assert "inputs.tools[1].prompt_file is " in warning
    assert "both exist" in warning
    assert ev.resolve("prompts/quality.md", problems, "name", what="prompt") == tracker / "eval/prompts/quality.md"


def test_the_current_folder_is_the_project_of_an_eval_without_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "eval.yaml").write_text("name: e\nskill: s\ndataset: {path: eval/cases}\n")
    (tmp_path / "eval" / "cases" / "one").mkdir(parents=True)
    (tmp_path / "eval" / "cases" / "one" / "input.yml").write_text("prompt: x\n")
    monkeypatch.chdir(tmp_path)
    problems = Problems()
    ev = load_eval(Path("eval/eval.yaml"), problems)
    assert ev is not None
    assert ev.project == tmp_path.resolve()
    assert [case.name for case in list_cases(ev, problems)] == ["one"]
    monkeypatch.chdir("/")
    elsewhere = load_eval(tmp_path / "eval", problems)
    assert elsewhere is not None
    assert not problems.errors


def test_paths_stay_in_the_project(load: Load, tmp_path: Path) -> None:
    (tmp_path / "link.md").symlink_to("/etc/hostname")
    judges = [
        {"name": f"j{n}", "prompt_file": path}
        for n, path in enumerate(("link.md", "gone.md", "../x.md", "/etc/x", "."))
    ]
    errors = load(judges=judges).errors
    assert "judges[2].prompt_file must not contain '..'" in errors[0]
    assert "judges[3].prompt_file must be a relative path" in errors[1]
    assert "judges[0].prompt_file leads out of the project" in errors[2]
    assert "judges[1].prompt_file does not exist" in errors[3]
    assert "judges[4].prompt_file is not a file" in errors[4]


def test_a_plugin_folder_named_by_a_dot_is_the_project(tracker: Path) -> None:
    problems = Problems()
    ev = load_eval(tracker / "eval", problems)
    assert ev is not None
    assert ev.resolve(".", problems, "runner", "plugin_dirs", 1, what="plugin") == tracker
    (tracker / "eval" / ".claude-plugin").mkdir()
    assert ev.resolve(".", problems, "runner", "plugin_dirs", 1, what="plugin") == tracker / "eval"


def test_the_skill_at_the_top_level_is_that_of_execution(load: Load) -> None:
    assert load("name: e\nskill: s\ndataset: {path: c}\nexecution:\n").ok.spec.execution.skill == "s"
    assert load("name: e\nskill: s\ndataset: {path: c}\nexecution: {skill: s}\n").ok.spec.execution.skill == "s"
    (error,) = load("name: e\nskill: s\ndataset: {path: c}\nexecution: {skill: t}\n").errors
    assert "eval.yaml:2: skill is 's', but execution.skill is 't'" in error
    (error,) = load("name: e\nskill: s\ndataset: {path: c}\nexecution: {prompt: t}\n").errors
    assert "execution.prompt is mutually exclusive with execution.skill" in error


def test_a_server_of_eval_yaml_wins_over_one_of_the_project(tracker: Path) -> None:
    file = tracker / "eval" / "eval.yaml"
    file.write_text(file.read_text() + "mcp_servers: [{name: wiki, command: mine, env: {N: 1.10}}]\n")
    problems = Problems()
    ev = load_eval(file, problems)
    assert ev is not None
    assert [(server.name, server.command) for server in ev.spec.mcp_servers] == [
        ("wiki", "mine"),
        ("tracker", "python3"),
    ]
    assert ev.spec.mcp_servers[0].env == {"N": "1.10"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"mcpServers": ', ".mcp.json:1: is not valid JSON"),
        ("{}", ".mcp.json:1: must hold a mapping mcpServers"),
        ('{"mcpServers": {"a": 5}}', ".mcp.json:1: mcpServers.a must be a mapping, not 5"),
        (
            '{"mcpServers": {\n "a": {"comand": "x"}}}',
            ".mcp.json:2: unknown key 'comand' in mcpServers.a; did you mean 'command'?",
        ),
        ('{"mcpServers": {\n "a": {"command": "x"},\n "a": {"command": "y"}}}', ".mcp.json:3: duplicate key a"),
        ('{"mcpServers": {"a": {"command": "x", "args": "y"}}}', "mcpServers.a.args must be a list, not 'y'"),
    ],
)
def test_a_malformed_mcp_json_is_an_error(tmp_path: Path, load: Load, text: str, says: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".mcp.json").write_text(text)
    errors = load(MINIMAL).errors
    assert any(says in error for error in errors), errors


def test_an_eval_that_cannot_be_read_is_an_error(tmp_path: Path, load: Load) -> None:
    problems = Problems()
    assert load_eval(tmp_path, problems) is None
    assert load_eval(tmp_path / "other.yaml", problems) is None
    assert [problem.code for problem in problems] == ["no-eval", "no-eval"]
    assert load("").errors == ["eval.yaml: is empty"]
    assert load("- a\n").errors == ["eval.yaml:1: must be a mapping, not a list"]
    assert "eval.yaml:2: is not valid YAML" in load("name: e\nexecution: [\n").errors[0]


def test_eval_yml_is_found_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "eval.yml").write_text(MINIMAL)
    ev = load_eval(tmp_path, Problems())
    assert ev is not None
    assert ev.file.name == "eval.yml"
    (tmp_path / "eval.yaml").write_text(MINIMAL)
    problems = Problems()
    ev = load_eval(tmp_path, problems)
    assert ev is not None
    assert ev.file.name == "eval.yaml"
    assert [str(one) for one in problems.warnings] == [
        f"{tmp_path}/eval.yml: is not read; eval.yaml beside it is; remove one of them"
    ]


def test_duplicate_keys_in_eval_yaml_are_errors(load: Load) -> None:
    (error,) = load(MINIMAL + "inputs:\n  tools:\n  - {match: a}\n  tools:\n  - {match: b}\n").errors
    assert error == "eval.yaml:7: duplicate key tools (line 7, first at line 5); keep one of them"


def test_the_handlers_file_is_known(load: Load, tmp_path: Path) -> None:
    assert load(MINIMAL).ok.handlers_file is None
    (tmp_path / "tool_handlers.yaml").write_text("handlers: []\n")
    assert load(MINIMAL).ok.handlers_file == tmp_path / "tool_handlers.yaml"


@pytest.mark.parametrize(
    ("agent", "refused"), [("claude-code", True), ("codex", True), ("oracle", False), ("replay", False)]
)
def test_an_agent_with_a_model_needs_a_network(load: Load, agent: str, refused: bool) -> None:
    sandbox = load(sandbox={"network": "none"}).ok.spec.sandbox
    assert ("sandbox.network" in network_fault(sandbox, agent)) == refused
    assert not network_fault(load(sandbox={"network": "model"}).ok.spec.sandbox, agent)


RULES = "handlers: []\n"


@pytest.mark.parametrize(
    "path",
    ["tool_handlers.yml", "tool_handlers.json", "tool-handlers.yaml", "cases/tool_handlers.yaml",
     "hooks/tool_handlers.yaml", "../tool_handlers.yaml", "../.claude/tool_handlers.yml"],
)  # fmt: skip
def test_handlers_that_would_not_be_read_are_an_error_that_names_the_right_place(tmp_path: Path, path: str) -> None:
    (tmp_path / ".git").mkdir()
    root = tmp_path / "eval"
    (root / "cases").mkdir(parents=True)
    (root / "eval.yaml").write_text(MINIMAL)
    wrong = Path(os.path.normpath(root / path))
    wrong.parent.mkdir(exist_ok=True)
    wrong.write_text(RULES)

    def said() -> list[tuple[str, str]]:
        problems = Problems()
        load_eval(root, problems)
        return [(problem.level, str(problem)) for problem in problems]

    [(level, text)] = said()
    assert level == "error"
    assert text.startswith(f"{wrong}: is not read: its rules would not be applied; handlers are read from ")
    assert f"{root}/tool_handlers.yaml alone" in text
    (root / "tool_handlers.yaml").write_text(RULES)
    [(level, text)] = said()
    assert (level, text.partition(":")[0]) == ("warning", str(wrong))


@pytest.mark.parametrize("beside", ["eval.yaml", "eval.yml", "hooks/tools.py"])
def test_handlers_of_another_eval_and_those_of_an_agent_are_not_meant(tmp_path: Path, beside: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "hooks").mkdir()
    (tmp_path / beside).write_text(MINIMAL)
    (tmp_path / "tool_handlers.yaml").write_text(RULES)
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/eval.yaml").write_text(MINIMAL)
    problems = Problems()
    assert load_eval(tmp_path / "inner", problems) is not None
    assert list(problems) == []
