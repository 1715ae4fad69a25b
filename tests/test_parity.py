"""One policy, one decision: the same calls forced on this machine, in a sealed container, and under real Harbor."""

from __future__ import annotations

import json
import secrets
import subprocess
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from harbor_tasks.environments.base import RunOptions
from harbor_tasks.errors import MachineError
from harbor_tasks.proving import ENVIRONMENTS, ProbeReport, prove
from harbor_tasks.resources import resource
from harbor_tasks.tasks.build import build
from harbor_tasks.tasks.manifest import read_manifest

pytestmark = pytest.mark.engine

EXAMPLES = sorted(path.parent.name for path in resource("examples").glob("*/eval.yaml"))


@pytest.fixture(scope="module")
def images(base_image: str) -> Iterator[list[Path]]:
    """Builds of which the images are removed in the end; sandboxes are made from the base image."""
    builds: list[Path] = []
    before = listed()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARBOR_PACK_BASE", base_image)
        yield builds
    names = {read_manifest(built).image for built in builds}
    for name in names & (listed() - before):
        subprocess.run(["docker", "rmi", "--force", name], capture_output=True, check=True)


def listed() -> set[str]:
    command = ["docker", "images", "--format", "{{.Repository}}:{{.Tag}}"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def left() -> str:
    """Containers and networks of probes."""
    found = ""
    for kind in ("ps --all", "network ls"):
        command = ["docker", *kind.split(), "--filter", "label=harbor-pack=1", "--format", "{{.Labels}}"]
        found += subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return found


@pytest.mark.harbor
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_probe_of_an_example_gets_its_decision_everywhere(
    name: str, images: list[Path], tmp_path: Path, harbor_bin: Path
) -> None:
    built = build(resource("examples", name), tmp_path / "out").out
    images.append(built)
    report = prove(built, environments=ENVIRONMENTS, options=RunOptions(harbor=harbor_bin))
    assert [(row.environment, row.name, row.misses) for row in report.rows if not row.ok] == []
    assert report.exit_code == 0
    assert report.sealed == {"local": False, "docker": True, "harbor": True}
    counts = {place: sum(row.environment == place for row in report.rows) for place in ENVIRONMENTS}
    assert len(set(counts.values())) == 1
    assert counts["local"] > len(read_manifest(built).probes)  # the handlers' own cases come on top
    assert read_manifest(built).image not in left()


def desk(folder: Path, **spec: Any) -> Path:
    """A small eval of its own name, built."""
    (folder / "eval" / "cases" / "c1").mkdir(parents=True)
    (folder / "eval" / "cases" / "c1" / "input.yaml").write_text("prompt: go\n")
    data = {"name": f"desk {secrets.token_hex(3)}", "dataset": {"path": "cases"}, "execution": {"prompt": "go"}, **spec}
    (folder / "eval" / "eval.yaml").write_text(json.dumps(data))
    return build(folder / "eval", folder / "out").out


def shown(report: ProbeReport) -> str:
    text = StringIO()
    for part in report.tables():
        Console(file=text, width=200).print(part)
    return text.getvalue()


def test_a_decision_that_differs_is_a_failure_and_shows_in_its_column(images: list[Path], tmp_path: Path) -> None:
    read = {"name": "a file", "tool": "Read", "input": {"file_path": "a.txt"}, "expect": "none"}
    built = desk(tmp_path, permissions={"deny": ["Read(//workspace/**)"]}, probes=[read])
    images.append(built)
    report = prove(built, environments=("local", "docker"))
    here, there = report.rows
    assert (here.got, here.ok) == ("none", True)
    assert (there.got, there.ok) == ("deny", False)
    assert "not the same everywhere: docker deny (Permission to use Read" in there.misses[1]
    assert report.exit_code == 1
    text = shown(report)
    assert "1 probe, 1 missed" in text
    heads = next(line for line in text.splitlines() if "expected" in line)
    assert "local *" in heads
    assert "docker *" not in heads


def test_the_interceptor_answers_and_changes_inputs_in_a_sandbox_as_here(images: list[Path], tmp_path: Path) -> None:
    question = {"question": "Go on?", "header": "Go", "multiSelect": False, "options": ["Yes", "No"]}
    probes = [
        {"name": "ask", "tool": "AskUserQuestion", "input": {"questions": [question]}, "expect": "answer"},
        {"name": "mine", "tool": "mcp__t__file", "input": {"a": 1}, "expect": "none", "env": {"T": "http://localhost"}},
        {"name": "live", "tool": "mcp__t__file", "input": {"a": 1}, "expect": "deny", "env": {"T": "http://live.test"}},
    ]
    handlers = [
        {"match": "questions", "patterns": ["AskUserQuestion"]},
        {"match": "filing", "patterns": ["mcp__t__file"], "env_checks": {"T": {"must_contain": ["localhost"]}}},
        {"match": "notes", "patterns": ["mcp__t__note"], "rewrite": {"text": {"suffix": "!"}}},
    ]
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "tool_handlers.yaml").write_text(
        json.dumps({"handlers": handlers, "case_overrides": {"Go on?": "No"}})
    )
    built = desk(tmp_path, probes=probes, execution={"prompt": "go", "env": {"T": "$NOBODY_SET_THIS"}})
    images.append(built)
    report = prove(built, environments=("local", "docker"))
    assert [row.misses for row in report.rows if not row.ok] == []
    asked = [row for row in report.rows if row.name == "ask"]
    assert [(row.tier, (row.updated_input or {})["answers"]) for row in asked] == [("override", {"Go on?": "No"})] * 2
    own = [row for row in report.rows if row.expected == "the same" and row.environment == "docker"]
    assert {row.got for row in own} >= {"answer", "deny", "none", "rewrite"}


def test_a_sandbox_in_which_the_policy_does_not_work_is_a_fault_of_the_machine(
    images: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "tool_handlers.yaml").write_text(
        json.dumps({"handlers": [{"match": "notes", "patterns": ["mcp__t__note"]}]})
    )
    built = desk(tmp_path)
    images.append(built)
    (built / ".harbor-pack" / "probe" / "hooks" / "tools.py").write_text("import nothing_like_it\n")
    with pytest.raises(MachineError, match=r"probes cannot be asked in docker: environment error: .*hook"):
        prove(built, environments=("docker",))
