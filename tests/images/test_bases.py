"""Bases: from this machine, from a registry on loopback, from one that refuses or is not there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harbor_tasks.environments.engine import Engine
from harbor_tasks.errors import AuthorError, MachineError
from harbor_tasks.images.bases import find_base, is_pinned, repository
from harbor_tasks.images.credentials import registry_of

from .registry import registry, small_image

pytestmark = pytest.mark.engine


@pytest.fixture
def pulled(sdk: Engine) -> Iterator[Callable[[str], None]]:
    """Notes images that a test pulls; they are removed after it."""
    names: list[str] = []
    yield names.append
    for name in names:
        sdk.client.images.remove(name, force=True)


def test_a_base_that_is_not_here_is_pulled_and_known_by_its_digest(sdk: Engine, pulled: Callable[[str], None]) -> None:
    image = small_image("pulled")
    said: list[str] = []
    with registry(image) as host:
        base = find_base(sdk, f"{host}/team/base:1", said.append)
        pulled(f"{host}/team/base:1")
        assert said == [f"pulling {host}/team/base:1"]
        assert base.digest == f"{host}/team/base@{image.manifest}"
        assert str(base) == f"{host}/team/base:1 ({base.digest})"
        pinned = find_base(sdk, base.digest, said.append)
    assert (pinned.id, str(pinned)) == (base.id, base.digest)
    assert len(said) == 1


def test_a_base_can_be_pulled_by_its_digest(sdk: Engine, pulled: Callable[[str], None]) -> None:
    image = small_image("pulled by digest")
    with registry(image) as host:
        base = find_base(sdk, f"{host}/base@{image.manifest}", lambda _line: None)
        pulled(f"{host}/base@{image.manifest}")
    assert base.digest == f"{host}/base@{image.manifest}"


def test_an_image_that_the_registry_does_not_have_is_the_authors_error(sdk: Engine) -> None:
    image = small_image("other")
    with registry(image) as host:
        image.blobs.clear()
        with pytest.raises(AuthorError, match=rf"base image {host}/gone:1 is not here and cannot be pulled: .*unknown"):
            find_base(sdk, f"{host}/gone:1", lambda _line: None)


def test_a_registry_that_cannot_be_reached_points_to_the_base_made_without_one(sdk: Engine) -> None:
    with registry(None) as host:
        pass
    with pytest.raises(MachineError, match=r"cannot be reached .*--base harbor-pack-base:bookworm") as error:
        find_base(sdk, f"{host}/base:1", lambda _line: None)
    assert "\n" not in str(error.value)
    assert '{"message"' not in str(error.value)


@pytest.mark.parametrize("helper", [None, "not-installed"])
def test_a_registry_that_refuses_is_named_and_so_is_the_helper_that_should_have_known(
    helper: str | None, sdk: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"credsStore": helper} if helper else {}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with registry(None) as host, pytest.raises(MachineError) as error:
        find_base(sdk, f"{host}/base:1", lambda _line: None)
    assert f"{host} refuses" in str(error.value)
    assert ("docker-credential-not-installed" in str(error.value)) is (helper is not None)
    assert (f"docker login {host}" in str(error.value)) is (helper is None)


def test_an_id_that_is_not_here_cannot_be_pulled(sdk: Engine) -> None:
    with pytest.raises(MachineError, match="cannot be pulled"):
        find_base(sdk, f"sha256:{'0' * 64}", lambda _line: None)


@pytest.mark.parametrize(
    ("reference", "where", "name"),
    [
        ("debian:12", "docker.io", "debian"),
        ("team/base", "docker.io", "team/base"),
        ("localhost/base:1", "localhost", "localhost/base"),
        ("reg.example.test:5000/a/b:1", "reg.example.test:5000", "reg.example.test:5000/a/b"),
        ("a.b/c@sha256:1", "a.b", "a.b/c"),
        ("host:5000/c", "host:5000", "host:5000/c"),
    ],
)
def test_a_reference_names_a_registry_and_a_repository(reference: str, where: str, name: str) -> None:
    assert (registry_of(reference), repository(reference)) == (where, name)


def test_only_digests_and_ids_are_pinned() -> None:
    digest = f"sha256:{'a' * 64}"
    assert [is_pinned(text) for text in (digest, f"debian@{digest}", f"debian:12@{digest}")] == [True] * 3
    assert [is_pinned(text) for text in ("debian:12", "debian", "debian@sha256:a", f"sha256:{'a' * 63}")] == [False] * 4
