"""An eval's image on a real engine: built when something changed, found when nothing did, refused with a reason."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.environments.engine import Engine
from harbor_tasks.errors import AuthorError, MachineError
from harbor_tasks.images import ensure_image
from harbor_tasks.images.builder import has_buildx
from harbor_tasks.tasks.build import build
from harbor_tasks.tasks.manifest import read_manifest

pytestmark = pytest.mark.engine

MakeEval = Callable[..., Path]
SKILL = "---\nname: greet\ndescription: says hello\n---\nSay hello.\n"


def docker(*words: str, data: bytes | None = None) -> str:
    done = subprocess.run(["docker", *words], input=data, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


def in_image(image: str, script: str) -> str:
    return docker("run", "--rm", "--network", "none", "--entrypoint", "/bin/sh", image, "-c", script)


def labels(image: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(docker("image", "inspect", "--format", "{{json .Config.Labels}}", image))
    return found


def write_dockerfile(folder: Path, text: str) -> Path:
    """Gives the eval a Dockerfile of its own, in a folder of its own."""
    (folder / "image").mkdir(exist_ok=True)
    (folder / "image/Dockerfile").write_text(text)
    return folder


@pytest.fixture
def own(make_eval: MakeEval) -> Callable[[str], Path]:
    """An eval whose base is a Dockerfile with this text."""
    return lambda text: write_dockerfile(make_eval(sandbox={"dockerfile": "image/Dockerfile"}), text)


@pytest.fixture(scope="session")
def tiny_base(base_image: str) -> Iterator[Callable[[str], str]]:
    """Makes bases of a few files: ``shell`` has /bin/sh and nothing else, ``nothing`` has not even that."""
    names = {"shell": "image-test-base:shell", "nothing": "image-test-base:nothing"}
    collect = (
        "mkdir -p /r/bin /r/etc; echo x >/r/etc/x; "
        "[ $0 = nothing ] || { cp --parents -L $(ldd /bin/dash | grep -o '/[^ ]*') /r; cp -L /bin/dash /r/bin/sh; }; "
        "tar -C /r -c ."
    )

    def make(kind: str) -> str:
        command = ["docker", "run", "--rm", "--network", "none", base_image, "/bin/sh", "-c", collect, kind]
        archive = subprocess.run(command, capture_output=True, check=True).stdout
        docker("import", "-", names[kind], data=archive)
        return names[kind]

    yield make
    subprocess.run(["docker", "image", "rm", "--force", *names.values()], capture_output=True, check=False)


def test_what_did_not_change_is_not_built(make_eval: MakeEval, ensure: Any, base_image: str) -> None:
    folder = make_eval(sandbox={"image": base_image}, skill=SKILL)
    first = ensure(folder)
    assert first.built
    assert any(line.startswith(f"base {base_image} (") for line in ensure.said)
    again = ensure(folder)
    assert (again.built, again.tag, again.id, again.base) == (False, first.tag, first.id, first.base)
    assert ensure.said == []
    (folder / "cases/two").mkdir()
    (folder / "cases/two/input.yaml").write_text("prompt: Say it twice.\n")
    assert ensure(folder).id == first.id


def test_a_changed_skill_changes_the_tag_and_costs_one_layer(make_eval: MakeEval, ensure: Any, base_image: str) -> None:
    folder = make_eval(sandbox={"image": base_image}, skill=SKILL)
    first = ensure(folder)
    (folder / ".claude/skills/greet/SKILL.md").write_text(SKILL + "Be kind.\n")
    second = ensure(folder)
    assert second.built
    assert second.tag != first.tag
    assert not [line for line in ensure.said if "runtime" in line]
    place = "/opt/harbor-pack/layer/workspace/.claude/skills/greet/SKILL.md"
    assert in_image(second.tag, f"cat {place}").endswith("Be kind.")
    assert not in_image(first.tag, f"cat {place}").endswith("Be kind.")


def test_the_runtimes_own_files_are_in_the_name_of_the_image(
    make_eval: MakeEval, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repo_root: Path
) -> None:
    folder = make_eval()
    build(folder, tmp_path / "out")
    first = read_manifest(tmp_path / "out").image
    for name in ("docker", "interceptor"):
        shutil.copytree(repo_root / name, tmp_path / name)
    (tmp_path / "docker/sandbox/prefix").write_text("#!/bin/sh\n")
    monkeypatch.setattr("harbor_tasks.tasks.runtime.resource", lambda *parts: tmp_path.joinpath(*parts))
    build(folder, tmp_path / "other")
    assert read_manifest(tmp_path / "other").image != first


def test_the_runtimes_files_are_all_of_its_folder(repo_root: Path) -> None:
    from harbor_tasks.tasks.runtime import DEFAULT_BASE, RUNTIME_FILES

    docker_folder = repo_root / "docker"
    there = {str(path.relative_to(docker_folder)) for path in (docker_folder / "sandbox").rglob("*") if path.is_file()}
    assert there | {"Dockerfile"} == set(RUNTIME_FILES)
    assert f"ARG BASE={DEFAULT_BASE}\n" in (docker_folder / "Dockerfile").read_text()


def test_the_layer_arrives_whole_although_it_holds_an_ignore_file(
    make_eval: MakeEval, ensure: Any, base_image: str
) -> None:
    folder = make_eval(sandbox={"image": base_image}, skill=SKILL)
    skill = folder / ".claude/skills/greet"
    (skill / ".dockerignore").write_text("**/.*\n*\n!**/*.py\n")
    (skill / ".hidden").write_text("1")
    (skill / "a b").mkdir()
    (skill / "a b/run.sh").write_text("#!/bin/sh\n")
    (skill / "a b/run.sh").chmod(0o755)
    (skill / "empty").mkdir()
    image = ensure(folder)
    listing = in_image(
        image.tag,
        "cd /opt/harbor-pack/layer/workspace/.claude/skills/greet && find . -mindepth 1 -printf '%P %m %U\\n'",
    )
    assert sorted(listing.splitlines()) == [
 ".dockerignore 644 0", ".hidden 644 0", "SKILL.md 644 0", "a b 755 0", "a b/run.sh 755 0",
        "empty 755 0",
    ]  # fmt: skip


def test_labels_say_what_an_image_is_and_what_it_was_made_from(
    make_eval: MakeEval, ensure: Any, base_image: str
) -> None:
    image = ensure(make_eval(sandbox={"image": base_image}))
    found = labels(image.tag)
    assert (found["harbor-pack"], found["harbor-pack.kind"]) == ("1", "image")
    assert len(found["harbor-pack.content"]) == 64
    assert found["harbor-pack.base"].startswith(base_image)
    assert found["harbor-pack.base-id"] == docker("image", "inspect", "--format", "{{.Id}}", base_image)
    assert image.as_json()["base"] == found["harbor-pack.base"]


def test_a_base_that_moved_is_built_upon_anew(make_eval: MakeEval, ensure: Any, base_image: str) -> None:
    moving = "image-test-base:moving"
    docker("tag", base_image, moving)
    folder = make_eval(sandbox={"image": moving})
    first = ensure(folder)
    docker("build", "--quiet", "--tag", moving, "-", data=f"FROM {base_image}\nENV MOVED=yes\n".encode())
    second = ensure(folder)
    assert (second.built, second.tag) == (True, first.tag)
    assert in_image(second.tag, "echo $MOVED") == "yes"
    gone = subprocess.run(["docker", "image", "inspect", first.id], capture_output=True, check=False)
    assert gone.returncode != 0
    docker("image", "rm", moving)
    assert not ensure(folder).built  # the base is not needed for an image that is there


def test_an_image_under_that_name_with_another_content_is_replaced(
    make_eval: MakeEval, ensure: Any, base_image: str, tmp_path: Path
) -> None:
    folder = make_eval(sandbox={"image": base_image})
    build(folder, tmp_path / "out")
    tag = read_manifest(tmp_path / "out").image
    docker("build", "--quiet", "--tag", tag, "-", data=f"FROM {base_image}\nLABEL harbor-pack.content=x\n".encode())
    assert ensure(folder).built
    assert labels(tag)["harbor-pack.kind"] == "image"


def test_files_that_were_changed_after_the_build_are_refused(
    make_eval: MakeEval, sdk: Engine, tmp_path: Path, base_image: str
) -> None:
    build(make_eval(sandbox={"image": base_image}, skill=SKILL), tmp_path / "out")
    (tmp_path / "out/.harbor-pack/layer/workspace/.claude/skills/greet/SKILL.md").write_text("something else")
    with pytest.raises(AuthorError, match="build the eval again"):
        ensure_image(tmp_path / "out", sdk)


def test_locked_refuses_a_tag_and_says_what_it_is_now(make_eval: MakeEval, ensure: Any, base_image: str) -> None:
    identity = docker("image", "inspect", "--format", "{{.Id}}", base_image)
    folder = make_eval(sandbox={"image": base_image})
    with pytest.raises(AuthorError, match=rf"--locked: the base {base_image} is a tag.* it is {identity} now"):
        ensure(folder, locked=True)
    assert ensure(folder, locked=True, base=identity).built
    with pytest.raises(AuthorError, match=r"image/Dockerfile:2: --locked: the base ghost:1 is a tag"):
        ensure(
            write_dockerfile(make_eval(sandbox={"dockerfile": "image/Dockerfile"}), f"FROM {identity}\nFROM ghost:1\n"),
            locked=True,
        )


def test_the_base_comes_from_the_option_the_eval_or_this_machines_variable(
    make_eval: MakeEval, ensure: Any, base_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unnamed, named = make_eval(), make_eval(sandbox={"image": "127.0.0.1:1/nowhere:1"})
    monkeypatch.setenv("HARBOR_PACK_BASE", base_image)
    assert ensure(unnamed).base.startswith(base_image)
    with pytest.raises(MachineError, match=r"127\.0\.0\.1:1/nowhere:1 is not here"):
        ensure(named)
    assert ensure(named, base=base_image).base.startswith(base_image)


def test_an_image_that_was_made_with_the_option_is_taken_where_the_evals_own_base_is_not_here(
    make_eval: MakeEval, ensure: Any, base_image: str
) -> None:
    absent = "image-test-base:absent"
    folder = make_eval(sandbox={"image": absent})
    first = ensure(folder, base=base_image)
    assert (ensure(folder).built, ensure(folder).id) == (False, first.id)
    assert ensure.said == [f"{absent} is not here; taking the image that was made on {first.base}"]
    docker("tag", base_image, absent)
    second = ensure(folder)
    assert second.built
    assert second.base.startswith(absent)
    docker("image", "rm", absent)
    assert ensure(folder, base=base_image).built


def test_an_image_that_is_not_to_be_sealed_is_used_as_it_is(make_eval: MakeEval, ensure: Any, base_image: str) -> None:
    image = ensure(make_eval(sandbox={"image": base_image, "sealed": False}, skill=SKILL))
    assert (image.tag, image.built) == (base_image, False)
    assert image.id == docker("image", "inspect", "--format", "{{.Id}}", base_image)


def test_a_base_without_python_and_apt_is_refused_naming_python(
    make_eval: MakeEval, ensure: Any, tiny_base: Callable[[str], str]
) -> None:
    with pytest.raises(AuthorError, match=r"lacks python3 \(3\.8.*PyYAML.*no apt-get.*Debian or Ubuntu.*Dockerfile"):
        ensure(make_eval(sandbox={"image": tiny_base("shell")}))


def test_a_base_without_a_shell_is_refused_naming_python(
    make_eval: MakeEval, ensure: Any, tiny_base: Callable[[str], str]
) -> None:
    with pytest.raises(AuthorError, match="no /bin/sh, and so neither python3"):
        ensure(make_eval(sandbox={"image": tiny_base("nothing")}))


def test_an_unknown_agent_is_refused_before_anything_is_built(make_eval: MakeEval, ensure: Any) -> None:
    with pytest.raises(AuthorError, match="no agent program gpt"):
        ensure(make_eval(), agents=("gpt",))


def test_an_image_with_more_agents_than_asked_for_is_taken(make_eval: MakeEval, ensure: Any, base_image: str) -> None:
    folder = make_eval(sandbox={"image": base_image})
    first = ensure(folder)
    relabel = f"FROM {first.tag}\nLABEL harbor-pack.agents='claude-code codex'\n"
    docker("build", "--quiet", "--tag", first.tag, "-", data=relabel.encode())
    found = ensure(folder, agents=("claude-code",))
    assert (found.built, found.agents) == (False, ("claude-code", "codex"))
    docker("image", "rm", "--force", found.tag, first.id)


# A Dockerfile of the author's.


def test_the_authors_dockerfile_is_the_base_and_its_folder_the_context(
    own: Callable[[str], Path], ensure: Any, base_image: str
) -> None:
    folder = own(f'FROM {base_image}\nCOPY . /given/\nENV PATH=/given:$PATH\nENTRYPOINT ["/given/tool"]\nUSER 1000\n')
    (folder / "image/.tool").write_text("dotfile\n")
    (folder / "image/secret.txt").write_text("x\n")
    (folder / "image/.dockerignore").write_text("secret.txt\n")
    image = ensure(folder)
    assert image.base.startswith("image/Dockerfile")
    assert in_image(image.tag, "cd /given; find . -type f | sort; id -u").split() == ["./.tool", "./Dockerfile", "0"]
    config = json.loads(docker("image", "inspect", "--format", "{{json .Config}}", image.tag))
    assert not config.get("Entrypoint")
    assert config["StopSignal"] == "SIGKILL"
    assert not ensure(folder).built


def test_a_change_beside_the_dockerfile_makes_another_base(make_eval: MakeEval, ensure: Any, base_image: str) -> None:
    folder = make_eval(sandbox={"dockerfile": "image/Dockerfile", "sealed": False})
    write_dockerfile(folder, f"FROM {base_image}\nCOPY tool /tool\n")
    (folder / "image/tool").write_text("1")
    first = ensure(folder)
    (folder / "image/tool").write_text("2")
    second = ensure(folder)
    assert [in_image(image.tag, "cat /tool") for image in (first, second)] == ["1", "2"]


def test_a_dockerfile_that_fails_is_the_authors_error_with_its_line_and_the_output(
    own: Callable[[str], Path], ensure: Any, base_image: str
) -> None:
    folder = own(f"FROM {base_image}\n\n# why\nRUN printf 'gr\\303\\266\\303\\237er\\n\\377' && \\\n  exit 7\n")
    with pytest.raises(AuthorError, match=r"image/Dockerfile:4: does not build: .*non-zero code: 7") as error:
        ensure(folder)
    assert "größer" in str(error.value)
    with pytest.raises(AuthorError, match=r"image/Dockerfile.*(?i:unknown instruction)"):
        ensure(own(f"FROM {base_image}\nRUNN x\n"))


def test_buildkit_syntax_is_refused_by_name_and_line_where_there_is_no_buildx(
    own: Callable[[str], Path], ensure: Any, base_image: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = own(f"FROM {base_image}\nRUN --mount=type=tmpfs,target=/t true\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AuthorError, match=r"image/Dockerfile:2: RUN --mount needs BuildKit; .*buildx"):
        ensure(folder)


def test_buildkit_syntax_goes_to_buildx_where_it_is(
    make_eval: MakeEval, ensure: Any, base_image: str, sdk: Engine
) -> None:
    if not has_buildx(sdk):
        pytest.skip("docker has no buildx plug-in; docker/plugins.sh")
    text = (
        f"FROM {base_image}\nRUN --mount=type=tmpfs,target=/t test -d /t && echo made >/made\nCOPY --chmod=750 .x /x\n"
    )
    folder = write_dockerfile(make_eval(sandbox={"dockerfile": "image/Dockerfile", "sealed": False}), text)
    (folder / "image/.x").write_text("1")
    image = ensure(folder)
    assert in_image(image.tag, "cat /made; stat -c %a /x").split() == ["made", "750"]
    with pytest.raises(AuthorError, match=r"image/Dockerfile: does not build"):
        ensure(write_dockerfile(folder, f"FROM {base_image}\nRUN --mount=type=tmpfs,target=/t exit 3\n"))


def test_option_base_and_an_own_dockerfile_exclude_each_other(
    own: Callable[[str], Path], ensure: Any, base_image: str
) -> None:
    with pytest.raises(AuthorError, match="change its FROM"):
        ensure(own(f"FROM {base_image}\n"), base=base_image)


def test_an_own_dockerfile_that_is_not_to_be_sealed_gets_the_layer_only(
    make_eval: MakeEval, ensure: Any, base_image: str
) -> None:
    folder = make_eval(sandbox={"dockerfile": "image/Dockerfile", "sealed": False}, skill=SKILL)
    image = ensure(write_dockerfile(folder, f"FROM {base_image}\nRUN echo 1 >/mine\n"))
    told = in_image(
        image.tag,
        "cat /mine; ls /opt/harbor-pack/layer/workspace/.claude/skills; ls -d /usr/local/lib/harbor-pack || true",
    )
    assert told.split() == ["1", "greet"]


# Docker's configuration.


def test_a_credential_helper_that_is_not_installed_is_said_and_stops_nothing(
    make_eval: MakeEval, ensure: Any, base_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.json").write_text('{"credsStore": "not-installed"}')
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "config"))
    image = ensure(make_eval(sandbox={"image": base_image}))
    assert image.built
    (warning,) = [line for line in ensure.said if line.startswith("warning")]
    assert "docker-credential-not-installed" in warning
    assert "is not installed; mend that" in warning


def test_the_command_makes_and_finds_an_image(
    make_eval: MakeEval, base_image: str, tmp_path: Path, repo_root: Path, engine: str
) -> None:
    folder = make_eval(sandbox={"image": base_image})

    def image(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "harbor_tasks.cli", "image", str(folder)]
        return subprocess.run(
            [*command, *words],
            cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(repo_root)}, capture_output=True, text=True, check=False,
        )  # fmt: skip

    first = image("--json")
    assert first.returncode == 0, first.stderr
    made = json.loads(first.stdout)
    assert (made["built"], made["agents"]) == (True, [])
    assert "engine: " in first.stderr
    second = image()
    assert second.stdout.startswith(f"{made['image']}: nothing changed, on {base_image}")
    locked = image("--locked")
    assert (locked.returncode, locked.stdout) == (2, "")
    nowhere = image("--host", "unix:///nowhere.sock")
    assert nowhere.returncode == 3
    assert "unix:///nowhere.sock (from --host)" in nowhere.stderr


def test_check_and_build_do_not_load_the_docker_sdk(make_eval: MakeEval, tmp_path: Path, repo_root: Path) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from harbor_tasks.tasks.build import build, check\n"
        f"check(Path({str(make_eval())!r})); build(Path({str(make_eval())!r}), Path('out'))\n"
        "assert not [name for name in sys.modules if name.split('.')[0] in ('docker', 'requests', 'urllib3')]\n"
    )
    subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(repo_root)}, check=True
    )
