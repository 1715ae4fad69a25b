"""The helpers of docker/: what they say on a machine that lacks something, and that they leave alone what is there."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

HELPERS = ["agents.sh", "base-image.sh", "engine.sh", "harbor.sh", "plugins.sh"]
THIRD_PARTY = "https://packages.example.com/debian"
MIRROR = "http://mirror.example.org/debian"
ONE_LINE = f"""
deb {THIRD_PARTY} {{release}} stable
deb {THIRD_PARTY}/tool {{release}}-tool main
deb http://mirror.example.org/debian-security {{release}}-security main
deb [arch=amd64] {MIRROR}/ {{release}} main contrib
"""
DEB822 = f"""
Types: deb
URIs: {THIRD_PARTY}
Suites: nodistro
Components: main

Types: deb
URIs: {MIRROR}
Suites: {{release}} {{release}}-updates
Components: main
"""

# Packs what the real packages hold, as far as it matters: a program that says which package it came in.
NPM = """set -eu
case $3 in
@anthropic-ai/*) program=package/claude ;;
*) program=package/vendor/$(uname -m)-unknown-linux-musl/bin/codex ;;
esac
mkdir -p "${program%/*}"
printf '#!/bin/sh\\necho %s\\n' "$3" >"$program"
chmod 755 "$program"
tar -czf some.tgz package
rm -rf package
echo some.tgz
"""


def run(script: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a helper with more environment variables; its exit code is for the test to look at."""
    return subprocess.run(
        [script, *arguments],
        env=os.environ | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@dataclass(frozen=True)
class SecondEngine:
    """A folder for an engine that shares nothing with this machine's."""

    folder: Path

    @property
    def options(self) -> list[str]:
        """dockerd's options: everything that it keeps is in the folder."""
        places = {"data-root": "data", "exec-root": "exec", "pidfile": "pid"}
        return [*(f"--{name}={self.folder / place}" for name, place in places.items()), "--storage-driver=vfs"]

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run engine.sh for it. In a network of its own: an engine makes and removes the machine's bridge and rules."""
        script = Path(__file__).parents[2] / "docker" / "engine.sh"
        env = {"DOCKER_HOST": f"unix://{self.folder}/socket", "HARBOR_PACK_CACHE": str(self.folder / "cache")}
        return run(Path("unshare"), "--net", str(script), *arguments, **env)


@pytest.fixture
def docker(repo_root: Path) -> Path:
    return repo_root / "docker"


@pytest.fixture
def bare_path(tmp_path: Path) -> str:
    """A PATH with what every Debian has, and no Docker, debootstrap or newer Python."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in [
        "cat",
        "dirname",
        "flock",
        "grep",
        "head",
        "id",
        "mkdir",
        "mktemp",
        "rm",
        "sed",
        "sh",
        "sleep",
        "tail",
    ]:
        if found := shutil.which(name):
            (programs / name).symlink_to(found)
    return str(programs)


@pytest.mark.parametrize("name", [*HELPERS, "lib.sh"])
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_every_shell_can_read_a_helper(docker: Path, name: str, shell: str) -> None:
    done = subprocess.run([shell, "-n", docker / name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", HELPERS)
def test_a_helper_explains_itself(docker: Path, name: str) -> None:
    asked = run(docker / name, "--help")
    assert asked.returncode == 0
    assert asked.stdout.startswith(f"usage: {name}")
    wrong = run(docker / name, "--no-such-option")
    assert wrong.returncode == 2
    assert wrong.stderr == asked.stdout


def test_the_helpers_say_in_one_line_what_is_missing_and_how_to_get_it(
    docker: Path, bare_path: str, tmp_path: Path
) -> None:
    for call, words in {
        ("engine.sh", "start"): "apt-get install docker.io iptables",
        ("base-image.sh",): "docker/engine.sh start",
        ("plugins.sh",): "apt-get install docker.io",
    }.items():
        # A socket that does not exist: an engine of this machine does not count. /usr/sbin is not looked at by `have`.
        done = run(
            docker / call[0],
            *call[1:],
            PATH=bare_path,
            DOCKER_HOST=f"unix://{tmp_path}/none",
            HARBOR_PACK_CACHE=str(tmp_path),
        )
        assert done.returncode == 3, call
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_harbor_needs_a_newer_python_and_says_so(docker: Path, tmp_path: Path) -> None:
    done = run(docker / "harbor.sh", HARBOR_PYTHON="/bin/false", HARBOR_PACK_CACHE=str(tmp_path))
    assert done.returncode == 3
    assert "Harbor needs Python 3.12 or newer" in done.stderr
    assert not (tmp_path / "harbor").exists()


@pytest.fixture
def with_npm(tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """The variables under which this script is the npm that is found, and the folder for what is fetched is empty."""

    def make(script: str) -> dict[str, str]:
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / "npm").write_text(f"#!/bin/sh\n{script}")
        (tmp_path / "bin" / "npm").chmod(0o755)
        return {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "HARBOR_PACK_CACHE": str(tmp_path / "cache")}

    return make


def test_the_agents_are_fetched_once_in_the_versions_of_the_image(
    docker: Path, with_npm: Callable[[str], dict[str, str]], tmp_path: Path
) -> None:
    env = with_npm(NPM)
    first, second = (run(docker / "agents.sh", **env) for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    folder = Path(first.stdout.strip())
    assert folder == tmp_path / "cache" / "agents" / "bin"
    assert run(docker / "agents.sh", "--path", **env).stdout == first.stdout == second.stdout
    for name, package in (("claude", "@anthropic-ai/claude-code-linux-"), ("codex", "@openai/codex@")):
        said = subprocess.run([folder / name], capture_output=True, text=True, check=True).stdout
        assert said.startswith(package)
        assert said.strip().rpartition("@")[2].split("-")[0] in (docker / "Dockerfile").read_text()
    assert first.stderr.count("fetching") == 2
    assert second.stderr.count("is there") == 2


@pytest.mark.parametrize(
    ("npm", "says"),
    [("exit 1", "npm cannot fetch"), ("mkdir package; tar -czf x.tgz package; echo x.tgz", "holds no program")],
)
def test_an_agent_that_cannot_be_fetched_is_said_and_leaves_nothing_that_looks_whole(
    docker: Path, with_npm: Callable[[str], dict[str, str]], tmp_path: Path, npm: str, says: str
) -> None:
    done = run(docker / "agents.sh", **with_npm(npm))
    assert (done.returncode, done.stdout) == (3, "")
    assert says in done.stderr
    assert not (tmp_path / "cache" / "agents" / "bin" / "claude").exists()


@pytest.mark.parametrize("name", ["one-line.list", "deb822.sources"])
def test_the_mirror_is_the_one_of_apts_own_sources(docker: Path, name: str, tmp_path: Path) -> None:
    release = debian_release()
    sources = tmp_path / "sources"
    sources.mkdir()
    text = (ONE_LINE if name.endswith(".list") else DEB822).format(release=release)
    (sources / name).write_text(text.lstrip())
    config = tmp_path / "apt.conf"
    config.write_text(f'Dir::Etc::SourceList "/dev/null";\nDir::Etc::SourceParts "{sources}";\n')
    assert mirror(docker, APT_CONFIG=str(config)).stdout.strip() == MIRROR


def test_a_mirror_that_is_named_wins(docker: Path) -> None:
    assert (
        mirror(docker, HARBOR_PACK_MIRROR="http://other.example/debian/").stdout.strip()
        == "http://other.example/debian"
    )


def test_sources_without_a_debian_mirror_are_an_error_that_says_what_to_set(docker: Path, tmp_path: Path) -> None:
    debian_release()
    config = tmp_path / "apt.conf"
    config.write_text('Dir::Etc::SourceList "/dev/null";\nDir::Etc::SourceParts "/dev/null";\n')
    done = mirror(docker, APT_CONFIG=str(config))
    assert done.returncode == 3
    assert "HARBOR_PACK_MIRROR" in done.stderr


def mirror(docker: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """What lib.sh takes for this machine's mirror."""
    command = ["sh", "-c", f". {docker}/lib.sh; debian_mirror"]
    return subprocess.run(command, env=os.environ | env, capture_output=True, text=True, check=False)


def debian_release() -> str:
    """The code name of this Debian; a test on another system is left out."""
    system = Path("/etc/os-release")
    facts = (
        dict(line.split("=", 1) for line in system.read_text().splitlines() if "=" in line) if system.exists() else {}
    )
    if facts.get("ID") != "debian" or not shutil.which("apt-get"):
        pytest.skip("not a Debian system")
    return facts.get("VERSION_CODENAME", "stable").strip('"')


@pytest.mark.engine
def test_a_running_engine_is_left_alone(docker: Path, engine: str, tmp_path: Path) -> None:
    before = subprocess.run([engine, "info", "--format", "{{.ID}}"], capture_output=True, text=True, check=True).stdout
    started = run(docker / "engine.sh", "start", HARBOR_PACK_CACHE=str(tmp_path))
    assert (started.returncode, started.stderr) == (0, "engine.sh: an engine runs already; left alone\n")
    stopped = run(docker / "engine.sh", "stop", HARBOR_PACK_CACHE=str(tmp_path))
    assert stopped.returncode == 0
    assert "nothing to stop" in stopped.stderr
    status = run(docker / "engine.sh", "status", HARBOR_PACK_CACHE=str(tmp_path))
    assert "not started by this script" in status.stdout
    after = subprocess.run([engine, "info", "--format", "{{.ID}}"], capture_output=True, text=True, check=True).stdout
    assert after == before


@pytest.fixture
def second_engine() -> Iterator[SecondEngine]:
    """An engine apart from this machine's; in a short path, since a socket's may have 107 bytes."""
    if (
        os.geteuid() != 0
        or not shutil.which("dockerd", path=f"{os.environ['PATH']}:/usr/sbin")
        or not shutil.which("unshare")
    ):
        pytest.skip("starting an engine needs root, dockerd and unshare")
    with tempfile.TemporaryDirectory(prefix="engine-") as folder:
        yield SecondEngine(Path(folder))


@pytest.mark.engine
def test_an_engine_is_started_once_and_ended_by_its_id(second_engine: SecondEngine) -> None:
    try:
        started = second_engine.call("start", "--", *second_engine.options)
        assert started.returncode == 0, started.stderr
        pid = int((second_engine.folder / "cache" / "engine" / "dockerd.pid").read_text())
        assert f"process {pid}" in second_engine.call("status").stdout
        assert "left alone" in second_engine.call("start").stderr
    finally:
        stopped = second_engine.call("stop")
    assert stopped.stderr == "engine.sh: stopped\n"
    assert not Path(f"/proc/{pid}").exists()
    assert second_engine.call("status").returncode == 3


@pytest.mark.engine
def test_an_engine_that_cannot_start_shows_the_end_of_its_log(second_engine: SecondEngine) -> None:
    done = second_engine.call("start", "--", "--no-such-option")
    assert done.returncode == 3
    assert "--no-such-option" in done.stderr
    assert "dockerd.log" in done.stderr


@pytest.mark.engine
def test_a_process_id_that_now_belongs_to_another_program_is_not_ended(docker: Path, tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "dockerd.pid").write_text(f"{os.getpid()}\n")
    done = run(docker / "engine.sh", "stop", HARBOR_PACK_CACHE=str(tmp_path))
    assert "nothing to stop" in done.stderr


@pytest.mark.engine
def test_the_base_image_has_what_tasks_need_and_stops_at_once(engine: str, base_image: str, docker: Path) -> None:
    commands = (
        "python3 -c 'import yaml' && git --version && sudo -V | head -n 1 && test -e /etc/ssl/certs/ca-certificates.crt"
    )
    done = subprocess.run(
        [engine, "run", "--rm", base_image, "sh", "-ec", commands], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    signal = [engine, "image", "inspect", "--format", "{{.Config.StopSignal}}", base_image]
    assert subprocess.run(signal, capture_output=True, text=True, check=True).stdout == "SIGKILL\n"
    assert run(docker / "base-image.sh").stderr == f"base-image.sh: {base_image} is there\n"


@pytest.mark.engine
def test_plugins_come_from_the_mirror_and_apts_own_state_is_not_touched(
    docker: Path, engine: str, tmp_path: Path
) -> None:
    debian_release()
    lists = Path("/var/lib/apt/lists")
    before = {path.name: path.stat().st_mtime_ns for path in lists.iterdir()}
    env = {"DOCKER_CONFIG": str(tmp_path), "HARBOR_PACK_CACHE": str(tmp_path / "cache")}
    done = run(docker / "plugins.sh", "compose", **env)
    assert done.returncode == 0, done.stderr
    version = subprocess.run(
        [engine, "compose", "version"], env=os.environ | env, capture_output=True, text=True, check=False
    )
    assert "Docker Compose version" in version.stdout
    assert {path.name: path.stat().st_mtime_ns for path in lists.iterdir()} == before
    assert run(docker / "plugins.sh", "compose", **env).stderr == "plugins.sh: docker compose is there\n"
