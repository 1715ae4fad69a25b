"""A bundle to push, and the real registry: open over http; with a password over TLS."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harbor_tasks.bundles import BundleInfo, pack
from harbor_tasks.resources import resource
from harbor_tasks.tasks.build import build

from .kit import Certificate, docker_config, docker_registry, logged_in, make_certificate


@dataclass(frozen=True)
class Packed:
    """Built tasks, and the bundle of them."""

    tasks: Path
    info: BundleInfo

    @property
    def file(self) -> Path:
        return self.info.file


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    """The bundle of an example."""
    folder = tmp_path_factory.mktemp("packed")
    shutil.copytree(resource("examples") / "starter", folder / "eval")
    (folder / "eval/.git").mkdir()
    tasks = build(folder / "eval", folder / "tasks").out
    return Packed(tasks, pack(tasks, folder / "starter.hpb"))


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """What the tests' registry shows, and no machine trusts."""
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="session")
def open_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """docker-registry without a password, over http; its host and port."""
    with docker_registry(tmp_path_factory.mktemp("open")) as host:
        yield host


@pytest.fixture(scope="session")
def guarded_registry(tmp_path_factory: pytest.TempPathFactory, certificate: Certificate) -> Iterator[str]:
    """docker-registry with a password, over TLS; its host and port."""
    with docker_registry(tmp_path_factory.mktemp("guarded"), htpasswd=True, tls=certificate) as host:
        yield host


@pytest.fixture(autouse=True)
def no_docker_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nobody is logged in anywhere, nothing is trusted or cached, waiting between tries is short."""
    folder = docker_config(tmp_path / "no-docker", {})
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    monkeypatch.setenv("HARBOR_PACK_CACHE", str(tmp_path / "cache"))
    proxies = [f"{name}_proxy" for name in ("http", "https", "all", "no")]
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", *proxies, *map(str.upper, proxies)):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded_registry: str) -> str:
    """The password of the guarded registry, as `docker login` keeps it; its host and port."""
    monkeypatch.setenv("DOCKER_CONFIG", str(docker_config(tmp_path / "docker", logged_in(guarded_registry))))
    return guarded_registry
