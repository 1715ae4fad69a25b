"""An agent on this machine does what it can to its own folders: it is judged all the same, and nothing of it stays."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.environments import staging
from harbor_tasks.environments.contained import end_marked

EMPTY = "return outputs['files'] == {}"


def bash(command: str) -> dict[str, Any]:
    return {"tool": "Bash", "input": {"command": command}}


def judged(author: Any, agent: str = "oracle") -> Any:
    """Run; the only trial must be scored, and nothing may be left in the temporary folder."""
    ran = author.run(agent)
    trial = ran.trial
    assert (trial.status, trial.error) == ("scored", None)
    assert list(author.scratch.iterdir()) == []
    return ran


GONE = {
    "removed": 'rm -rf "$PWD"',
    "moved away": 'mv "$PWD" "$PWD.old"',
    "a file": 'd=$PWD; cd /; rm -rf "$d"; echo yes > "$d"',
    "a link": 'd=$PWD; mkdir ../mine; echo yes > ../mine/done.txt; cd ..; rm -rf "$d"; ln -s mine "$d"',
    "all folders": 'cd ..; rm -rf "$PWD"',
    "closed": 'd=$PWD; cd /; rm -rf "$d"; mkdir "$d"; chmod 000 "$d" "${d%/*}"',
}


@pytest.mark.parametrize("command", GONE.values(), ids=GONE.keys())
def test_an_agent_without_a_workspace_is_judged_on_an_empty_one(author: Any, command: str) -> None:
    author.spec["judges"] = [{"name": "empty", "check": EMPTY}, {"name": "here", "command": 'test -z "$(ls -A)"'}]
    author.case(solve=command)
    ran = judged(author)
    assert ran.trial.reward == 1
    if "chmod" not in command:
        assert any("judged on an empty one" in warning for warning in ran.trial.warnings)


def test_the_steps_after_one_that_removed_the_workspace_have_an_empty_one(author: Any) -> None:
    author.spec["execution"] = {"steps": [{"id": "a", "prompt": "a"}, {"id": "b", "prompt": "b"}]}
    author.spec["judges"] = [{"name": "done", "check": "return outputs['files'].get('done.txt') == 'yes\\n'"}]
    plant = 'd=$PWD; s=${d%/*}; cd /; rm -rf "$s"/*; ln -s /dev/full "$s/instruction.md"'
    author.case(replay={"steps": {"a": [bash(plant)], "b": [bash("echo yes > done.txt; touch $HOME/x $TMPDIR/x")]}})
    assert judged(author, "replay").trial.reward == 1


def test_hooks_decide_although_the_workspace_is_gone(author: Any) -> None:
    """They start in the agent's folder; a hook that cannot start would let every call through."""
    author.handlers({"match": "Uploads", "patterns": ["Write"], "reason": "no writes"})
    target = author.folder / "written"
    write = {"tool": "Write", "input": {"file_path": str(target), "content": "x"}}
    author.case(replay=[bash('rm -rf "$PWD"'), write])
    ran = judged(author, "replay")
    assert not target.exists()
    assert ran.trial.calls.denied == 1


def test_nothing_outside_is_removed_through_a_link_in_place_of_the_trials_folders(author: Any) -> None:
    outside = author.folder / "outside"
    names = ("tests/precious", "solution/precious", "verifier-home/precious", "workspace/precious", "user/precious")
    for name in names:
        (outside / name).parent.mkdir(parents=True)
        (outside / name).write_text("kept")
    author.case(solve=f'cd ..; d=$PWD; rm -rf "$d"; ln -s {outside} "$d"')
    judged(author)
    assert {str(p.relative_to(outside)): p.read_text() for p in outside.rglob("*") if p.is_file()} == dict.fromkeys(
        names, "kept"
    )


def test_what_cannot_be_kept_is_named_with_its_reason_and_all_else_is_kept(
    author: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "KEPT_BYTES", 100_000)
    monkeypatch.setattr(staging, "NAMED", 50)
    sock = "import socket; socket.socket(socket.AF_UNIX).bind('b-socket')"
    script = f"""
        truncate -s 4T a-sparse; truncate -s 100001 a-large; mkfifo b-fifo; python3 -c "{sock}"
        echo yes > done.txt; mkdir zz; echo last > zz/last
        touch "$(printf 'caf\\351')" "$(printf 'new\\nline')"
        mkfifo "$(printf 'odd\\351\\033[31m')"
    """
    author.case(solve=script)
    ran = judged(author)
    kept = {os.fsencode(path.name) for path in (ran.trial_folder / "workspace").rglob("*")}
    assert kept == {b"done.txt", b"zz", b"last", b"caf\xe9", b"new\nline"}
    [warning] = [text for text in ran.trial.warnings if "not kept" in text]
    assert "a-sparse (4398046511104 bytes; no more than 100000 bytes of a workspace are kept)" in warning
    assert "a-large (100001 bytes; no more" in warning
    assert "b-fifo (a FIFO)" in warning
    assert "b-socket (a socket)" in warning
    assert "odd\\udce9\\x1b[31m (a FIFO)" in warning
    assert json.loads(ran.kept("trial.json"))["status"] == "scored"


def test_many_files_that_cannot_be_kept_are_counted(author: Any) -> None:
    author.case(solve="for n in $(seq 100 120); do mkfifo p$n; done; echo yes > done.txt")
    [warning] = [text for text in judged(author).trial.warnings if "not kept" in text]
    assert warning.endswith("p104 (a FIFO); and 16 more")


DEEP = """
import os, sys
for _ in range(2500):
    os.mkdir(sys.argv[1])
    os.chdir(sys.argv[1])
    open('file', 'w').close()
"""


def test_a_tree_deeper_than_any_path_is_judged_and_removed(author: Any) -> None:
    make = f'python3 -c "{DEEP}" d; (cd "$HOME" && python3 -c "{DEEP}" folder)'
    glob = {"tool": "Glob", "input": {"pattern": "**/file"}}
    author.case(replay=[bash(make), glob, bash("echo yes > done.txt")])
    ran = judged(author, "replay")
    assert "/d/d/d/file" in ran.kept("transcript.jsonl")
    assert ran.trial.reward == 1
    assert ran.kept("workspace/done.txt") == "yes\n"
    assert any("more than 99 folders deep" in warning for warning in ran.trial.warnings)


def test_what_is_put_in_place_of_the_trials_logs_holds_nothing_up(author: Any) -> None:
    plant = f"""
        echo yes > done.txt
        for trial in {author.jobs}/*/trials/*; do cd $trial
            for name in agent.log stdout.txt transcript.jsonl interceptions.jsonl; do rm -f $name; mkfifo $name; done
            rm -rf home/started; mkfifo home/started; mkdir workspace; ln -s {author.folder}/outside workspace/x
        done
        exit 0
    """
    (author.folder / "outside").mkdir()
    author.case(solve=plant)
    begun = time.monotonic()
    ran = author.run()
    assert time.monotonic() - begun < 60
    assert (ran.trial.status, ran.trial.reward) == ("scored", 1.0)
    assert ran.kept("workspace/done.txt") == "yes\n"
    assert not (ran.trial_folder / "workspace" / "x").exists()


CHANGES = {
    "the handlers": "echo >> tool_handlers.yaml",
    "the handlers, and back": "cp -p input.yaml x; echo > input.yaml; cp -p x input.yaml",
    "the hook": "echo >> hooks/tools.py",
    "the settings": "rm settings.json",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_policy_that_was_changed_meanwhile_voids_the_trial(author: Any, change: str) -> None:
    author.handlers({"match": "Uploads", "patterns": ["Bash"], "input_filters": ["upload"]})
    author.case(solve=f"sleep 0.05; echo yes > done.txt; cd {author.jobs}/*/trials/*/home; {change}")
    trial = author.run().trial
    assert trial.error is not None
    assert (trial.error.kind, trial.reward) == ("tampered", None), trial.error
    assert "was changed while the agent worked" in trial.error.message


def test_the_mark_of_the_agents_start_is_not_the_agents(author: Any) -> None:
    author.spec["outputs"] = []
    author.spec["judges"] = [{"name": "seen", "check": "return list(outputs['modified_files']) == ['done.txt']"}]
    author.case(solve=f"echo yes > done.txt; touch -d 2100-01-01 {author.jobs}/*/trials/*/home/started")
    assert judged(author).trial.reward == 1


def test_the_verifiers_folders_hold_nothing_of_the_agents(author: Any) -> None:
    author.spec["judges"] = [
        {"name": "clean", "command": 'test -z "$(ls -A "$HOME" "$TMPDIR" | grep planted)" && touch "$HOME/x"'}
    ]
    author.case(solve="for d in home tmpdir; do mkdir ../verifier-$d; touch ../verifier-$d/planted; done")
    assert judged(author).trial.reward == 1


def test_a_process_that_hides_its_environment_and_ends_its_watcher_is_found_by_where_it_works(author: Any) -> None:
    escape = """
        echo yes > done.txt
        env -i setsid sh -c 'echo $$ > pid; exec sleep 60' >/dev/null 2>&1 &
        while [ ! -s pid ]; do sleep 0.01; done
        kill -9 $PPID
    """
    author.case(solve=escape)
    ran = author.run()
    pid = int(ran.kept("workspace/pid"))
    try:
        assert ran.trial.error is not None  # a watcher that was ended is no score
        assert not Path(f"/proc/{pid}").exists() or Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    finally:
        if Path(f"/proc/{pid}").exists():
            os.kill(pid, signal.SIGKILL)
    assert list(author.scratch.iterdir()) == []


def test_a_process_elsewhere_is_nobodys_to_end(tmp_path: Path) -> None:
    (tmp_path / "hp-1").mkdir()
    (tmp_path / "hp-2").mkdir()
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", f"cd {tmp_path}/hp-2; echo > ready; exec sleep 60"], {})
    try:
        while not (tmp_path / "hp-2" / "ready").exists():
            time.sleep(0.01)
        assert end_marked(str(tmp_path / "hp-1")) == 0
        assert end_marked(str(tmp_path / "hp-2")) == 1
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
