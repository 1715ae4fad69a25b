"""Inside the runtime image: who may do what, and what the launchers and the prefix make of a command line."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.errors import AuthorError

from .conftest import PREFIX

pytestmark = pytest.mark.engine

HOSTILE = """FROM {base}
RUN cp /usr/bin/python3 /opt/setuid && chmod 6755 /opt/setuid && cp /usr/bin/python3 /opt/capable \\
 && python3 -c "import os, struct; \\
os.setxattr('/opt/capable', 'security.capability', struct.pack('<IIIII', 0x02000001, 1 << 7, 0, 0, 0))" \\
 && echo 'ALL ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/all \\
 && echo 'Defaults !authenticate' >>/etc/sudoers \\
 && mkdir -p /opt/tools && printf '#!/bin/sh\\necho other\\n' >/usr/local/bin/claude && chmod 755 /usr/local/bin/claude
ENV PATH=/opt/tools:$PATH LANG=en_GB.UTF-8
HEALTHCHECK CMD false
"""


class Box:
    """A container of the image, run as its default user."""

    def __init__(self, image: str) -> None:
        command = ["docker", "run", "--detach", "--rm", "--network", "none", "--label", "harbor-pack-test=1", image]
        self.name = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def sh(self, script: str, *words: str, user: str = "root") -> tuple[int, str]:
        """Exit code and all output of a script, run by /bin/sh."""
        command = ["docker", "exec", "--user", user, self.name, "/bin/sh", "-c", script, "sh", *words]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False
        )
        return done.returncode, done.stdout.decode().strip()

    def says(self, script: str, *words: str, user: str = "root") -> str:
        code, output = self.sh(script, *words, user=user)
        assert code == 0, output
        return output


@pytest.fixture(scope="module")
def box(
    base_image: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest, sdk: Any
) -> Iterator[Box]:
    """A runtime on a base that tries to keep ways to other users open."""
    from harbor_tasks.images import ensure_image
    from harbor_tasks.tasks.build import build

    folder = tmp_path_factory.mktemp("hostile")
    (folder / "cases/one").mkdir(parents=True)
    (folder / "cases/one/input.yaml").write_text("prompt: x\n")
    (folder / "eval.yaml").write_text(
        f"name: {PREFIX} hostile\ndataset: {{path: cases}}\nexecution: {{prompt: x}}\n"
        "judges: [{name: any, check: return True}]\nsandbox: {dockerfile: image/Dockerfile, workdir: /srv/app}\n"
    )
    (folder / "image").mkdir()
    (folder / "image/Dockerfile").write_text(HOSTILE.format(base=base_image))
    build(folder, folder / "out")
    found = Box(ensure_image(folder / "out", sdk).tag)
    yield found
    subprocess.run(["docker", "rm", "--force", found.name], capture_output=True, check=False)


def test_sudo_is_the_only_program_that_changes_its_user(box: Box) -> None:
    assert box.says("find / -xdev -type f -perm /6000") == "/usr/bin/sudo"
    listing = "import os; print(os.listxattr('/opt/capable'), oct(os.stat('/opt/setuid').st_mode)[-4:])"
    assert box.says('python3 -c "$1"', listing) == "[] 0755"


def test_the_users_are_apart_and_none_has_a_way_to_another(box: Box) -> None:
    assert box.says("id agent; id worker; id interceptor; id services").splitlines() == [
        "uid=903(agent) gid=903(agent) groups=903(agent),902(worker)",
        "uid=902(worker) gid=902(worker) groups=902(worker)",
        "uid=901(interceptor) gid=901(interceptor) groups=901(interceptor)",
        "uid=904(services) gid=904(services) groups=904(services),902(worker)",
    ]
    for user in ("agent", "worker", "interceptor", "services"):
        for target in ("root", "agent", "worker", "interceptor", "services"):
            code, output = box.sh(f"sudo -n -u {target} true", user=user)
            assert code != 0, f"{user} became {target}"
            assert "not in the sudoers file" in output or "password is required" in output
    assert box.sh("su -c true", user="worker")[0] != 0


def test_the_folders_of_the_seal_belong_to_those_who_may_see_them(box: Box) -> None:
    stat = "stat -c '%n %U:%G %a' /opt/harbor-pack /var/log/harbor-pack /etc/harbor-pack /etc/claude-code /home/agent"
    assert box.says(f"{stat} /home/worker /workspace /usr/local/lib/harbor-pack/prefix").splitlines() == [
        "/opt/harbor-pack root:root 755", "/var/log/harbor-pack interceptor:interceptor 700",
        "/etc/harbor-pack root:root 755", "/etc/claude-code root:root 755", "/home/agent agent:agent 700",
        "/home/worker worker:worker 2770", "/workspace worker:worker 2775",
        "/usr/local/lib/harbor-pack/prefix root:root 755",
    ]  # fmt: skip
    written = box.says("find /usr/local/lib/harbor-pack /etc/sudoers /etc/sudoers.d -perm /022 ! -type l")
    assert written == ""
    assert box.says("cat /usr/local/lib/harbor-pack/runtime").isdigit()


def test_every_user_has_the_systems_python_with_yaml_and_git(box: Box) -> None:
    for user in ("agent", "worker", "interceptor"):
        box.says("/usr/bin/python3 -I -c 'import yaml' && git --version", user=user)


def test_it_stops_at_once_and_starts_in_the_evals_workdir_whatever_the_base_says(box: Box) -> None:
    image = ["docker", "inspect", "--format", "{{.Config.WorkingDir}} {{.Config.StopSignal}} {{.Config.Healthcheck}}"]
    said = subprocess.run([*image, box.name], capture_output=True, text=True, check=True).stdout.split()
    assert said[:2] == ["/srv/app", "SIGKILL"]
    assert "true]" in said[3]  # and not NONE, which `docker compose up --wait`, and so Harbor, takes for a fault
    assert box.says("echo $LANG; echo $PATH").splitlines() == [
        "en_GB.UTF-8", "/opt/tools:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    ]  # fmt: skip


def test_no_package_manager_of_the_agents_is_left(box: Box) -> None:
    assert box.sh("command -v npm || command -v node")[0] != 0


def test_an_agent_that_is_not_in_the_image_is_said_by_its_launcher(box: Box) -> None:
    for launcher, agent in (("claude", "claude-code"), ("codex", "codex")):
        code, output = box.sh(f"{launcher} --version", user="agent")
        assert code == 127
        assert f"harbor-pack image EVAL --agent {agent}" in output


@pytest.fixture
def program(box: Box) -> Iterator[Callable[[str, str], None]]:
    """Puts programs that tell how they were started where the launchers look, and settings as `setup` writes them."""
    tell = (
        '#!/bin/sh\nfor a; do printf "[%s]" "$a"; done\necho\nenv | grep -E "SHELL_PREFIX|HARBOR_PACK|^KEEP" | sort\n'
    )
    home = "/usr/local/lib/harbor-pack/programs"
    for path in (f"{home}/claude-code/claude", f"{home}/codex/bin/codex"):
        box.says(f'mkdir -p {path.rpartition("/")[0]} && printf %s "$1" >{path} && chmod 755 {path}', tell)

    def settings(marks: str, text: str) -> None:
        script = 'cd /opt/harbor-pack && rm -f sealed unsealed; [ -z "$1" ] || touch "$1"; printf %s "$2" >$3'
        box.says(script, marks, text, "/etc/harbor-pack/agent.env")

    yield settings
    box.says(f"rm -rf {home}/* /etc/harbor-pack/agent.env /opt/harbor-pack/*sealed")


HARBORS = "claude --verbose --output-format=stream-json --permission-mode=bypassPermissions --print"
ANSWERED = "[--permission-prompt-tool][stdio]"
SOURCES = "[--setting-sources][]"


@pytest.mark.parametrize(
    ("settings", "command", "started"),
    [
        (
            "",
            HARBORS,
            f"{SOURCES}[--verbose][--output-format=stream-json][--permission-mode=bypassPermissions][--print]",
        ),
        (
            "questions=yes\n",
            "claude --permission-mode=bypassPermissions --print",
            f"{ANSWERED}{SOURCES}[--permission-mode=bypassPermissions][--print]",
        ),
        (
            "questions=no\npermission_mode=dontAsk\n",
            HARBORS,
            f"[--permission-mode][dontAsk]{SOURCES}[--verbose][--output-format=stream-json][--print]",
        ),
        (
            "unknown=$(touch /tmp/ran)\npermission_mode=a b=$HOME'\"\n",
            "claude --permission-mode plan -p 'two words' ''",
            f"[--permission-mode][a b=$HOME'\"]{SOURCES}[-p][two words][]",
        ),
        (
            "permission_mode=dontAsk\n",
            "claude --dangerously-skip-permissions hello",
            f"[--permission-mode][dontAsk]{SOURCES}[hello]",
        ),
        ("questions=yes\npermission_mode=x\n", "claude --version", "[--version]"),
        ("questions=yes\n", "claude mcp add x -- y", "[mcp][add][x][--][y]"),
        ("questions=yes\n", "claude --help", "[--help]"),
    ],
)
def test_a_launcher_starts_the_program_as_the_eval_wants_it(
    settings: str, command: str, started: str, box: Box, program: Callable[[str, str], None]
) -> None:
    program("sealed", settings)
    said = box.says(f"HARBOR_PACK_MODEL_KEY=k HARBOR_PACK_MODEL_BASE_URL=u KEEP=1 {command}", user="agent").splitlines()
    assert said[0] == started
    assert "KEEP=1" in said
    assert not [line for line in said if line.startswith("HARBOR_PACK_MODEL")]
    passes_through = "--version" in command or "--help" in command or " mcp " in command
    wants_prefix = command.startswith("claude") and not passes_through
    assert ("CLAUDE_CODE_SHELL_PREFIX=/usr/local/lib/harbor-pack/prefix" in said) is wants_prefix
    assert box.sh("test -e /tmp/ran")[0] != 0


@pytest.mark.parametrize(
    ("serves", "started"),
    [
        ("id -un >/tmp/who; echo $KEEP >/tmp/kept; ulimit -u >/tmp/most; echo ws://127.0.0.1:7; sleep 1",
         "[exec][--json][x] ws://127.0.0.1:7"),
        ("echo no luck >&2; exit 1", "codex: its server for commands does not start: no luck"),
        ("sleep 60", None),
    ],
    ids=["starts", "fails", "no user worker"],
)  # fmt: skip
def test_codex_of_a_sealed_sandbox_gets_a_server_for_commands_that_is_workers(
    serves: str, started: str | None, box: Box, program: Callable[[str, str], None]
) -> None:
    program("sealed", "")
    path = "/usr/local/lib/harbor-pack/programs/codex/bin/codex"
    tell = f'case $1 in exec-server) {serves} ;; *) echo "[$1][$2][$3] $CODEX_EXEC_SERVER_URL" ;; esac'
    box.says('printf "#!/bin/bash\\n%s\\n" "$2" >"$1"; echo 2000 >/etc/harbor-pack/processes', path, tell)
    if started is not None:
        rule = "echo 'agent ALL=(worker) NOPASSWD: ALL' >/etc/sudoers.d/harbor-pack"
        box.says(f"{rule}; chmod 440 /etc/sudoers.d/harbor-pack")
    try:
        code, said = box.sh("KEEP=1 codex exec --json x", user="agent")
        assert (code == 0) is (started is not None and started.startswith("["))
        assert (started or "a password is required") in said
        if code == 0:
            assert box.says("cat /tmp/who /tmp/kept /tmp/most").splitlines() == ["worker", "", "2000"]
    finally:
        box.says("rm -f /etc/sudoers.d/harbor-pack /etc/harbor-pack/processes")


@pytest.mark.parametrize("command", ["claude -p x", "codex exec x"])
def test_no_agent_starts_before_the_sandbox_was_set_up(
    command: str, box: Box, program: Callable[[str, str], None]
) -> None:
    program("", "")
    code, output = box.sh(command, user="agent")
    assert code == 126
    assert "policy is not in force" in output
    program("unsealed", "")
    assert "SHELL_PREFIX" not in box.says(command, user="agent")


def test_the_prefix_runs_the_registered_hook_as_it_is_and_all_else_as_worker(box: Box) -> None:
    hook = 'id -un; echo "$0 it\'s" || { echo "no" >&2; exit 2; }'
    box.says("printf '%s\\n' \"$1\" >/etc/harbor-pack/registered; echo 2000 >/etc/harbor-pack/processes", hook)
    box.says(
        "echo 'agent ALL=(worker) NOPASSWD: ALL' >/etc/sudoers.d/harbor-pack; chmod 440 /etc/sudoers.d/harbor-pack"
    )
    prefix = '/usr/local/lib/harbor-pack/prefix "$1"'
    try:
        assert box.says(prefix, hook, user="agent").splitlines() == ["agent", "/bin/sh it's"]
        for other in (hook + " ", hook.replace("no", "on")):
            assert box.says(prefix, other, user="agent").splitlines()[0] == "worker"
        told = "id -un; ulimit -u; umask; echo \"$HOME ${KEY-none} $PATH\"; cd /tmp && pwd; cat <<'X'\n$doc\nX\nexit 3"
        code, output = box.sh(f"KEY=secret {prefix}", told, user="agent")
        assert (code, output.splitlines()) == (
            3,
            ["worker", "2000", "0002", f"/home/worker none {box.says('echo $PATH')}", "/tmp", "$doc"],
        )
        box.says("rm /etc/harbor-pack/registered")
        assert "worker" in box.says(prefix, hook, user="agent")
    finally:
        box.says("rm -f /etc/harbor-pack/registered /etc/harbor-pack/processes /etc/sudoers.d/harbor-pack")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("RUN useradd agent", "a user or group named agent"),
        (
            "RUN printf '#!/bin/sh\\n' >/usr/local/sbin/claude && chmod 755 /usr/local/sbin/claude",
            "/usr/local/sbin/claude",
        ),
        ("RUN mv /usr/bin/git /usr/bin/tig && mv /usr/bin/apt-get /usr/bin/apt-tig", "lacks git.*no apt-get"),
    ],
)
def test_a_base_that_is_in_the_way_is_refused_with_what_is(
    text: str, says: str, base_image: str, make_eval: Callable[..., Path], ensure: Any
) -> None:
    folder = make_eval(sandbox={"dockerfile": "image/Dockerfile"})
    (folder / "image").mkdir()
    (folder / "image/Dockerfile").write_text(f"FROM {base_image}\n{text}\n")
    with pytest.raises(AuthorError, match=says):
        ensure(folder)


def test_python_elsewhere_is_found_where_nothing_can_be_installed(
    base_image: str, make_eval: Callable[..., Path], ensure: Any
) -> None:
    folder = make_eval(sandbox={"dockerfile": "image/Dockerfile"})
    (folder / "image").mkdir()
    (folder / "image/Dockerfile").write_text(
        f"FROM {base_image}\n"
        "RUN ln -s $(readlink -f /usr/bin/python3) /usr/local/bin/python3 && rm /usr/bin/python3 /usr/bin/apt-get\n"
    )
    tag = ensure(folder).tag
    command = ["docker", "run", "--rm", tag, "/usr/bin/python3", "-I", "-c", "import yaml; print(yaml.__name__)"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "yaml\n"
