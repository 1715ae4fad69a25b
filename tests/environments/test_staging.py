"""Staging on this machine gives what the task's own `setup` gives in a container, and removes what it must."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.environments.staging import copy_tree, remove_tree, scratch_folder, stage, staged_settings
from harbor_tasks.tasks.manifest import BUILD_DIR, read_manifest

CALLER = {"PATH": os.environ["PATH"]}


def tree(folder: Path) -> dict[str, tuple[str, bytes]]:
    """Every file and empty folder below: its mode and content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = stat.filemode(path.lstat().st_mode)
        if path.is_file():
            found[str(path.relative_to(folder))] = (mode, path.read_bytes())
        elif not any(path.iterdir()):
            found[str(path.relative_to(folder))] = (mode, b"")
    return found


def test_the_workspace_and_the_home_are_those_that_setup_makes(author: Any, tmp_path: Path) -> None:
    skill = author.folder / "eval" / ".claude" / "skills" / "triage"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: triage\ndescription: sorts\n---\n")
    (author.folder / "eval" / "CLAUDE.md").write_text("the project's\n")
    author.handlers({"match": "Uploads", "patterns": ["Bash"], "input_filters": ["upload"]})
    case = author.case(
        "c1", answers_yaml="Who?: me\n", **{"files__a b": "x", "files__.env.sample": "y", "files__CLAUDE.md": "z"}
    )
    (case / "files" / "hooks").mkdir()
    (case / "files" / "hooks" / "run.sh").write_text("#!/bin/sh\n")
    (case / "files" / "hooks" / "run.sh").chmod(0o755)
    (case / "files" / "keep").mkdir()
    out = author.build()

    plain = tmp_path / "plain"
    shutil.copytree(out / "c1" / "environment", plain / "workspace")
    shutil.copytree(out / BUILD_DIR / "layer", plain / "home" / "layer")
    log = plain / "log" / "interceptions.jsonl"
    subprocess.run(["sh", "setup", plain / "workspace", plain / "home", log], cwd=plain / "workspace", check=True)
    folder = tmp_path / "trial"
    folder.mkdir()
    with scratch_folder(folder) as scratch:
        staged = stage(out / "c1", folder, scratch, read_manifest(out), CALLER)
        here, there = tree(staged.workspace), tree(plain / "workspace")
        settings = json.loads(there.pop(".claude/settings.json")[1])
        assert here == there
        own = json.loads(staged.settings().read_text())
        at_home = {name: tree(home) for name, home in (("here", staged.home), ("there", plain / "home"))}
    for name in ("hooks/tools.py", "tool_handlers.yaml", "input.yaml", "answers.yaml"):
        assert at_home["here"][name][1] == at_home["there"][name][1], name
    command = settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"]
    expected = command.replace(str(plain / "home"), str(staged.home)).replace(str(log), str(staged.log))
    assert own["hooks"]["PreToolUse"][0]["hooks"][0]["command"] == expected


def test_a_hook_that_staging_does_not_know_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "settings.json"
    hook = {"type": "command", "command": "python3 hooks/tools.py"}
    source.write_text(json.dumps({"hooks": {"PreToolUse": [{"hooks": [hook]}]}}))
    with pytest.raises(ValueError, match="does not run"):
        staged_settings(source, tmp_path, tmp_path / "log")


def test_places_with_spaces_and_quotes_reach_the_hook_whole(tmp_path: Path) -> None:
    home = tmp_path / 'it\'s a "home"'
    (home / "hooks").mkdir(parents=True)
    (home / "hooks" / "tools.py").write_text("import sys; print(sys.argv[1:])")
    source = tmp_path / "settings.json"
    hook = {"type": "command", "command": 'python3 -I -S -E "$CLAUDE_PROJECT_DIR/hooks/tools.py" --pin x'}
    source.write_text(json.dumps({"hooks": {"PreToolUse": [{"hooks": [hook]}]}}))
    log = home / "the log"
    command = json.loads(staged_settings(source, home, log))["hooks"]["PreToolUse"][0]["hooks"][0]["command"]
    said = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True).stdout
    assert said.strip() == str(["--log", str(log), "--pin", "x"])


def test_copies_keep_modes_links_and_empty_folders_and_share_nothing(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "empty").mkdir(parents=True)
    (source / "run").write_text("x")
    (source / "run").chmod(0o750)
    (source / "link").symlink_to("run")
    (source / "dangling").symlink_to("/nowhere")
    copy_tree(source, tmp_path / "target")
    target = tmp_path / "target"
    assert stat.S_IMODE((target / "run").stat().st_mode) == 0o750
    assert (target / "link").readlink() == Path("run")
    assert (target / "dangling").is_symlink()
    assert (target / "empty").is_dir()
    (target / "run").write_text("other")
    assert (source / "run").read_text() == "x"


def test_a_file_that_replaces_a_link_does_not_write_through_it(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("kept")
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "a").symlink_to(outside)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a").write_text("new")
    copy_tree(tmp_path / "source", tmp_path / "target")
    assert outside.read_text() == "kept"
    assert (tmp_path / "target" / "a").read_text() == "new"


def test_removing_a_tree_follows_no_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "sub").mkdir(parents=True)
    doomed = tmp_path / "doomed"
    (doomed / "locked" / "deep").mkdir(parents=True)
    (doomed / "link").symlink_to(outside)
    (doomed / "locked").chmod(0)
    remove_tree(doomed)
    assert not doomed.exists()
    (tmp_path / "other").symlink_to(outside)
    remove_tree(tmp_path / "other")
    assert (outside / "sub").is_dir()


def test_trees_of_any_depth_are_copied_and_removed(tmp_path: Path) -> None:
    at = str(tmp_path / "source")
    os.mkdir(at)  # noqa: PTH102
    for _ in range(1500):
        at += "/d"
        os.mkdir(at)  # noqa: PTH102
    (Path(at) / "file").write_text("x")
    copy_tree(tmp_path / "source", tmp_path / "copy")
    assert Path(at.replace("/source/", "/copy/"), "file").read_text() == "x"
    for name in ("source", "copy"):
        remove_tree(tmp_path / name)
        assert not (tmp_path / name).exists()


def test_a_file_that_cannot_be_read_is_told_and_the_others_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "source" / "b").mkdir(parents=True)
    for name in ("a", "b/c", "d"):
        (tmp_path / "source" / name).write_text(name)
    whole = shutil.copy2

    def fails(given: Path, place: Path, **more: Any) -> Any:
        if given.name == "c":
            raise PermissionError(13, "Permission denied")  # root is never told so by a file
        return whole(given, place, **more)

    monkeypatch.setattr(shutil, "copy2", fails)
    told: list[tuple[str, str]] = []
    copy_tree(tmp_path / "source", tmp_path / "t", lenient=lambda path, why: told.append((path.name, why)))
    assert told == [("c", "Permission denied")]
    assert sorted(path.name for path in (tmp_path / "t").rglob("*")) == ["a", "b", "d"]
    with pytest.raises(PermissionError):
        copy_tree(tmp_path / "source", tmp_path / "u")


def test_a_scratch_folder_of_another_place_is_not_removed_for_a_note(author: Any, tmp_path: Path) -> None:
    precious = tmp_path / "hp-precious"
    precious.mkdir()
    folder = tmp_path / "trial"
    folder.mkdir()
    (folder / "scratch").write_text(str(precious))
    with scratch_folder(folder) as scratch:
        assert scratch.parent == author.scratch
    assert precious.exists()
    assert not scratch.exists()
