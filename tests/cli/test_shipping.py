"""The commands `bundle` and `verify`: what they print, their JSON, their exit codes, which image they name."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.bundles import unpack
from harbor_tasks.cli import answer
from harbor_tasks.resources import resource
from harbor_tasks.tasks.build import build
from harbor_tasks.tasks.manifest import read_manifest

NOWHERE = "unix:///nowhere.sock"
DIGEST = "sha256:" + "5" * 64


class Shell:
    """Runs commands in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str | Path) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        code = answer([str(argument) for argument in arguments])
        out, err = self._capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    def json(self, *arguments: str | Path) -> Any:
        """The one document of a command that does not fail."""
        code, out, err = self(*arguments, "--json")
        assert code == 0, err
        return json.loads(out)


@pytest.fixture
def sh(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A shell in an empty folder, without an engine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCKER_HOST", NOWHERE)
    return Shell(capsys)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(resource("examples") / "starter", tmp_path_factory.mktemp("built") / "tasks").out


def test_an_eval_is_packed_and_verified(sh: Shell, built: Path) -> None:
    eval_dir = resource("examples") / "starter"
    packed = sh.json("bundle", eval_dir, "-o", "a.hpb", "--no-image")
    assert packed["file"] == "a.hpb"
    assert packed["size"] == Path("a.hpb").stat().st_size
    assert packed["tasks"] == len(read_manifest(built).tasks)
    assert sh.json("bundle", built, "-o", "b.hpb", "--no-image")["digest"] == packed["digest"]
    assert sh.json("verify", "a.hpb") == packed
    assert sh.json("verify", built)["digest"] == packed["digest"]
    unpack(Path("a.hpb"), Path("t"))
    assert sh.json("verify", "t", "--expect", packed["digest"])["digest"] == packed["digest"]


def test_what_is_printed_is_the_file_and_the_digest(sh: Shell, built: Path) -> None:
    code, out, err = sh("bundle", built, "--no-image")
    first, digest = out.splitlines()
    assert (code, err) == (0, "")
    assert first.startswith(f"{read_manifest(built).name}")
    assert digest.startswith("sha256:")
    file = first.partition(":")[0]
    code, out, err = sh("verify", file)
    assert (code, err, out.splitlines()[1]) == (0, "", digest)
    assert out.startswith(f"{file}: ")


def test_a_folder_gets_the_file_under_its_name(sh: Shell, built: Path) -> None:
    Path("dist").mkdir()
    assert Path(sh.json("bundle", built, "-o", "dist", "--no-image")["file"]).parent == Path("dist")


def test_the_image_is_named_as_it_is_asked_for(sh: Shell, built: Path) -> None:
    tag = read_manifest(built).image
    named = sh.json("bundle", built, "-o", "a.hpb", "--image-digest", DIGEST)
    assert named["images"] == [{"name": tag, "digest": DIGEST}]
    code, _, err = sh("bundle", built, "-o", "b.hpb")
    assert code == 0
    assert "no image is named: " in err
    assert sh.json("verify", "b.hpb")["images"] == []
    assert sh("bundle", built, "-o", "c.hpb", "--image")[0] == 3
    unpack(Path("a.hpb"), Path("t"))
    assert sh.json("bundle", "t", "-o", "again.hpb")["digest"] == named["digest"]


@pytest.mark.parametrize("digest", ["5" * 64, "sha256:5", "latest", "sha256:" + "G" * 64])
def test_a_digest_that_is_none_is_refused(sh: Shell, built: Path, digest: str) -> None:
    code, _, err = sh("bundle", built, "-o", "a.hpb", "--image-digest", digest)
    assert code == 2
    assert "is no digest" in err
    assert not Path("a.hpb").exists()


def test_options_that_exclude_each_other_are_refused(sh: Shell, built: Path) -> None:
    assert sh("bundle", built, "--no-image", "--image-digest", DIGEST)[0] == 2


def test_a_secret_stops_it(sh: Shell, tmp_path: Path) -> None:
    case = tmp_path / "e/cases/c"
    (case / "files").mkdir(parents=True)
    (case / "input.yaml").write_text("prompt: x\n")
    (case / "files/key.txt").write_text("a\n-----BEGIN RSA " + "PRIVATE KEY-----\n")
    (tmp_path / "e/eval.yaml").write_text("{name: e, dataset: {path: cases}, execution: {prompt: x}}")
    code, out, err = sh("bundle", "e", "-o", "e.hpb", "--no-image")
    assert (code, out) == (2, "")
    assert "error: c/environment/files/key.txt:2 (case c): private-key: " in err
    assert "bundle: {allow_secrets: [{path: c/environment/files/key.txt, rule: private-key}]}" in err
    code, out, _ = sh("bundle", "e", "-o", "e.hpb", "--no-image", "--json")
    assert "private-key" in out
    assert not Path("e.hpb").exists()


def test_a_broken_bundle_is_the_authors_fault(sh: Shell, built: Path) -> None:
    sh("bundle", built, "-o", "a.hpb", "--no-image")
    data = bytearray(Path("a.hpb").read_bytes())
    data[len(data) // 2] ^= 1
    Path("a.hpb").write_bytes(data)
    code, out, err = sh("verify", "a.hpb")
    assert (code, out) == (2, "")
    assert err.startswith("error: a.hpb: ")
    assert sh("verify", "nothing.hpb")[0] == 2


@pytest.mark.engine
def test_an_image_that_is_on_the_engine_is_named_by_its_id(
    sh: Shell, engine: str, base_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DOCKER_HOST")
    (tmp_path / "e/cases/c").mkdir(parents=True)
    (tmp_path / "e/cases/c/input.yaml").write_text("prompt: x\n")
    sandbox = f"{{image: '{base_image}', sealed: false}}"
    (tmp_path / "e/eval.yaml").write_text(
        f"{{name: e, dataset: {{path: cases}}, execution: {{prompt: x}}, sandbox: {sandbox}}}"
    )
    inspected = subprocess.run(
        [engine, "image", "inspect", "--format", "{{.Id}}", base_image], capture_output=True, text=True, check=True
    )
    packed = sh.json("bundle", "e", "-o", "e.hpb")
    assert packed["images"] == [{"name": base_image, "digest": inspected.stdout.strip()}]
