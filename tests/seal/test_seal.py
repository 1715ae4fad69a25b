"""What `setup` makes of a sandbox with the runtime image: who owns what, who is what, and when it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import write_files

from .kit import GOLD, KEY, Container, built_eval, container, spec

pytestmark = pytest.mark.engine

PREFIX = "/usr/local/lib/harbor-pack/prefix"
PAYLOAD = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_use_id": "t1", "cwd": "/workspace"}
OWNERS = [
    "root:root 755 /opt/harbor-pack",
    "root:interceptor 750 /opt/harbor-pack/hooks",
    "root:interceptor 640 /opt/harbor-pack/hooks/tools.py",
    "root:interceptor 640 /opt/harbor-pack/tool_handlers.yaml",
    "root:interceptor 640 /opt/harbor-pack/input.yaml",
    "root:interceptor 640 /opt/harbor-pack/answers.yaml",
    "root:interceptor 640 /opt/harbor-pack/model.json",
    "root:root 644 /opt/harbor-pack/sealed",
    "root:root 644 /opt/harbor-pack/started",
    "interceptor:interceptor 700 /var/log/harbor-pack",
    "root:root 644 /etc/claude-code/managed-settings.json",
    "root:root 644 /etc/harbor-pack/registered",
    "root:root 644 /etc/harbor-pack/servers",
    "root:root 440 /etc/sudoers.d/harbor-pack",
    "root:agent 750 /logs",
    "root:root 700 /logs/verifier",
    "agent:agent 700 /logs/agent",
    "root:root 700 /tests",
    "root:agent 750 /home/agent",
    "worker:worker 2775 /workspace",
    "worker:worker 2775 /workspace/bin",
    "worker:worker 775 /workspace/bin/run",
    "worker:worker 664 /workspace/attack.py",
]


@pytest.fixture(scope="module")
def task(sandboxes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A built eval with one case, which has a program, a skill and a memory of its own."""
    folder = tmp_path_factory.mktemp("seal")
    case = folder / "eval" / "cases" / "only" / "files"
    own = {"bin/run": "#!/bin/sh\n", ".claude/skills/own/SKILL.md": "own", "CLAUDE.md": "remember"}
    write_files(case, own)
    (case / "bin/run").chmod(0o755)
    write_files(folder / "eval", {".claude/skills/shared/SKILL.md": "shared"})
    env = {"REGION": "north", "MODE": "first", "OPENAI_API_KEY": "${OPENAI_API_KEY:-}"}
    with built_eval(folder, spec(prompt="do it", env=env), {"only": []}) as built:
        yield built


@pytest.fixture(scope="module")
def sealed(task: Path) -> Iterator[Container]:
    """A sealed sandbox that tests look at, and do not change for others."""
    with container(
        task, "only", "-e", f"HARBOR_PACK_MODEL_KEY={KEY}", "-e", "HARBOR_PACK_MODEL_BASE_URL=http://m"
    ) as box:
        box.must("ln -s /etc/passwd /workspace/link; ln -s /etc /workspace/folder")
        done = box.set_up()
        assert (done.code, done.out, done.err) == (0, "", "")
        yield box


def ask(box: Container, command: str, env: str = "") -> str:
    """What the registered hook says to a Bash call, asked as the agent program asks it."""
    payload = {**PAYLOAD, "tool_input": {"command": command}}
    said = box.run(f'{env} {PREFIX} "$(cat /etc/harbor-pack/registered)"', "agent", json.dumps(payload))
    assert said.code == 0, said
    return said.out


# -------------------------------------------------------------------------------------------------------- what it makes


def test_each_file_has_the_owner_and_the_mode_that_keep_the_users_apart(sealed: Container) -> None:
    paths = " ".join(line.split()[2] for line in OWNERS)
    assert sealed.must(f"stat -c '%U:%G %a %n' {paths}").splitlines() == OWNERS


def test_the_policy_and_the_answers_have_left_the_workspace(sealed: Container) -> None:
    found = set(sealed.must("cd /workspace && find . -type f").split())
    assert found == {"./attack.py", "./bin/run", "./CLAUDE.md", "./.claude/skills/own/SKILL.md",
                     "./.claude/skills/shared/SKILL.md"}  # fmt: skip
    assert GOLD in sealed.must("cat /opt/harbor-pack/answers.yaml")


def test_links_in_the_workspace_are_not_followed(sealed: Container) -> None:
    assert sealed.must("stat -c %U:%a /etc/passwd /etc").split() == ["root:644", "root:755"]


def test_the_log_is_empty_before_the_agent_starts(sealed: Container) -> None:
    assert sealed.must("ls -A /var/log/harbor-pack") == ""


def test_skills_and_memory_lie_where_only_root_writes(sealed: Container) -> None:
    assert sealed.must("cd /etc/claude-code/.claude/skills && cat own/SKILL.md shared/SKILL.md ../../CLAUDE.md") == (
        "ownsharedremember"
    )


def test_the_model_of_the_hook_is_in_a_file_of_its_own(sealed: Container) -> None:
    assert json.loads(sealed.must("cat /opt/harbor-pack/model.json")) == {"base_url": "http://m", "api_key": KEY}


# ---------------------------------------------------------------------------------------------------------- who is what


def test_what_the_model_runs_is_worker_with_few_variables_and_no_key(sealed: Container) -> None:
    keys = "ANTHROPIC_API_KEY=k HARBOR_PACK_MODEL_KEY=k OPENAI_API_KEY=k LD_PRELOAD= JUNK=1 LANG=C.UTF-8"
    said = sealed.must(f"REGION=south MODE=x {keys} {PREFIX} 'id -un; umask; env'", "agent").splitlines()
    assert said[:2] == ["worker", "0002"]
    env = dict(line.split("=", 1) for line in said[2:] if "=" in line)
    assert {name for name in env if not name.startswith("SUDO_")} <= {
        "PATH", "HOME", "LANG", "REGION", "MODE", "USER", "LOGNAME", "SHELL", "PWD", "SHLVL", "_", "MAIL", "TERM",
        "HOSTNAME",
    }  # fmt: skip
    assert (env["HOME"], env["REGION"], env["LANG"]) == ("/home/worker", "south", "C.UTF-8")


def test_a_command_keeps_its_words_its_input_and_its_exit_code(sealed: Container) -> None:
    said = sealed.run(f"{PREFIX} 'printf %s \"it'\\''s \\$HOME\"; cat; exit 7'", "agent", "given")
    assert (said.code, said.out) == (7, "it's $HOMEgiven")


def test_the_hook_gets_the_variables_that_handlers_name_and_no_others(task: Path) -> None:
    with container(task, "only") as box:
        assert box.set_up().code == 0
        look = "import os; print(sorted(os.environ.items()), os.getuid())"
        box.must(f"printf '%s\\n' '{look}' > /opt/harbor-pack/hooks/tools.py")
        said = ask(
            box, "true", "MODE=second REGION=north ANTHROPIC_API_KEY=k ANTHROPIC_BASE_URL=http://x PYTHONPATH=/tmp"
        )
    assert said.rstrip().endswith("901")
    assert "('MODE', 'second')" in said
    for name in ("REGION", "ANTHROPIC", "PYTHONPATH", "HARBOR_PACK"):
        assert name not in said


def test_the_hook_decides_as_the_interceptor(sealed: Container) -> None:
    assert ask(sealed, "ls") == ""
    denied = json.loads(ask(sealed, "forbidden thing"))["hookSpecificOutput"]
    assert denied["permissionDecision"] == "deny"
    assert sealed.must("stat -c '%U %a' /var/log/harbor-pack/interceptions.jsonl").split() == ["interceptor", "644"]
    sealed.must("rm /var/log/harbor-pack/interceptions.jsonl")


def test_the_agent_program_is_started_without_the_settings_of_the_project(task: Path) -> None:
    with container(task, "only", "-e", "HARBOR_PACK_MODEL_KEY=k") as box:
        assert box.set_up().code == 0
        program = "/usr/local/lib/harbor-pack/programs/claude-code/claude"
        box.must(f"mkdir -p {program.rpartition('/')[0]}; cat > {program} <<'END'\n"
                 '#!/bin/sh\nfor word; do echo "[$word]"; done; env; umask; git --version; id -un\nEND\n'
                 f"chmod 755 {program}")  # fmt: skip
        said = box.must("claude --permission-mode bypassPermissions -p", "agent")
    words = [line[1:-1] for line in said.splitlines() if line.startswith("[")]
    assert words[words.index("--setting-sources") + 1] == ""
    assert words[-3:] == ["--permission-mode", "bypassPermissions", "-p"]
    assert "--permission-prompt-tool" in words
    assert f"CLAUDE_CODE_SHELL_PREFIX={PREFIX}\n" in said
    assert "CLAUDE_CONFIG_DIR=/home/agent/.claude\n" in said
    assert "HARBOR_PACK_MODEL_KEY" not in said
    assert "\n0002\n" in said


MONITOR = """
umask 002
cd /workspace
printf '#!/bin/sh\\nid -un >/workspace/who\\n' >monitor
chmod 755 monitor
mkdir repo
cd repo
git init -q .
git config core.fsmonitor /workspace/monitor
"""


def test_git_of_the_agent_program_runs_as_worker_whoever_owns_the_repository(sealed: Container) -> None:
    """A repository names programs to run; one that the Write tool made belongs to the agent."""
    sealed.must(MONITOR, "agent")
    sealed.run("cd /workspace/repo && /usr/bin/git status", "agent")
    assert sealed.must("cat /workspace/who; rm /workspace/who").strip() == "agent"
    sealed.run("cd /workspace/repo && PATH=/usr/local/lib/harbor-pack/bin:$PATH git status", "agent")
    assert sealed.run("cat /workspace/who").out.strip() in ("", "worker")
    sealed.must("rm -rf /workspace/repo /workspace/monitor")


def test_the_attack_sees_what_a_user_may_do(sealed: Container) -> None:
    """Asked as the interceptor, the attack must find much: it is not blind."""
    said = sealed.must(
        "cp /workspace/attack.py /var/tmp/attack.py; cd /var/tmp && python3 -I attack.py reach", "interceptor"
    )
    broke = json.loads(said)["broke"]
    assert {f"reading /opt/harbor-pack/{name}" for name in ("answers.yaml", "hooks/tools.py", "model.json")} <= set(
        broke
    )
    assert "words in /opt/harbor-pack/answers.yaml" in broke
    assert "changing /var/log/harbor-pack/interceptions.jsonl" in broke


# -------------------------------------------------------------------------------------------- again, half done, refused


def test_a_second_run_changes_nothing(task: Path) -> None:
    with container(task, "only") as box:
        assert box.set_up().code == 0
        box.must(f"{PREFIX} 'echo mine > /workspace/mine; rm /workspace/bin/run'", "agent")
        before = box.must("find /opt /etc /workspace /logs /home -printf '%p %u %m %T@\\n' | sort")
        assert box.set_up().code == 0
        assert box.must("find /opt /etc /workspace /logs /home -printf '%p %u %m %T@\\n' | sort") == before


@pytest.mark.parametrize("program", ["visudo", "chown", "find", "cp"])
@pytest.mark.parametrize("use", [1, 3])
def test_a_run_that_was_broken_off_is_finished_by_the_next(task: Path, program: str, use: int) -> None:
    with container(task, "only") as box:
        stub = f'#!/bin/sh\necho x >> /count\n[ $(wc -l < /count) = {use} ] && exit 1\nexec {program}.real "$@"\n'
        box.run(f"real=$(command -v {program}); cp $real $real.real && cat > /stub && cat /stub > $real", given=stub)
        first = box.set_up()
        if first.code == 0:  # it is not used so often
            assert int(box.must("wc -l < /count")) < use
            return
        assert box.run("ls /opt/harbor-pack/started /opt/harbor-pack/sealed").code != 0
        assert box.set_up().code == 0
        paths = " ".join(line.split()[2] for line in OWNERS)
        assert box.must(f"stat -c '%U:%G %a %n' {paths}").splitlines() == OWNERS


RULE = "echo 'worker ALL=(root) NOPASSWD: ALL'"
REFUSALS = {
    "no setuid": (("--security-opt", "no-new-privileges"), "true", "forbid setuid programs"),
    "PATH leads into the workspace": (("-e", "PATH=/workspace/bin:/usr/bin:/bin"), "true", "may change /workspace"),
    "PATH leads to what is not there": (("-e", "PATH=/usr/bin:/bin:/home/worker/.local/bin"), "true", "/home/worker"),
    "PATH has no absolute path": (("-e", "PATH=/usr/bin:/bin:"), "true", "no absolute path"),
    "an open folder of programs": ((), "chmod 777 /usr/local/bin", "may change /usr/local/bin"),
    "an open Python": ((), "chmod 777 $(readlink -f /usr/bin/python3)", "/usr/bin/python"),
    "worker in a group of root's": ((), "usermod -aG root worker; chmod 775 /etc", "may change /etc"),
    "sudo for worker": ((), f"{RULE} > /etc/sudoers.d/x; chmod 440 /etc/sudoers.d/x", "may become root"),
    "a rule that is none": ((), "echo nonsense > /etc/sudoers.d/x; chmod 440 /etc/sudoers.d/x", "/etc/sudoers.d/x"),
    "a broken hook": ((), "echo 'raise SystemExit(1)' > /workspace/hooks/tools.py", "the hook does not run"),
    "a hook that says nothing": ((), "echo > /workspace/hooks/tools.py", "the hook cannot use its policy"),
    "broken handlers": ((), "echo '{' > /workspace/tool_handlers.yaml", "the hook cannot use its policy"),
    "no hook": ((), "rm -r /workspace/hooks", "the hook does not run"),
    "no user": ((), "userdel interceptor", "lacks users"),
    "no Python": ((), "mv /usr/bin/python3 /usr/bin/python", "python3"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSALS)
def test_a_sandbox_that_does_not_hold_is_refused(task: Path, what: str) -> None:
    options, change, says = REFUSALS[what]
    with container(task, "only", *options) as box:
        box.must(change)
        said = box.set_up()
        assert said.code != 0
        assert says in said.err, said.err
        assert box.run("ls /opt/harbor-pack/started /opt/harbor-pack/sealed").out == ""


def test_a_workspace_that_holds_the_system_is_refused(task: Path) -> None:
    with container(task, "only") as box:
        said = box.run("cp /workspace/setup /setup; sh /setup /")
        assert said.code != 0
        assert "the model could write it" in said.err
        assert box.must("stat -c %U /etc /usr /bin/sh").split() == ["root"] * 3
