"""`run` of a reference or a bundle's file: on an empty root, with the image of the registry, the same results."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.bundles import PackedImage, pack
from harbor_tasks.bundles.cache import bundles_folder, is_bundle
from harbor_tasks.bundles.oci import pull, push
from harbor_tasks.cli import answer
from harbor_tasks.environments.base import RunOptions
from harbor_tasks.environments.engine import find_engine
from harbor_tasks.environments.jobs import run_job
from harbor_tasks.errors import AuthorError, MachineError
from harbor_tasks.images import ensure_image, image_for_run
from harbor_tasks.resources import resource
from harbor_tasks.tasks.build import build
from harbor_tasks.tasks.manifest import read_manifest

from .conftest import Packed

Command = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command in an empty folder, with `--json`: exit code, document, what was said."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def run(*arguments: str | Path) -> tuple[int, Any, str]:
        code = answer([*map(str, arguments), "--json"])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, json.loads(out), err

    return run


def outcome(job: dict[str, Any]) -> dict[str, Any]:
    """What must be the same wherever a job runs: rewards, what judges said, what became of the calls."""
    return {
        trial["case_id"]: (
            trial["status"], trial["reward"], trial["digest"],
            [(judge["name"], judge["status"], judge["value"]) for judge in trial["judges"]],
            {kind: count for kind, count in trial["calls"].items() if isinstance(count, int)},
        )
        for task in job["tasks"]
        for trial in task["trials"]
    }  # fmt: skip


# ---- what is a reference, and trust: nothing of it needs a registry ----


def test_a_bundle_does_not_run_here_untrusted(command: Command, packed: Packed) -> None:
    for source in (str(packed.file), "127.0.0.1:9/nobody/there", "oci://127.0.0.1:9/nobody/there"):
        code, document, _ = command("run", source)
        assert code == 2
        [problem] = document["problems"]
        assert "would run it on this machine as you" in problem["message"]
        assert "--trust" in problem["message"]


def test_an_authority_that_is_none_is_an_error_of_any_source(command: Command, packed: Packed) -> None:
    for source in (packed.tasks, packed.file, "127.0.0.1:9/nobody/there"):
        code, document, _ = command("run", source, "--trust", "--ca", "nothing.pem")
        assert code == 2
        assert document["problems"][0]["message"].startswith("--ca: nothing.pem cannot be read (No such file")


def test_a_trusted_file_runs_here_as_its_eval_does(command: Command, packed: Packed) -> None:
    code, ours, _ = command("run", packed.tasks)
    assert code == 0
    code, theirs, _ = command("run", packed.file, "--trust")
    assert code == 0
    assert outcome(ours) == outcome(theirs)
    code, resumed, _ = command("run", packed.file, "--trust", "--resume", Path("jobs") / theirs["job"])
    assert (code, resumed["job"]) == (0, theirs["job"])


def test_an_unpacked_folder_is_still_a_strangers(command: Command, packed: Packed, tmp_path: Path) -> None:
    from harbor_tasks.bundles import unpack

    unpack(packed.file, tmp_path / "tasks")
    for arguments in (("run", tmp_path / "tasks"), ("probe", tmp_path / "tasks")):
        code, document, _ = command(*arguments)
        assert (code, "--trust" in document["problems"][0]["message"]) == (2, True)
    assert command("run", tmp_path / "tasks", "--trust", "--dry-run")[0] == 0
    assert command("probe", tmp_path / "tasks", "--trust")[0] == 0


def test_a_path_that_is_there_is_no_reference(command: Command, packed: Packed) -> None:
    shutil.copytree(packed.tasks, "localhost/evals")
    code, plan, _ = command("run", "localhost/evals", "--dry-run")
    assert (code, len(plan["trials"])) == (0, packed.info.tasks)


@pytest.mark.parametrize("source", ["nothing", "./some.where/x", "../x", "/x.y/z", "some/where"])
def test_a_path_that_is_not_there_is_no_reference(command: Command, source: str) -> None:
    code, document, _ = command("run", source, "--env", "docker")
    assert code == 2
    assert "no such file or folder" in document["problems"][0]["message"]


def test_a_mistyped_path_may_look_like_a_reference(command: Command) -> None:
    code, document, _ = command("run", "my.evals.invalid/desk", "--env", "docker")
    assert code == 3
    assert "cannot be reached" in document["problems"][0]["message"]
    assert "no file or folder my.evals.invalid/desk is here" in document["problems"][0]["message"]
    _, document, _ = command("run", "my.evals.invalid/desk")
    assert "(a reference: no such file or folder is here) came in a bundle" in document["problems"][0]["message"]


def test_a_reference_that_cannot_be_one(command: Command) -> None:
    code, document, _ = command("run", "reg.example/Upper", "--env", "docker")
    assert code == 2
    assert "small letters only" in document["problems"][0]["message"]


def bundle_of(folder: Path, **keys: Any) -> Path:
    """The bundle of the starter with more keys in its eval.yaml."""
    import yaml

    shutil.copytree(resource("examples") / "starter", folder / "eval")
    (folder / "eval/.git").mkdir()
    path = folder / "eval/eval.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | keys))
    return pack(build(folder / "eval", folder / "tasks").out, folder / "b.hpb").file


def test_commands_after_the_run_are_a_strangers_too(command: Command, tmp_path: Path) -> None:
    file = bundle_of(tmp_path, hooks={"after_all": [{"command": f"touch {tmp_path}/done"}]})
    code, document, _ = command("run", file, "--env", "docker", "--dry-run")
    assert code == 2
    assert f"hooks.after_all: touch {tmp_path}/done" in document["problems"][0]["message"]
    assert command("run", file, "--trust")[0] == 0
    assert (tmp_path / "done").exists()


def test_variables_that_a_bundle_takes_are_said(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "a secret")
    file = bundle_of(tmp_path, execution={"prompt": "x", "env": {"T": "${MY_TOKEN}", "U": "${UNSET_HERE:-d}"}})
    code, document, said = command("run", file, "--trust", "--dry-run")
    assert code == 0
    assert "this bundle takes from your environment: MY_TOKEN" in document["warnings"]
    assert "a secret" not in said
    _, document, _ = command("run", tmp_path / "tasks", "--dry-run")
    assert not document["warnings"]


def test_a_broken_file_names_what_is_broken(command: Command, packed: Packed, tmp_path: Path) -> None:
    data = bytearray(packed.file.read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "x.hpb").write_bytes(bytes(data))
    code, document, _ = command("run", tmp_path / "x.hpb", "--trust")
    assert code == 2
    assert "x.hpb" in document["problems"][0]["message"]


def test_a_url_is_no_path(command: Command) -> None:
    code, document, said = command("run", "https://me:not-shown@reg.example/x:1", "--env", "docker")
    assert code == 2
    assert "a reference has no https:// in front" in document["problems"][0]["message"]
    assert "not-shown" not in said + json.dumps(document)


def test_a_file_that_cannot_be_read_is_the_authors(
    command: Command, packed: Packed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.dat").write_bytes(packed.file.read_bytes())

    def refused(*_args: Any, **_keys: Any) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refused)
        with pytest.raises(AuthorError, match=r"x\.dat: cannot be read .Permission denied"):
            is_bundle(tmp_path / "x.dat")
    assert is_bundle(tmp_path / "x.dat")


# ---- with a registry ----


@pytest.mark.registry
def test_push_and_pull_as_commands(command: Command, packed: Packed, open_registry: str) -> None:
    ref = f"{open_registry}/tests/commands:1"
    code, pushed, _ = command("push", packed.file, ref)
    assert (code, pushed["uploads"], pushed["bundle"]) == (0, 3, packed.info.digest)
    code, again, _ = command("push", packed.file, ref)
    assert (code, again["uploads"], again["digest"]) == (0, 0, pushed["digest"])
    code, pulled, _ = command("pull", ref, "-o", "out")
    assert (code, pulled["digest"], pulled["tasks"]) == (0, pushed["digest"], packed.info.tasks)
    code, document, _ = command("pull", ref, "-o", "out")
    assert (code, "is there already" in document["problems"][0]["message"]) == (2, True)
    code, document, _ = command("push", "out", ref)
    assert (code, "harbor-pack bundle" in document["problems"][0]["message"]) == (2, True)
    code, document, _ = command("pull", f"{ref}x", "-o", "other")
    assert (code, "has no tag" in document["problems"][0]["message"]) == (2, True)


@pytest.mark.registry
def test_what_the_commands_print(packed: Packed, open_registry: str, capsys: pytest.CaptureFixture[str]) -> None:
    ref = f"{open_registry}/tests/printed:1"
    for said in ("3 uploads, ", "nothing uploaded"):
        assert answer(["push", str(packed.file), ref]) == 0
        out, _ = capsys.readouterr()
        assert f"{ref}: {said}" in out
        assert f"bundle {packed.info.digest}" in out


@pytest.mark.registry
def test_a_digest_runs_again_without_the_registry(
    command: Command, packed: Packed, open_registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed = push(packed.file, f"{open_registry}/tests/digest:1")
    code, first, _ = command("run", pushed.ref, "--trust", "--dry-run")
    assert code == 0
    ref = f"127.0.0.1:9/tests/digest@{pushed.digest}"  # nobody listens there
    code, second, _ = command("run", ref, "--trust", "--dry-run")
    assert code == 0
    assert [trial["digest"] for trial in first["trials"]] == [trial["digest"] for trial in second["trials"]] != []


@pytest.mark.registry
def test_a_cached_bundle_that_was_changed_is_refused(command: Command, packed: Packed, open_registry: str) -> None:
    pushed = push(packed.file, f"{open_registry}/tests/changed:1")
    ref = f"{open_registry}/tests/changed@{pushed.digest}"
    assert command("run", ref, "--trust", "--dry-run")[0] == 0
    [instruction, *_] = sorted(bundles_folder().rglob("instruction.md"))
    instruction.write_text("Do something else.\n")
    code, document, _ = command("run", ref, "--trust", "--dry-run")
    assert code == 2
    [problem] = document["problems"]
    assert f"{instruction}: is not what was unpacked" in problem["message"]
    assert "and it is pulled again" in problem["message"]


@dataclass(frozen=True)
class Shipped:
    """A bundle with an image, in a registry; neither the image nor the eval is on this machine any more."""

    ref: str
    digest: str
    image: str
    id: str
    file: Path
    local: dict[str, Any]
    """The report of the job on the author's machine."""


@pytest.fixture(scope="module")
def shipped(open_registry: str, base_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shipped]:
    folder = tmp_path_factory.mktemp("shipped")
    name = f"shipped {secrets.token_hex(4)}"
    shutil.copytree(resource("examples") / "starter", folder / "eval")
    (folder / "eval/.git").mkdir()
    path = folder / "eval/eval.yaml"
    path.write_text(path.read_text().replace("name: starter", f"name: {name}", 1))
    tasks = build(folder / "eval", folder / "tasks").out
    with pytest.MonkeyPatch.context() as patch, find_engine() as engine:
        patch.setenv("HARBOR_PACK_BASE", base_image)
        made = ensure_image(tasks, engine)
        file = pack(tasks, folder / "b.hpb", images=[PackedImage(made.tag, made.id)]).file
        job = run_job(tasks, RunOptions(jobs_dir=folder / "jobs"))
        from harbor_tasks.results.collect import collect_job
        from harbor_tasks.results.report import job_json

        local = json.loads(json.dumps(job_json(collect_job(job))))
        ref = f"{open_registry}/team/evals:1"
        pushed = push(file, ref, engine=engine)
        assert pushed.images_uploaded == (made.tag,)
        again = push(file, ref, engine=engine)
        assert again.nothing_uploaded
        assert again.digest == pushed.digest
        forget(made.id)
        shutil.rmtree(folder / "eval")
        shutil.rmtree(tasks)
        yield Shipped(ref, pushed.digest, made.tag, made.id, file, local)
        forget(made.id)


def docker(*arguments: str, check: bool = True) -> str:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=check).stdout.strip()


def forget(image: str) -> None:
    """The engine has nothing of this image any more."""
    docker("image", "rm", "--force", image, check=False)
    assert not docker("image", "inspect", image, check=False).strip("[]\n ")


@pytest.mark.registry
@pytest.mark.engine
def test_on_an_empty_root_with_the_image_of_the_registry(shipped: Shipped, tmp_path: Path) -> None:
    home, here = tmp_path / "home", tmp_path / "cwd"
    home.mkdir()
    here.mkdir()
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    words = [sys.executable, "-m", "harbor_tasks.cli", "run", shipped.ref, "--env", "docker", "--json"]
    done = subprocess.run(words, cwd=here, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    job = json.loads(done.stdout)
    assert outcome(job) == outcome(shipped.local)
    assert "building" not in done.stderr
    assert docker("image", "inspect", "--format", "{{.Id}}", shipped.image) == shipped.id
    assert {trial["versions"]["image"] for task in job["tasks"] for trial in task["trials"]} == {shipped.id}
    forget(shipped.id)  # and again: the tasks are cached, the image comes by digest
    ref = f"{shipped.ref.rpartition(':')[0]}@{shipped.digest}"
    done = subprocess.run(
        [*words[:4], ref, *words[5:]], cwd=here, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert outcome(json.loads(done.stdout)) == outcome(shipped.local)


@pytest.mark.registry
@pytest.mark.engine
def test_pull_brings_the_image_by_digest(shipped: Shipped, command: Command) -> None:
    forget(shipped.id)
    code, pulled, _ = command("pull", shipped.ref, "-o", "without")
    assert (code, pulled["images_here"]) == (0, [])
    code, document, _ = command("run", "without", "--env", "docker")
    assert code == 3
    assert (
        "is not on this engine; harbor-pack pull --images brings it; one of the same"
        in document["problems"][0]["message"]
    )
    code, pulled, _ = command("pull", shipped.ref, "-o", "with", "--images")
    assert (code, pulled["images_here"]) == (0, [shipped.image])
    assert pulled["images"][shipped.image].startswith(f"{shipped.ref.rpartition(':')[0]}@sha256:")
    code, job, _ = command("run", "without", "--env", "docker")
    assert code == 0
    assert outcome(job) == outcome(shipped.local)


@pytest.mark.registry
@pytest.mark.engine
def test_another_image_of_that_name_is_not_taken(
    shipped: Shipped, base_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = pull(shipped.ref, tmp_path / "tasks").folder
    said: list[str] = []
    with find_engine() as engine:
        forget(shipped.id)
        docker("tag", base_image, shipped.image)
        try:
            pull(shipped.ref, tmp_path / "again", images=True, engine=engine, say=said.append)
            assert any("is the bundle's image now; it was" in line for line in said)
            assert image_for_run(tasks, engine).id == shipped.id
            docker("tag", base_image, shipped.image)
            assert image_for_run(tasks, engine).id == shipped.id
            assert image_for_run(tasks, engine, by_name=True).id == shipped.id
            assert docker("image", "inspect", "--format", "{{.Id}}", shipped.image) == shipped.id
            with pytest.raises(
                AuthorError, match=r"has no claude-code in it.*harbor-pack image .* --agent claude-code"
            ):
                image_for_run(tasks, engine, agents=["claude-code"])
            docker("tag", base_image, shipped.image)
            forget(shipped.id)
            with pytest.raises(MachineError, match="is not on this engine"):
                image_for_run(tasks, engine)
            monkeypatch.setenv("HARBOR_PACK_BASE", base_image)
            made = ensure_image(tasks, engine)  # `harbor-pack image`: what a user decides on
            assert image_for_run(tasks, engine, on_event=said.append).id == made.id != shipped.id
            assert any("was made here, of the same content" in line for line in said)
            docker("image", "rm", shipped.image)
        finally:
            docker("image", "rm", shipped.image, check=False)


@pytest.mark.registry
@pytest.mark.engine
def test_an_image_that_the_engine_does_not_have(
    shipped: Shipped, packed: Packed, open_registry: str, tmp_path: Path
) -> None:
    absent = PackedImage(packed.info.manifest["image"], f"sha256:{'4' * 64}")
    file = pack(packed.tasks, tmp_path / "b.hpb", images=[absent]).file
    with pytest.raises(MachineError, match=r"the bundle's image .* \(444444444444\): the engine .*--no-images"):
        push(file, f"{open_registry}/tests/absent")
    pushed = push(file, f"{open_registry}/tests/absent", images=False)
    assert not pushed.images
    said: list[str] = []
    assert not pull(f"{open_registry}/tests/absent", tmp_path / "out", images=True, say=said.append).images_here
    assert any("is not beside it: it was pushed with --no-images" in line for line in said)


@pytest.mark.registry
@pytest.mark.engine
def test_no_engine_is_needed_when_the_images_are_there(shipped: Shipped, tmp_path: Path) -> None:
    assert push(shipped.file, shipped.ref, host="unix:///nowhere.sock").nothing_uploaded
    with pytest.raises(MachineError, match="no container engine answers"):
        push(shipped.file, shipped.ref.replace("team/", "other/"), host="unix:///nowhere.sock")
    with pytest.raises(MachineError, match="no container engine answers"):
        pull(shipped.ref, tmp_path / "out", images=True, host="unix:///nowhere.sock")
    assert not (tmp_path / "out").exists()


def test_images_are_named_after_what_is_in_them(packed: Packed) -> None:
    assert packed.info.manifest["image"] == read_manifest(packed.tasks).image
