"""What a bundle may not bring to the machine where Harbor runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from harbor_tasks.bundles import pack, unpack
from harbor_tasks.environments.harbor_guard import named_variables, require_harmless
from harbor_tasks.errors import AuthorError
from harbor_tasks.resources import resource
from harbor_tasks.tasks.build import build
from harbor_tasks.tasks.manifest import read_manifest

Change = Callable[[Path], object]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The starter's tasks, of an eval that takes variables in every way."""
    folder = tmp_path_factory.mktemp("eval") / "starter"
    shutil.copytree(resource("examples", "starter"), folder)
    (folder / ".git").mkdir()
    text = (folder / "eval.yaml").read_text()
    assert "execution:\n" in text
    env = '  env: {A: "$HP_ONE", B: "${HP_TWO:-two}", C: "costs $five"}\n'
    (folder / "eval.yaml").write_text(text.replace("execution:\n", f"execution:\n{env}"))
    return build(folder, folder.parent / "out").out


@pytest.fixture
def pulled(built: Path, tmp_path: Path) -> Path:
    """The same, as they come out of a bundle."""
    pack(built, tmp_path / "starter.hpb")
    unpack(tmp_path / "starter.hpb", tmp_path / "pulled")
    return tmp_path / "pulled"


def tasks_of(folder: Path) -> Mapping[str, Path]:
    return {task.case_id: folder / task.directory for task in read_manifest(folder).tasks}


def check(folder: Path, *, at_server: bool) -> None:
    require_harmless(folder, read_manifest(folder), tasks_of(folder), at_server=at_server)


def takes(name: str) -> Change:
    def change(task: Path) -> None:
        toml = task / "task.toml"
        toml.write_text(toml.read_text().replace("[environment.env]\n", f'[environment.env]\nX = "{name}"\n'))
        assert name in toml.read_text()

    return change


@pytest.mark.parametrize("at_server", [False, True])
def test_what_build_writes_is_harmless_in_a_bundle_and_out_of_it(built: Path, pulled: Path, at_server: bool) -> None:
    assert named_variables(read_manifest(pulled)) == ["HP_ONE", "HP_TWO"]
    check(built, at_server=at_server)
    check(pulled, at_server=at_server)


@pytest.mark.parametrize("name", ["${HARBOR_API_KEY}", "${HARBOR_API_KEY:-}", "$HARBOR_API_KEY"])
def test_nobodys_task_gets_the_servers_key(built: Path, tmp_path: Path, name: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(built, copy)
    takes(name)(copy / "ada")
    with pytest.raises(AuthorError, match=r"asks for \$HARBOR_API_KEY, the key of the server itself") as caught:
        check(copy, at_server=True)
    assert [problem.where.case for problem in caught.value.problems] == ["ada"]
    check(copy, at_server=False)


@pytest.mark.parametrize("name", ["${AWS_SECRET}", "${AWS_SECRET:-none}", "$AWS_SECRET"])
@pytest.mark.parametrize("at_server", [False, True])
def test_a_bundle_takes_no_variable_that_its_eval_does_not_name(pulled: Path, name: str, at_server: bool) -> None:
    takes(name)(pulled / "grace")
    with pytest.raises(AuthorError, match=r"takes \$AWS_SECRET, of which its eval says nothing"):
        check(pulled, at_server=at_server)


@pytest.mark.parametrize(
    "name",
    [
        "environment/docker-compose.yaml",
        "environment/Dockerfile",
        "environment/compose.yml",
        "environment/singularity-compose.yaml",
        "tests/docker-compose.yaml",
        "tests/Dockerfile",
    ],
)
def test_a_bundle_brings_nothing_that_harbor_would_start(pulled: Path, name: str) -> None:
    (pulled / "ada" / name).write_text("services: {main: {volumes: ['/:/host']}}\n")
    with pytest.raises(AuthorError, match="Harbor would start what this file of the bundle says") as caught:
        check(pulled, at_server=True)
    assert [problem.where.path for problem in caught.value.problems] == [pulled / "ada" / name]
