"""Probes through Claude Code in sealed containers: what the replayed calls get is what the program gets."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harbor_tasks.errors import AuthorError
from harbor_tasks.proving import ProbeReport, prove
from harbor_tasks.proving.through import Passage
from harbor_tasks.resources import resource
from harbor_tasks.tasks.build import build
from harbor_tasks.tasks.manifest import read_manifest

pytestmark = [pytest.mark.claude, pytest.mark.engine]

EXAMPLES = sorted(path.parent.name for path in resource("examples").glob("*/eval.yaml"))
WHOLE = "support-desk"
"""The example with the standard probes on top of its own calls."""


@pytest.fixture(scope="module")
def reports(base_image: str, claude_bin: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ProbeReport]]:
    """All probes of all examples; the images made for them go in the end."""
    before, builds, found = listed(), [], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARBOR_PACK_BASE", base_image)
        for name in EXAMPLES:
            builds.append(build(resource("examples", name), tmp_path_factory.mktemp("through") / name).out)
            one = prove(
                builds[-1], environments=("docker",), agent="claude-code", modes=("bypassPermissions",),
                standard=name == WHOLE,
            )  # fmt: skip
            found.append(one)
    yield found
    for image in {read_manifest(built).image for built in builds} & (listed() - before):
        subprocess.run(["docker", "rmi", "--force", image], capture_output=True, check=True)


def listed() -> set[str]:
    command = ["docker", "images", "--format", "{{.Repository}}:{{.Tag}}"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def spot(reports: list[ProbeReport], where: str) -> Passage:
    [found] = [seen for seen in reports[EXAMPLES.index(WHOLE)].through if seen.name.endswith(f": {where}")]
    return found


def test_the_program_gives_the_decision_that_replayed_calls_get_for_every_probe(reports: list[ProbeReport]) -> None:
    for name, report in zip(EXAMPLES, reports, strict=True):
        seen = {passage.call: passage for passage in report.through}
        assert report.sealed == {"docker": True}
        assert [(passage.name, passage.notes) for passage in report.through if not passage.ok] == []
        compared = 0
        for row in report.rows:
            passage = seen[row.call]
            if passage.refusal:  # no call came of it
                assert passage.hook is False, (name, row.name)
                continue
            # a deny by a permission rule is none of the hook's
            decision = "deny" if passage.decision == "none" and passage.entered is False else passage.decision
            assert (decision, passage.environment) == (row.got, "docker"), (name, row.name)
            compared += 1
        assert compared >= len(report.rows) - 1, name
        assert report.exit_code == 0


def test_nothing_that_the_model_starts_gets_at_the_hook(reports: list[ProbeReport]) -> None:
    for what in ("killed", "stopped"):
        seen = spot(reports, f"when the hook is {what}")
        assert (seen.verdict, seen.hook, seen.decision, seen.entered, seen.effect) == ("ok", True, "deny", False, False)
        assert re.fullmatch(r"0 signals reached the hook, [1-9]\d* were refused", seen.notes[0]), seen.notes


def test_a_nested_program_has_no_model_and_no_servers(reports: list[ProbeReport]) -> None:
    seen = spot(reports, "by a nested claude --bare")
    assert (seen.verdict, seen.entered, seen.effect) == ("ok", False, False)
    assert "Not logged in" in seen.notes[0]


def test_denials_hold_after_all_that_the_model_may_do(reports: list[ProbeReport]) -> None:
    for where in ("beside another call", "after cd", "after settings were written", "by a subagent"):
        seen = spot(reports, where)
        assert (seen.hook, seen.decision, seen.entered, seen.verdict, seen.notes) == (True, "deny", False, "ok", ())
    late = spot(reports, "when the hook's time is up")
    assert (late.decision, late.entered, late.read) == ("deny", False, "Not permitted here: it took too long")


def test_a_sandbox_without_a_seal_has_no_place_for_instruments(tmp_path: Path) -> None:
    (tmp_path / "cases" / "c1").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    (tmp_path / "cases" / "c1" / "input.yaml").write_text("prompt: go\n")
    (tmp_path / "eval.yaml").write_text(
        "name: open\ndataset: {path: cases}\nexecution: {prompt: go}\nsandbox: {sealed: false, image: debian:12}\n"
    )
    built = build(tmp_path, tmp_path / "out").out
    with pytest.raises(AuthorError, match="the instruments need the sealed sandbox"):
        prove(built, environments=("docker",), agent="claude-code")
