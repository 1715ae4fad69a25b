"""A bundle's image beside it, with a tiny image: by the engine, over TLS with a password, tampered with, misnamed."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harbor_tasks.bundles import PackedImage, pack
from harbor_tasks.bundles.oci import pull, push
from harbor_tasks.errors import AuthorError, MachineError
from tests.kit import tar_of_one_file

from .conftest import Packed
from .kit import docker_config, docker_registry, logged_in, make_certificate, own_address

pytestmark = [pytest.mark.registry, pytest.mark.engine]


@dataclass(frozen=True)
class Tiny:
    """An image of one file on the engine, and a bundle that names it."""

    name: str
    id: str
    file: Path

    def here(self) -> str:
        """The id of the image of that name on the engine, empty without one."""
        return docker("image", "inspect", "--format", "{{.Id}}", self.name)

    def forget(self) -> None:
        """The engine has nothing of it."""
        docker("image", "rm", "--force", self.id)
        assert not docker("image", "inspect", "--format", "{{.Id}}", self.id)


def docker(*arguments: str, data: bytes = b"") -> str:
    done = subprocess.run(["docker", *arguments], input=data, capture_output=True, check=False)
    return done.stdout.decode().strip()


def make_tiny(packed: Packed, folder: Path, name: str) -> Tiny:
    identity = docker("import", "-", name, data=tar_of_one_file(secrets.token_hex()))
    return Tiny(name, identity, pack(packed.tasks, folder / "b.hpb", images=[PackedImage(name, identity)]).file)


@pytest.fixture
def tiny(engine: str, packed: Packed, tmp_path: Path) -> Iterator[Tiny]:
    made = make_tiny(packed, tmp_path, f"harbor-pack/tiny:{secrets.token_hex(8)}")
    yield made
    made.forget()


def test_there_and_back(tiny: Tiny, open_registry: str, tmp_path: Path) -> None:
    ref = f"{open_registry}/tiny/{tiny.name[-8:]}"
    pushed = push(tiny.file, ref)
    assert pushed.images_uploaded == (tiny.name,)
    assert docker("image", "inspect", "--format", '{{join .RepoTags " "}}', tiny.id) == tiny.name  # as it was before
    again = push(tiny.file, ref)
    assert again.nothing_uploaded
    assert again.images == pushed.images
    tiny.forget()
    pulled = pull(ref, tmp_path / "out", images=True)
    assert pulled.images == pushed.images
    assert tiny.here() == tiny.id


def test_an_image_whose_name_moved_is_pushed_by_its_id(tiny: Tiny, open_registry: str, tmp_path: Path) -> None:
    other = docker("import", "-", tiny.name, data=tar_of_one_file("other"))
    assert tiny.here() == other
    ref = f"{open_registry}/tiny/{tiny.name[-8:]}"
    push(tiny.file, ref)
    tiny.forget()
    said: list[str] = []
    pull(ref, tmp_path / "out", images=True, say=said.append)
    assert tiny.here() == tiny.id
    assert any("is the bundle's image now; it was" in line for line in said)
    docker("image", "rm", "--force", other)


def test_over_tls_with_a_password(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = own_address()
    certificate = make_certificate(tmp_path, f"{'IP' if address[0].isdigit() else 'DNS'}:{address}")
    with docker_registry(tmp_path / "registry", htpasswd=True, tls=certificate, address="0.0.0.0") as listening:
        host = f"{address}:{listening.rpartition(':')[2]}"
        monkeypatch.setenv("DOCKER_CONFIG", str(docker_config(tmp_path / "docker", logged_in(host))))
        ref = f"{host}/team/tiny:1"
        with pytest.raises(MachineError, match=rf"x509.*; put the authority's .* at /etc/docker/certs.d/{host}/ca.crt"):
            push(tiny.file, ref, ca=certificate.cert)
        trusted = Path("/etc/docker/certs.d") / host
        if not os.access("/etc", os.W_OK):
            pytest.skip("only root can tell the engine of a certificate")
        try:
            trusted.mkdir(parents=True)
            (trusted / "ca.crt").write_bytes(certificate.cert.read_bytes())
            assert push(tiny.file, ref, ca=certificate.cert).images_uploaded == (tiny.name,)
            tiny.forget()
            assert pull(ref, tmp_path / "out", images=True, ca=certificate.cert).images_here == (tiny.name,)
            assert tiny.here() == tiny.id
        finally:
            (trusted / "ca.crt").unlink(missing_ok=True)
            trusted.rmdir()


def test_an_engine_takes_no_http_from_elsewhere(tiny: Tiny, tmp_path: Path) -> None:
    with docker_registry(tmp_path / "registry", address="0.0.0.0") as listening:
        host = f"{own_address()}:{listening.rpartition(':')[2]}"
        with pytest.raises(MachineError, match=f"add {host} to its insecure-registries"):
            push(tiny.file, f"{host}/x", plain_http=True)


def test_an_engine_that_is_refused(tiny: Tiny, guarded_registry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for credentials that a registry takes from us and, a moment later, no more from the engine."""
    from harbor_tasks.bundles.reference import parse
    from harbor_tasks.bundles.stored_images import OneEngine, _ask
    from harbor_tasks.bundles.transport import Transport

    place = f"{guarded_registry}/x"
    with OneEngine(None, None) as engines, Transport(parse(place), "push to") as transport:
        docker("tag", tiny.id, f"{place}:1")
        with pytest.raises(AuthorError, match=rf"refuses \(.*\); run docker login {guarded_registry}"):
            _ask(engines.get(), transport, f"images/{place}/push", {"tag": "1"}, f"push the image to {place}")


@pytest.mark.parametrize("what", ["manifest", "layer"])
def test_a_flipped_byte_of_the_image_is_refused(tiny: Tiny, tmp_path: Path, what: str) -> None:
    with docker_registry(tmp_path / "registry") as host:
        digest = push(tiny.file, f"{host}/x").images[tiny.name].rpartition("sha256:")[2]
        tiny.forget()
        blobs = tmp_path / "registry/data/docker/registry/v2/blobs/sha256"
        if what == "layer":
            manifest = json.loads((blobs / digest[:2] / digest / "data").read_text())
            digest = manifest["layers"][0]["digest"].removeprefix("sha256:")
        stored = blobs / digest[:2] / digest / "data"
        data = bytearray(stored.read_bytes())
        data[len(data) // 2] ^= 1
        stored.write_bytes(bytes(data))
        with pytest.raises(MachineError):
            pull(f"{host}/x", tmp_path / "out", images=True)
    assert not tiny.here()
    assert not (tmp_path / "out").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".out")]


def test_a_strangers_image_takes_no_name_that_is_not_ours(
    engine: str, packed: Packed, open_registry: str, tmp_path: Path
) -> None:
    tiny = make_tiny(packed, tmp_path, f"debian-of-a-stranger:{secrets.token_hex(4)}")
    try:
        push(tiny.file, f"{open_registry}/tiny/stranger")
        tiny.forget()
        pulled = pull(f"{open_registry}/tiny/stranger", tmp_path / "out", images=True)
        assert pulled.images_here == (tiny.name,)
        assert docker("image", "inspect", "--format", "{{.Id}}", tiny.id) == tiny.id
        assert not tiny.here()
    finally:
        tiny.forget()
