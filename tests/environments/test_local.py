"""A trial on this machine: what the agent gets, what becomes of its calls, what is kept and what is not."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.environments.local import real_python_first
from harbor_tasks.errors import AuthorError, MachineError
from tests.kit import mcp_server

from .kit import DEPLOY, HookModel

DENY_UPLOADS = {"match": "Uploads", "patterns": ["Bash"], "input_filters": ["upload"], "reason": "no uploads"}


def bash(command: str) -> dict[str, Any]:
    return {"tool": "Bash", "input": {"command": command}}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_trial_is_scored_and_kept_and_nothing_else_stays(author: Any) -> None:
    author.handlers(DENY_UPLOADS)
    author.case(replay=[bash("upload done.txt"), bash("echo yes > done.txt")])
    ran = author.run("replay")
    trial = ran.trial
    assert (trial.status, trial.reward, trial.error, trial.exit_code) == ("scored", 1.0, None, 0)
    assert (trial.calls.total, trial.calls.denied) == (2, 1)
    assert [judge.name for judge in trial.judges] == ["done"]
    assert trial.cost_usd == 0
    kept = {path.name for path in ran.trial_folder.iterdir()}
    assert {
        "trial.json",
        "transcript.jsonl",
        "interceptions.jsonl",
        "verifier",
        "workspace",
        "home",
        "agent.log",
    } <= kept
    assert ran.kept("workspace/done.txt") == "yes\n"
    assert "no uploads" in ran.kept("transcript.jsonl")
    assert list(author.scratch.iterdir()) == []


def test_the_forbidden_call_has_no_effect(author: Any) -> None:
    author.handlers(DENY_UPLOADS)
    author.case(replay=[bash("touch upload.log"), bash("echo yes > done.txt")])
    ran = author.run("replay")
    assert not (ran.trial_folder / "workspace" / "upload.log").exists()
    decisions = [json.loads(line)["decision"] for line in ran.kept("interceptions.jsonl").splitlines()]
    assert decisions == ["deny", "none"]  # and nothing of the self-test


def test_the_agent_finds_the_cases_files_and_no_policy_no_answers_no_case_id(author: Any) -> None:
    author.handlers({"match": "Questions", "patterns": ["AskUserQuestion"]}, DENY_UPLOADS)
    look = "find . | sort; echo; cd /; env | sort; cat /proc/$PPID/cmdline | tr '\\0' ' '; hostname"
    author.case(
        "two-reverts", replay=[bash(look)], answers_yaml="Who?: SENTINEL-GOLD\n",
        annotations_yaml="gold: SENTINEL-GOLD\n", files__data__a_txt="a", files___hidden_txt="h",
    )  # fmt: skip
    ran = author.run("replay")
    seen = json.loads(ran.kept("transcript.jsonl").splitlines()[2])["message"]["content"][0]["content"]
    assert seen.split("\n\n")[0].splitlines() == [".", "./_hidden.txt", "./data", "./data/a.txt"]
    assert "two-reverts" not in seen
    assert "SENTINEL-GOLD" not in seen
    assert not [path for path in (ran.trial_folder / "workspace").rglob("*") if "answers" in path.name]


def test_a_question_is_answered_from_the_cases_answers(author: Any) -> None:
    author.handlers({"match": "Questions", "patterns": ["AskUserQuestion"]})
    author.case(
        replay=[{"tool": "AskUserQuestion", "input": {"questions": [DEPLOY]}}],
        answers_yaml="Deploy where?: Production\n",
    )
    ran = author.run("replay")
    assert '"Deploy where?\\"=\\"Production' in ran.kept("transcript.jsonl")
    assert (ran.trial.calls.answered, ran.trial.calls.guessed) == (1, 0)


def test_the_callers_environment_stays_outside(author: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY", "PYTHONPATH", "BASH_ENV", "CLAUDE_CODE_SIMPLE"):
        monkeypatch.setenv(name, "/leaked")
    author.case(solve='echo yes > done.txt; env > env.txt; touch "$HOME/mine" "$TMPDIR/mine"; ls -A "$HOME" > home.txt')
    ran = author.run()
    assert "leaked" not in ran.kept("workspace/env.txt")
    assert "PATH=" in ran.kept("workspace/env.txt")
    assert ran.kept("workspace/home.txt").split() == ["mine"]
    for path in ran.folder.rglob("*"):
        assert not path.is_file() or b"leaked" not in path.read_bytes(), path


def test_the_hooks_model_is_asked_with_the_callers_key_which_commands_do_not_get(
    author: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-SECRET-KEY")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    author.handlers({"match": "Questions", "patterns": ["AskUserQuestion"]})
    author.case(replay=[bash("env"), {"tool": "AskUserQuestion", "input": {"questions": [DEPLOY]}}])
    with HookModel("127.0.0.1") as model:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", f"http://127.0.0.1:{model.server_port}")
        ran = author.run("replay")
    assert [asked["key"] for asked in model.asked] == ["sk-SECRET-KEY"]
    assert (ran.trial.calls.answered, ran.trial.calls.guessed) == (1, 0)
    assert '=\\"Production' in ran.kept("transcript.jsonl")
    for path in ran.folder.rglob("*"):
        assert not path.is_file() or b"SECRET-KEY" not in path.read_bytes(), path


def test_execution_env_is_literal_or_the_callers(author: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_HERE", "t-1")
    monkeypatch.delenv("REGION_HERE", raising=False)
    author.spec["execution"]["env"] = {"MODE": "dry", "TOKEN": "$TOKEN_HERE", "REGION": "${REGION_HERE:-north}"}
    author.case(replay=[bash("echo $MODE $TOKEN $REGION > seen.txt; echo yes > done.txt")])
    assert author.run("replay").kept("workspace/seen.txt") == "dry t-1 north\n"


def test_variables_that_are_not_set_are_said_all_at_once_before_there_is_a_job(
    author: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TOKEN_HERE", "OTHER_HERE"):
        monkeypatch.delenv(name, raising=False)
    author.spec["execution"]["env"] = {"TOKEN": "${TOKEN_HERE}", "OTHER": "$OTHER_HERE"}
    author.case(solve="true")
    with pytest.raises(AuthorError, match=r"TOKEN_HERE(.|\n)*OTHER_HERE"):
        author.run()
    assert not author.jobs.exists()


def test_a_machine_without_python3_on_path_is_said(author: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    author.case(solve="true")
    out = author.build()
    bare = author.folder / "bin"
    bare.mkdir()
    (bare / "bash").symlink_to("/bin/bash")
    monkeypatch.setenv("PATH", str(bare))
    with pytest.raises(MachineError, match="python3 is not on PATH"):
        author.run_built(out)
    assert not author.jobs.exists()


def test_a_version_managers_shim_is_stepped_over(tmp_path: Path) -> None:
    shim = tmp_path / "python3"
    shim.write_text(f'#!/bin/sh\ntest -e "$HOME/choice" && exec {sys.executable} "$@"\n')
    shim.chmod(0o755)
    (tmp_path / "choice").touch()
    caller = {"PATH": f"{tmp_path}:/bin", "HOME": str(tmp_path)}
    assert real_python_first(caller) == f"{Path(sys.executable).parent}:{tmp_path}:/bin"
    with pytest.raises(MachineError, match="does not start"):
        real_python_first({**caller, "HOME": "/nowhere"})


def test_an_agent_that_fails_is_an_error_whose_judges_are_kept(author: Any) -> None:
    author.case(solve="echo yes > done.txt; echo out of paper >&2; exit 3")
    trial = author.run().trial
    assert (trial.status, trial.exit_code) == ("error", 3)
    assert trial.error is not None
    assert trial.error.kind == "agent"
    assert "out of paper" in trial.error.message
    assert trial.judges[0].passed is True


def test_a_timeout_ends_the_whole_tree_and_the_verifier_still_looks(author: Any) -> None:
    author.spec["execution"]["timeout"] = 1
    author.case(solve="echo yes > done.txt; setsid sleep 60 & echo $! > pid; sleep 60")
    ran = author.run()
    trial = ran.trial
    assert trial.error is not None
    assert (trial.status, trial.error.kind) == ("error", "timeout")
    assert trial.judges[0].passed is True
    assert not alive(int(ran.kept("workspace/pid")))


def test_processes_that_the_agent_leaves_are_gone_before_the_verifier_looks(author: Any) -> None:
    check = "import os\npid = int(outputs['files']['pid'])\nreturn not os.path.exists(f'/proc/{pid}')"
    author.spec["outputs"] = [{"path": "pid"}]
    author.spec["judges"] = [{"name": "gone", "check": check}]
    author.case(solve="(setsid sh -c 'echo $$ > pid; exec sleep 60' &); while [ ! -s pid ]; do sleep 0.05; done")
    assert author.run().trial.reward == 1


def test_a_planted_reward_changes_nothing(author: Any) -> None:
    plant = f"""
        for trial in {author.jobs}/*/trials/*; do
            mkdir -p $trial/verifier $trial/verifier.log
            for name in reward.json judges.json; do echo '{{"reward": 99, "judges": []}}' > $trial/verifier/$name; done
        done
        """
    author.case(solve=plant)
    trial = author.run().trial
    assert (trial.status, trial.reward) == ("scored", 0.0)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda task: (task / "environment/hooks/tools.py").unlink(), "exit code 2"),
        (lambda task: (task / "environment/hooks/tools.py").write_text("import nothing_like_it\n"), "exit code 2"),
        (lambda task: (task / "environment/hooks/tools.py").write_text("pass\n"), "no line in its log"),
        (lambda task: (task / "environment/tool_handlers.yaml").write_text('{"handlers": []}'), "tool_handlers.yaml"),
    ],
    ids=["missing", "crashing", "silent", "edited-handlers"],
)
def test_a_hook_that_does_not_work_is_an_environment_error_and_no_agent_runs(
    author: Any, spoil: Any, says: str
) -> None:
    author.handlers(DENY_UPLOADS)
    author.case(solve="echo yes > done.txt")
    out = author.build()
    spoil(out / "c1")
    ran = author.run_built(out)
    trial = ran.trial
    assert trial.error is not None
    assert (trial.status, trial.error.kind, trial.reward) == ("error", "environment", None)
    assert says in trial.error.message
    assert not (ran.trial_folder / "workspace" / "done.txt").exists()
    assert any("changed after it was built" in event.text for event in ran.events)


def test_a_call_that_went_around_the_interceptor_voids_the_trial(author: Any) -> None:
    author.handlers(DENY_UPLOADS)
    switch_off = f"f=sett; for s in {author.jobs}/*/trials/*/home/${{f}}ings.json; do echo '{{}}' > $s; done"
    author.case(replay=[bash(switch_off), bash("touch upload.log; echo yes > done.txt")])
    ran = author.run("replay")
    trial = ran.trial
    assert (ran.trial_folder / "workspace" / "upload.log").exists()  # here nothing holds it: that is what a seal is for
    assert trial.error is not None
    assert (trial.status, trial.error.kind, trial.reward) == ("error", "tampered", None)
    assert "toolu_replay_0002" in trial.error.message


KILLER = """
import os, signal, sys, time
open("killer-is-there", "w").close()
until = time.monotonic() + 60
while time.monotonic() < until:
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            words = open(f"/proc/{pid}/cmdline").read()
            if sys.argv[1] in words and "tools.py" in words:
                os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
"""


def test_a_hook_that_was_killed_fails_open_and_voids_the_trial(author: Any) -> None:
    author.handlers(DENY_UPLOADS)
    ready = "until [ -e killer-is-there ]; do sleep 0.05; done"
    start = f"setsid python3 -I -S killer.py {author.jobs}/ > /dev/null 2>&1 & {ready}"
    author.case(replay=[bash(start), *[bash(f"touch upload.{n}") for n in range(3)]], files__killer_py=KILLER)
    trial = author.run("replay").trial
    assert trial.error is not None
    assert (trial.status, trial.error.kind, trial.reward) == ("error", "tampered", None)


def test_the_policy_is_guarded_against_plain_writes(author: Any) -> None:
    author.handlers(DENY_UPLOADS)
    author.case(replay=[bash("echo '{}' > tool_handlers.yaml"), bash("cat .claude/settings.json")])
    assert author.run("replay").trial.calls.denied == 2


def test_a_judge_that_breaks_is_a_verifier_error_never_a_zero(author: Any) -> None:
    author.spec["judges"].append({"name": "broken", "check": "raise RuntimeError('no scales')"})
    author.case(solve="echo yes > done.txt")
    trial = author.run().trial
    assert trial.error is not None
    assert (trial.status, trial.error.kind, trial.reward) == ("error", "verifier", None)
    assert "no scales" in trial.error.message


def test_an_eval_without_judges_is_unjudged(author: Any) -> None:
    author.spec["judges"] = []
    author.case(solve="true")
    trial = author.run().trial
    assert (trial.status, trial.reward, trial.error) == ("unjudged", None, None)


def test_what_the_agent_made_of_its_workspace_is_kept_and_removed(author: Any) -> None:
    make = "mkfifo pipe; ln -s done.txt link; mkdir -p empty sub; echo x > sub/x; touch exec; chmod 755 exec"
    author.case(solve=f"echo yes > done.txt; {make}; chmod 000 sub")
    ran = author.run()
    workspace = ran.trial_folder / "workspace"
    assert (workspace / "link").readlink() == Path("done.txt")
    assert (workspace / "empty").is_dir()
    assert os.access(workspace / "exec", os.X_OK)
    assert not (workspace / "pipe").exists()
    assert any("pipe" in warning for warning in ran.trial.warnings)
    assert list(author.scratch.iterdir()) == []


def test_permissions_of_the_eval_hold(author: Any) -> None:
    author.spec["permissions"] = {"deny": ["Bash(rm *)", {"path": "secret/", "tools": ["Read"]}]}
    author.case(
        replay=[bash("rm done.txt"), {"tool": "Read", "input": {"file_path": "secret/key"}}],
        files__done_txt="yes", files__secret__key="k",
    )  # fmt: skip
    ran = author.run("replay")
    assert ran.trial.reward == 1
    denied = [line for line in ran.kept("transcript.jsonl").splitlines() if '"is_error":true' in line]
    assert len(denied) == 2
    assert all("has been denied" in line for line in denied)


SERVER = mcp_server(
    "refund", 'os.environ.get("DESK_TOKEN", "none")[:3]',
    does='open("refunds.txt", "a").write(json.dumps(given["arguments"]) + "\\n")',
)  # fmt: skip


def test_an_mcp_server_of_the_project_works_with_a_secret_that_is_not_kept(
    author: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESK_TOKEN_HERE", "tok-SECRET-42")
    author.project({"servers/desk.py": SERVER})
    author.spec["mcp_servers"] = [
        {"name": "desk", "command": "python3", "args": ["servers/desk.py"], "env": {"DESK_TOKEN": "${DESK_TOKEN_HERE}"}}
    ]
    author.handlers(
        {
            "match": "Refunds",
            "patterns": ["mcp__desk__*"],
            "input_checks": [{"field": "amount", "op": "le", "value": 50}],
        }
    )
    refunds = [{"tool": "mcp__desk__refund", "input": {"amount": amount}} for amount in (20, 500)]
    author.case(replay=[*refunds, bash("echo yes > done.txt")])
    ran = author.run("replay")
    assert ran.trial.reward == 1
    assert ran.kept("workspace/refunds.txt") == '{"amount": 20}\n'
    assert '"text":"tok"' in ran.kept("transcript.jsonl")
    for path in ran.folder.rglob("*"):
        assert not path.is_file() or b"tok-SECRET-42" not in path.read_bytes(), path


def test_the_projects_skills_lie_in_the_workspace_under_the_cases_files(author: Any) -> None:
    skill = author.folder / "eval" / ".claude" / "skills" / "triage" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: triage\ndescription: sorts\n---\nSort.\n")
    (author.folder / "eval" / "CLAUDE.md").write_text("the project's\n")
    author.case(
        replay=[{"tool": "Skill", "input": {"skill": "triage"}}, bash("cat CLAUDE.md > done.txt")],
        **{"files__CLAUDE.md": "yes\n"},
    )
    ran = author.run("replay")
    assert "Launching skill: triage" in ran.kept("transcript.jsonl")
    assert ran.trial.reward == 1  # the case's own CLAUDE.md


def test_the_layer_of_a_finished_trial_is_not_kept_twice(author: Any) -> None:
    (author.folder / "eval" / "plug" / "commands").mkdir(parents=True)
    (author.folder / "eval" / "plug" / "commands" / "go.md").write_text("go")
    author.spec["runner"] = {"type": "claude-code", "plugin_dirs": ["plug"]}
    author.case(replay=[{"tool": "Skill", "input": {"skill": "plug:go"}}, bash("echo yes > done.txt")])
    ran = author.run("replay")
    assert "Launching skill" in ran.kept("transcript.jsonl")
    assert not (ran.trial_folder / "home" / "layer").exists()


def two_steps(author: Any, first: str, second: str, on_failure: str = "fail") -> None:
    author.spec["execution"] = {
        "steps": [
            {"id": "draft", "prompt": "draft it", "on_failure": on_failure},
            {"id": "ship", "prompt": "ship it", "env": {"MODE": "live"}},
        ]
    }
    author.spec["judges"] = [
        {"name": "drafted", "check": "return 'draft.txt' in outputs['files']", "step": "draft"},
        {"name": "shipped", "check": "return outputs['files'].get('done.txt') == 'yes live\\n'", "step": "ship"},
        {"name": "one_call", "check": "return len(outputs['tool_calls']) == 1"},
    ]
    author.spec["outputs"] = [{"path": "draft.txt"}, {"path": "done.txt"}]
    author.case(replay={"steps": {"draft": [bash(first)], "ship": [bash(second)]}})


def test_steps_share_a_workspace_and_have_a_verifier_each(author: Any) -> None:
    author.handlers(DENY_UPLOADS)
    two_steps(author, "echo yes > draft.txt", 'echo "$(cat draft.txt) $MODE" > done.txt')
    ran = author.run("replay")
    trial = ran.trial
    assert (trial.status, trial.reward) == ("scored", 1.0)
    assert [(step.id, step.status, step.reward) for step in trial.steps] == [
        ("draft", "scored", 1.0),
        ("ship", "scored", 1.0),
    ]
    assert [judge.name for judge in trial.judges] == ["drafted", "shipped", "one_call"]
    assert trial.calls.total == 2
    assert ran.kept("transcript.jsonl").count('"tool_use"') == 2
    assert ran.kept("interceptions.jsonl").count('"tool_use_id"') == 2
    assert ran.kept("steps/ship/interceptions.jsonl").count('"tool_use_id"') == 1


def failing_first_step(author: Any, on_failure: str) -> Any:
    two_steps(author, "true", "true", on_failure)
    case = author.folder / "eval" / "cases" / "c1" / "solution"
    for step, script in {"draft": "exit 4", "ship": "cat draft.txt"}.items():
        (case / step).mkdir(parents=True)
        (case / step / "solve.sh").write_text(script)
    return author.run().trial


def test_a_failed_step_ends_the_trial_and_the_steps_after_it_are_named(author: Any) -> None:
    trial = failing_first_step(author, "fail")
    assert trial.error is not None
    assert (trial.status, trial.reward) == ("error", None)
    assert "draft" in trial.error.message
    assert [step.status for step in trial.steps] == ["error", "pending"]


def test_a_step_that_may_fail_lets_the_next_one_run(author: Any) -> None:
    trial = failing_first_step(author, "continue")
    assert [step.exit_code for step in trial.steps] == [4, 1]
    assert trial.error is not None
    assert "ship" in trial.error.message


def test_what_this_machine_cannot_hold_is_said_and_stands_in_the_job(author: Any) -> None:
    author.spec["sandbox"] = {"network": "none", "memory_mb": 512}
    author.handlers({"match": "Any command", "patterns": ["Bash"]})
    author.case(solve="echo yes > done.txt")
    ran = author.run()
    assert ran.trial.status == "scored"
    assert len(ran.job.not_enforced) == 3
    [warning] = [event.text for event in ran.events if "not enforced" in event.text]
    assert all(word in warning for word in ("3 rules", "sandbox.network: none", "memory_mb: 512", "Any command"))
    assert any("not sealed" in event.text for event in ran.events)


def test_output_that_is_no_text_is_kept_byte_for_byte(author: Any) -> None:
    author.case(solve="printf 'a\\377\\303' ; printf '\\377oops\\n' >&2; exit 1")
    ran = author.run()
    assert (ran.trial_folder / "stdout.txt").read_bytes() == b"a\xff\xc3"
    assert ran.trial.error is not None
    assert "oops" in ran.trial.error.message
