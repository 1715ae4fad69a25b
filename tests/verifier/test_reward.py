"""The reward: how judges become one number, when there is none, and that nobody else writes it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from .kit import Task, check

DEADLINE = 20.0


@pytest.fixture
def task(tmp_path: Path) -> Task:
    """A task whose agent left nothing."""
    return Task(tmp_path)


def judges(**returned: object) -> list[dict[str, Any]]:
    """A check for each name, with what it returns; "error" raises, "skip" is skipped, "model" waits for one."""
    made = []
    for name, value in returned.items():
        special = {
            "error": check("raise ValueError", name),
            "skip": check("return 1", name, **{"if": "False"}),
            "model": {"name": name, "kind": "prompt", "prompt": "?"},
        }
        made.append(special[value] if isinstance(value, str) else check(f"return {value!r}", name))
    return made


@pytest.mark.parametrize(
    ("returned", "reward", "value"),
    [
        ({"a": True, "b": True}, {}, 1.0),
        ({"a": True, "b": False}, {}, 0.0),
        ({"a": 0.5}, {}, 0.5),
        ({"a": 0.5, "b": 1}, {}, 0.75),
        ({"a": 0.5, "b": True}, {}, 0.5),
        ({"a": 0.5, "b": False}, {}, 0.0),
        ({"a": 0.5, "b": 1.0}, {"weights": {"a": 3}}, 0.625),
        ({"a": 0.5, "b": 1.0}, {"weights": {"b": 0}}, 0.5),
        ({"a": 0.5, "b": True}, {"weights": {"b": 1}}, 0.75),
        ({"a": 0.5, "b": False}, {"gate": False}, 0.25),
        ({"a": 0.5, "b": False, "c": False}, {"gate": False, "weights": {"b": 0, "c": 0}}, 0.5),
        ({"a": True, "b": False}, {"gate": False}, 0.5),
        ({"a": True, "b": False, "c": 0.25}, {"judge": "c"}, 0.25),
        ({"a": True, "b": False, "c": 0.25}, {"judge": "a"}, 1.0),
        ({"a": True, "b": "error"}, {"judge": "a"}, 1.0),
        ({"a": 0.5, "b": "skip"}, {}, 0.5),
        ({"a": True, "b": "skip"}, {"weights": {"b": 1}}, 1.0),
        ({"a": True, "b": 0.5}, {"weights": {"b": 0}}, 1.0),
        ({"a": 0.5, "b": "model"}, {"weights": {"b": 0}}, 0.5),
    ],
)
def test_the_reward_of_what_the_judges_said(
    task: Task, returned: dict[str, object], reward: dict[str, Any], value: float
) -> None:
    judged = task.verify(*judges(**returned), reward=reward)
    assert judged.reward is not None
    assert judged.reward["reward"] == judged.report["reward"] == pytest.approx(value)
    assert judged.code == 0


@pytest.mark.parametrize(
    ("returned", "reward", "missing"),
    [
        ({}, {}, []),
        ({"a": "skip"}, {}, []),
        ({"a": "skip", "b": True}, {"judge": "a"}, []),
        ({"a": True, "b": "error"}, {}, ["b"]),
        ({"a": False, "b": "error"}, {}, ["b"]),
        ({"a": True, "b": "model"}, {}, ["b"]),
        ({"a": False, "b": "model"}, {}, ["b"]),
        ({"a": "error", "b": "model"}, {}, ["a", "b"]),
        ({"a": True, "b": "error"}, {"weights": {"b": 0}}, ["b"]),
        ({"a": 0.5}, {"weights": {"a": 0}}, []),
        ({"a": True, "b": "model"}, {"judge": "b"}, ["b"]),
    ],
)
def test_without_a_verdict_that_it_needs_there_is_no_reward_and_never_a_zero(
    task: Task, returned: dict[str, object], reward: dict[str, Any], missing: list[str]
) -> None:
    judged = task.verify(*judges(**returned), reward=reward)
    assert (judged.reward, judged.report["reward"], judged.report["unjudged"]) == (None, None, missing)
    assert judged.code == 1


def test_an_error_of_a_judge_that_cannot_gate_and_does_not_weigh_is_no_hindrance(task: Task) -> None:
    broken = check("raise ValueError", "b", feedback_type="float")
    judged = task.verify(check("return 0.5", "a"), broken, reward={"weights": {"b": 0}})
    assert judged.reward == {"a": 0.5, "reward": 0.5}


def test_each_number_is_normalised_by_its_own_range(task: Task) -> None:
    judged = task.verify(check("return 4", "a", score_range=[1, 5]), check("return -10", "b", score_range=[-10, 10]))
    assert judged.reward == {"a": 0.75, "b": 0.0, "reward": 0.375}
    assert [line["value"] for line in judged.report["judges"]] == [4, -10]


def test_reward_json_is_flat_and_finite_and_a_judge_named_reward_does_not_replace_the_reward(task: Task) -> None:
    judged = task.verify(
        check("return 0.25", "reward"), check("return 0.75", "b"), check("return 1", "c", **{"if": "0"})
    )
    assert judged.reward == {"reward": 0.5, "b": 0.75}


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_the_results_can_be_read_by_whoever_collects_them(task: Task, umask: int) -> None:
    old = os.umask(umask)
    try:
        task.verify(check("return True"))
    finally:
        os.umask(old)
    modes = {path.name: path.stat().st_mode & 0o777 for path in task.logs.iterdir()}
    assert modes == {"judges.json": 0o644, "reward.json": 0o644}


# ---- steps ----


def test_a_step_before_the_last_lets_the_run_go_on_but_claims_no_reward(task: Task) -> None:
    for these in ((), judges(a="model"), judges(a="skip")):
        judged = task.verify(*these, final=False)
        assert (judged.reward, judged.report["reward"], judged.code) == ({}, None, 0)
    assert task.verify(*judges(a=0.5, b="model"), final=False).reward == {"a": 0.5}


def test_a_step_before_the_last_has_the_reward_of_its_own_judges(task: Task) -> None:
    assert (task.verify(*judges(a=0.5), final=False).reward or {})["reward"] == 0.5
    assert task.verify(*judges(a=0.5, b="error"), final=False).reward is None


# ---- forging ----


def plant(logs: Path, how: str) -> None:
    """What an agent leaves in the verifier's folder."""
    for name in ("reward.json", "reward.txt", "judges.json"):
        place = logs / name
        if how == "file":
            place.write_text('{"reward": 1.0}', encoding="utf-8")
        elif how == "folder":
            (place / "deep").mkdir(parents=True)
            (place / "deep" / "file").touch()
        elif how == "link":
            place.symlink_to(logs.parent / f"elsewhere-{name}")
        elif how == "link to a folder":
            (logs.parent / "folder").mkdir(exist_ok=True)
            place.symlink_to(logs.parent / "folder")
        else:
            os.mkfifo(place)


@pytest.mark.parametrize("how", ["file", "folder", "link", "link to a folder", "pipe"])
@pytest.mark.parametrize(("returned", "reward"), [({"a": False}, {"a": 0.0, "reward": 0.0}), ({"a": "error"}, None)])
def test_what_was_planted_changes_nothing(
    task: Task, how: str, returned: dict[str, object], reward: dict[str, float] | None
) -> None:
    plant(task.logs, how)
    judged = task.verify(*judges(**returned))
    assert judged.reward == reward
    assert not os.path.lexists(task.logs / "reward.txt")
    assert os.path.lexists(task.logs / "reward.json") is (reward is not None)
    assert not [path for path in task.logs.parent.glob("elsewhere-*") if path.exists()]
    assert len([note for note in judged.report["notes"] if "was there before" in note]) == 3


def test_what_a_judge_writes_into_the_folder_does_not_stay(task: Task) -> None:
    code = (
        "import os\nfor n in ('reward.json', 'reward.txt'):\n    os.makedirs(os.path.join(arguments['logs'], n, 'x'))\n"
    )
    judged = task.verify(check(code + "return False", arguments={"logs": str(task.logs)}))
    assert judged.reward == {"j": 0.0, "reward": 0.0}
    assert not (task.logs / "reward.txt").exists()


def test_the_reward_stands_although_a_process_keeps_planting(task: Task) -> None:
    """Not sealed: nobody ends the process, but it cannot make the verifier fail."""
    loop = 'while :; do echo 1 > "$0/reward.txt"; mkdir -p "$0/judges.json"; done 2>/dev/null'
    process = subprocess.Popen(["sh", "-c", loop, str(task.logs)], start_new_session=True)
    try:
        judged = task.verify(*judges(a=False))
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert judged.reward == {"a": 0.0, "reward": 0.0}


# ---- the verifier's own faults ----


def test_judges_json_is_written_when_the_configuration_is_missing_or_broken(task: Task) -> None:
    for content in (None, "{", "[]", '{"judges": [{}]}', '{"judges": 3}'):
        config = task.tests / "judges.json"
        config.unlink(missing_ok=True)
        if content is not None:
            config.write_text(content, encoding="utf-8")
        done = subprocess.run(task.command(), capture_output=True, text=True, timeout=60, check=False)
        judged = task.result(done.returncode, done.stderr)
        assert (judged.code, judged.reward) == (2, None), content
        assert judged.report["error"], content
        assert "verifier:" in judged.stderr


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lambda place: None, "gone"),
        (lambda place: place.write_text("yes"), "no folder"),
        (lambda place: place.symlink_to("elsewhere"), "a link"),
        (lambda place: place.symlink_to("/nowhere"), "a link"),
    ],
    ids=["removed", "a file", "a link", "a dangling link"],
)
def test_an_agent_that_removed_its_workspace_is_judged_on_an_empty_one(task: Task, spoil: Any, what: str) -> None:
    (task.home / "started").write_bytes(b"")
    outside = task.workspace.parent / "elsewhere"
    outside.mkdir()
    (outside / "done.txt").write_text("yes")
    task.workspace.rmdir()
    time.sleep(0.02)  # the grain of the clock of files
    spoil(task.workspace)
    seen = check("return outputs['files'] == {} and outputs['deleted_files'] == ['a.txt']", "empty")
    (task.tests / "initial.json").write_text(json.dumps({"a.txt": "0" * 64}))
    here = {"name": "here", "kind": "command", "command": 'test "$(pwd -P)" = ' + f"'{task.workspace}' && touch x"}
    judged = task.verify(seen, here, outputs=[{"path": "."}])
    assert judged.reward == {"empty": 1.0, "here": 1.0, "reward": 1.0}, judged.report
    assert f"the workspace is {what}: judged on an empty one" in judged.report["notes"]
    assert not (outside / "x").exists()


def test_a_judge_that_removes_the_workspace_keeps_none_from_its_verdict(task: Task) -> None:
    """As does a program of the agent's that it starts."""
    remove = {"name": "first", "kind": "command", "command": 'rm -rf "$PWD"'}
    assert task.verify(remove, check("return True", "second")).reward == {"first": 1.0, "second": 1.0, "reward": 1.0}


def test_a_workspace_that_was_a_link_from_the_beginning_is_one(task: Task) -> None:
    task.workspace.rename(task.workspace.with_name("real"))
    task.workspace.symlink_to("real")
    time.sleep(0.02)
    (task.home / "started").write_bytes(b"")
    task.made("done.txt", "yes")
    assert task.verify(check("return 'done.txt' in outputs['modified_files']")).reward == {"j": 1.0, "reward": 1.0}


def test_a_verifier_that_is_ended_from_outside_says_so_and_ends_its_judge(task: Task) -> None:
    code = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(300)"
    (task.tests / "judges.json").write_text(json.dumps({"judges": [check(code)]}), encoding="utf-8")
    process = subprocess.Popen(task.command(), stderr=subprocess.PIPE, text=True)
    limit = time.monotonic() + DEADLINE
    pid = task.workspace / "pid"
    while not (pid.is_file() and pid.read_text(encoding="utf-8")):
        assert time.monotonic() < limit
        time.sleep(0.05)
    process.terminate()
    _, stderr = process.communicate(timeout=DEADLINE)
    judged = task.result(process.returncode, stderr)
    assert (judged.code, judged.reward) == (2, None)
    assert "SIGTERM" in judged.report["error"]
    assert not Path(f"/proc/{pid.read_text(encoding='utf-8')}").exists()


def test_the_folder_for_the_results_is_made(task: Task) -> None:
    task.logs.rmdir()
    assert task.verify(*judges(a=True)).reward == {"a": 1.0, "reward": 1.0}


def test_names_and_reasons_of_any_kind_are_kept_but_for_halves_of_pairs(task: Task) -> None:
    name = "Größe \u2028 \x1b[31m"
    judged = task.verify(check("return True, '\\ud83d\\ude00 \\ud800 \\x1b[0m ü'", name), env={"LC_ALL": "C"})
    assert judged.judge(name)["reason"] == "\U0001f600 \ufffd \x1b[0m ü"
    assert judged.reward == {name: 1.0, "reward": 1.0}
