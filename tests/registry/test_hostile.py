"""Registries that lie, break off, refuse or stall: one clear line each, nothing written, no credentials elsewhere."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.bundles import session, transport
from harbor_tasks.bundles.oci import Pushed, pull, push
from harbor_tasks.errors import AuthorError, HarborPackError, MachineError

from .conftest import Packed
from .kit import BASIC, Certificate, Handler, MemoryRegistry, digest_of, docker_config, logged_in, serving

Spoil = Callable[[Handler], bool]


@dataclass
class Lying:
    """A registry in memory with a bundle in it, its place, and how to pull from it."""

    registry: MemoryRegistry
    host: str
    pushed: Pushed
    out: Path

    def pull(self, spoil: Spoil | None = None, name: str = "") -> HarborPackError:
        """What a pull ends with; nothing is left at its target, nor beside it."""
        self.registry.spoil = spoil or (lambda _handler: False)
        with pytest.raises(HarborPackError) as refused:
            pull(f"{self.host}/x{name or ':latest'}", self.out)
        assert not [path.name for path in self.out.parent.iterdir() if self.out.name in path.name]
        assert "\n" not in str(refused.value)
        return refused.value

    @property
    def manifest(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.registry.manifests["latest"])
        return found

    @property
    def layer(self) -> str:
        return str(self.manifest["layers"][0]["digest"])

    def store(self, manifest: object, tag: str = "latest") -> None:
        data = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
        self.registry.manifests[tag] = self.registry.manifests[digest_of(data)] = data


@pytest.fixture
def lying(packed: Packed, tmp_path: Path) -> Iterator[Lying]:
    registry = MemoryRegistry()
    with serving(registry.answer) as host:
        yield Lying(registry, host, push(packed.file, f"{host}/x"), tmp_path / "out")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting is shorter than for users."""
    monkeypatch.setattr(transport, "PAUSE", 0.05)
    monkeypatch.setattr(transport, "PATIENCE", 2.0)
    monkeypatch.setattr(session, "TIMEOUT", (2, 1))


def only(part: str, method: str = "GET") -> Callable[[Spoil], Spoil]:
    """Spoils requests of that method whose path has the part."""

    def narrowed(spoil: Spoil) -> Spoil:
        return lambda handler: handler.command == method and part in handler.path and spoil(handler)

    return narrowed


def replies(status: int, data: bytes = b"", **headers: str) -> Spoil:
    def spoil(handler: Handler) -> bool:
        handler.reply(status, data, {name.replace("_", "-"): text for name, text in headers.items()})
        return True

    return spoil


# ---- lies ----


def test_another_manifest_under_a_digest(lying: Lying) -> None:
    other = json.dumps({**lying.manifest, "annotations": {}}).encode()
    error = lying.pull(only("/manifests/")(replies(200, other)), f"@{lying.pushed.digest}")
    assert "is another: its bytes are" in str(error)
    assert isinstance(error, MachineError)


def test_a_manifest_that_is_not_what_its_header_says(lying: Lying) -> None:
    other = json.dumps({**lying.manifest, "more": 1}).encode()
    error = lying.pull(only("/manifests/")(replies(200, other, Docker_Content_Digest=lying.pushed.digest)))
    assert f"not {lying.pushed.digest}" in str(error)


def test_wrong_bytes_of_the_same_length(lying: Lying) -> None:
    data = lying.registry.blobs[lying.layer]
    error = lying.pull(only(lying.layer)(replies(200, data[:-1] + bytes([data[-1] ^ 1]))))
    assert f"sends wrong bytes for the bundle's file {lying.layer}: they are sha256:" in str(error)


def test_more_bytes_than_the_manifest_says(lying: Lying) -> None:
    error = lying.pull(only(lying.layer)(replies(200, lying.registry.blobs[lying.layer] + b"more")))
    assert "sends more than the" in str(error)


def test_more_than_the_disk_holds(lying: Lying) -> None:
    [layer] = lying.manifest["layers"]
    lying.store({**lying.manifest, "layers": [{**layer, "size": 1 << 60}]})
    assert re.search("has 1152921504606846976 bytes, and there is room for", str(lying.pull()))
    assert not [path for method, path, _ in lying.registry.seen if method == "GET" and path.endswith(lying.layer)]


def test_an_endless_body(lying: Lying) -> None:
    def pour(handler: Handler) -> bool:
        handler.reply(200, b"", {"Content-Length": "", "Connection": "close"})
        while True:
            handler.wfile.write(bytes(1 << 16))

    for part in ("/manifests/", lying.manifest["config"]["digest"], lying.layer):
        assert re.search("longer than|sends more than", str(lying.pull(only(part)(pour))))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "is no JSON"), (b"[]", "is no JSON object"), (b"\xff\xfe", "is no JSON"), (b"[" * 100_000, "is no JSON"),
        (b"{}", "is no bundle that harbor-pack pushed"), (b"null", "is no JSON object"),
    ],
)  # fmt: skip
def test_a_manifest_that_is_none(lying: Lying, body: bytes, said: str) -> None:
    lying.store(body)
    assert said in str(lying.pull())


def test_manifests_of_other_shapes(lying: Lying) -> None:
    good = lying.manifest
    [layer] = good["layers"]
    shapes: list[Any] = [
        {**good, "config": None}, {**good, "layers": []}, {**good, "layers": [layer, layer]}, {**good, "layers": None},
        {**good, "layers": [{**layer, "size": "12"}]}, {**good, "layers": [{**layer, "size": -1}]},
        {**good, "layers": [{**layer, "size": True}]}, {**good, "layers": [{**layer, "digest": "sha256:../../x"}]},
        {**good, "layers": [{**layer, "digest": "md5:aa"}]}, {**good, "annotations": None},
        {**good, "annotations": {"harbor-pack.bundle": f"sha256:{'1' * 64}"}},
    ]  # fmt: skip
    lying.store({**good, "config": {**good["config"], "mediaType": "a\nb" * 99}})
    assert "is no bundle but a ba ba b" in str(lying.pull())
    for shape in shapes:
        lying.store(shape)
        assert re.search("refused$", str(lying.pull())), shape
    assert "name different bundles" in str(lying.pull())


def test_configurations_of_other_shapes(lying: Lying) -> None:
    good = json.loads(lying.registry.blobs[lying.manifest["config"]["digest"]])
    image = {"name": "debian:bookworm", "id": f"sha256:{'2' * 64}", "manifest": f"sha256:{'3' * 64}"}
    for change, said in (
        ({"schema": 2}, "later version of harbor-pack"), ({"images": None}, "no bundle that"),
        ({"bundle": 1}, "no bundle that"), ({"images": [{"name": "x"}]}, "no bundle that"),
        ({"images": [{**image, "id": "sha256:12"}]}, "no bundle that"), ({"eval": None}, "no bundle that"),
        ({"images": [image]}, "is not one of the bundle's"),
    ):  # fmt: skip
        config = json.dumps({**good, **change}).encode()
        lying.registry.blobs[digest_of(config)] = config
        described = {**lying.manifest["config"], "digest": digest_of(config), "size": len(config)}
        lying.store({**lying.manifest, "config": described})
        assert said in str(lying.pull()), change


def test_another_bundle_than_the_configuration_names(lying: Lying, packed: Packed) -> None:
    """A layer whose digest is right, of a bundle that is whole, and not the one that was promised."""
    promised = f"sha256:{'1' * 64}"
    good = lying.manifest
    config = json.loads(lying.registry.blobs[good["config"]["digest"]]) | {"bundle": promised}
    data = json.dumps(config).encode()
    lying.registry.blobs[digest_of(data)] = data
    described = {**good["config"], "digest": digest_of(data), "size": len(data)}
    lying.store({**good, "config": described, "annotations": {"harbor-pack.bundle": promised}})
    error = lying.pull()
    assert promised in str(error) or packed.info.digest in str(error)


def test_a_layer_that_is_no_bundle(lying: Lying) -> None:
    data = b"not a bundle"
    lying.registry.blobs[digest_of(data)] = data
    layer = {**lying.manifest["layers"][0], "digest": digest_of(data), "size": len(data)}
    lying.store({**lying.manifest, "layers": [layer]})
    assert "bundle.hpb" in str(lying.pull())


def test_a_blob_that_is_gone(lying: Lying) -> None:
    del lying.registry.blobs[lying.layer]
    assert f"has lost the blob {lying.layer}" in str(lying.pull())


# ---- broken ways ----


def cut(handler: Handler) -> bool:
    handler.send_response(200)
    handler.send_header("Content-Length", "50000")
    handler.end_headers()
    handler.wfile.write(b"beginning")
    handler.hang_up()
    return True


def test_a_body_that_breaks_off(lying: Lying) -> None:
    for part in ("/manifests/", lying.layer):
        lying.registry.seen.clear()
        assert "hung up" in str(lying.pull(only(part)(cut)))
    assert sum(lying.layer in path for _, path, _ in lying.registry.seen) == 3


def test_a_broken_download_is_tried_again(lying: Lying, packed: Packed) -> None:
    faults: list[Spoil] = [cut, replies(503), replies(502)]
    lying.registry.spoil = only(lying.layer)(lambda handler: bool(faults) and faults.pop()(handler))
    assert pull(f"{lying.host}/x", lying.out).bundle.digest == packed.info.digest


def in_chunks(data: bytes, end: bytes = b"0\r\n\r\n") -> Spoil:
    def spoil(handler: Handler) -> bool:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for at in range(0, len(data), 999):
            piece = data[at : at + 999]
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        handler.wfile.write(end)
        if not end:
            handler.hang_up()
        return True

    return spoil


def test_a_body_in_chunks(lying: Lying, packed: Packed) -> None:
    registry, config = lying.registry, lying.manifest["config"]["digest"]
    parts = {
        "/manifests/": registry.manifests["latest"],
        config: registry.blobs[config],
        lying.layer: registry.blobs[lying.layer],
    }

    def spoil(handler: Handler) -> bool:
        return any(only(part)(in_chunks(data))(handler) for part, data in parts.items())

    registry.spoil = spoil
    assert pull(f"{lying.host}/x", lying.out).bundle.digest == packed.info.digest
    lying.out = lying.out.with_name("other")
    for part, data in parts.items():
        assert "hung up" in str(lying.pull(only(part)(in_chunks(data[:-1], b""))))
        assert re.search("sent .* of the|wrong bytes|no JSON", str(lying.pull(only(part)(in_chunks(data[:-1])))))


def test_a_body_that_stalls(lying: Lying) -> None:
    def stall(handler: Handler) -> bool:
        handler.send_response(200)
        handler.send_header("Content-Length", "50000")
        handler.end_headers()
        time.sleep(2.5)
        return True

    began = time.monotonic()
    assert re.search("stopped answering|hung up", str(lying.pull(only("/manifests/")(stall))))
    assert time.monotonic() - began < 10


def test_a_body_that_drips(lying: Lying, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "PATIENCE", 0.5)

    def drip(handler: Handler) -> bool:
        handler.send_response(200)
        handler.send_header("Content-Length", "50000")
        handler.end_headers()
        for _ in range(100):
            handler.wfile.write(b"x")
            time.sleep(0.1)
        return True

    began = time.monotonic()
    assert "too slow" in str(lying.pull(only(lying.layer)(drip)))
    assert "too slowly" in str(lying.pull(only("/manifests/")(drip)))
    assert time.monotonic() - began < 8


def hold(lying: Lying, size: int) -> threading.Event:
    """The registry sends the beginning of a layer and no more; set when it has."""
    reached = threading.Event()

    def begin(handler: Handler) -> bool:
        handler.send_response(200)
        handler.send_header("Content-Length", str(size))
        handler.end_headers()
        handler.wfile.write(b"beginning")
        reached.set()
        time.sleep(20)
        return True

    lying.registry.spoil = only(lying.layer)(begin)
    return reached


def test_ctrl_c_leaves_nothing(lying: Lying, tmp_path: Path) -> None:
    reached = hold(lying, 50_000)
    (tmp_path / "there").mkdir()
    words = [sys.executable, "-m", "harbor_tasks.cli", "pull", f"{lying.host}/x", "-o", "there/new/out"]
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert reached.wait(30)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=15)
        finally:
            process.kill()
    assert process.returncode == 130
    assert said.endswith("interrupted\n")
    assert not any((tmp_path / "there").iterdir())


def test_the_next_pull_removes_what_a_killed_one_left(lying: Lying, packed: Packed, tmp_path: Path) -> None:
    reached = hold(lying, packed.info.size)
    there = tmp_path / "there"
    for kept in (".hp-out-of-mine", ".hp-out-12345678", ".out-12345678"):
        (there / kept).mkdir(parents=True)
        (there / kept / "notes").touch()
    (there / ".hp-out-12345678" / ".held").touch()  # of another kind
    kept_ones = set(there.iterdir())
    words = [sys.executable, "-m", "harbor_tasks.cli", "pull", f"{lying.host}/x", "-o"]
    with (
        subprocess.Popen([*words, "a"], cwd=there) as killed,
        subprocess.Popen([*words, "b"], cwd=there) as running,
    ):
        try:
            until = time.monotonic() + 30
            while time.monotonic() < until and len(set(there.iterdir()) - kept_ones) < 2:
                time.sleep(0.05)
            assert reached.wait(30)
            killed.kill()
            killed.wait()
            lying.registry.spoil = lambda _handler: False
            pull(f"{lying.host}/x", there / "a")
            new = {path.name for path in set(there.iterdir()) - kept_ones}
            assert {name[:6] for name in new} == {"a", ".hp-b-"}  # that one is held
        finally:
            killed.kill()
            running.kill()
    assert kept_ones <= set(there.iterdir())


def test_round_in_circles(lying: Lying) -> None:
    assert "round in circles" in str(lying.pull(only("/manifests/")(replies(307, Location="/v2/x/manifests/latest"))))


def test_no_address_to_go_on(lying: Lying) -> None:
    assert "to no address" in str(lying.pull(only("/manifests/")(replies(307, Location="ftp://[::1/x"))))


def test_an_address_that_is_none_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://user:not-shown@bad host:zz")
    with pytest.raises(MachineError, match=r"reg\.example: an address on the way cannot be used .*a proxy's") as said:
        pull("reg.example/x", tmp_path / "into")
    assert "not-shown" not in str(said.value)


# ---- refusals ----


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (401, AuthorError, r"wants credentials, and there are none .*\(who are you\); run docker login"),
        (
            403,
            AuthorError,
            r"does not let an anonymous user pull from 127.0.0.1:\d+/x \(who are you\); take another name",
        ),
        (429, MachineError, r"asks to wait: too many requests \(who are you\)"),
        (500, MachineError, r"fails \(status 500\) \(who are you\); try again later"),
        (418, MachineError, r"does not give a pull from .*/x: status 418 \(who are you\)"),
    ],
)
def test_refusals(lying: Lying, status: int, kind: type[Exception], said: str) -> None:
    body = json.dumps({"errors": [{"code": "X", "message": "who are\nyou"}]}).encode()
    error = lying.pull(only("/manifests/")(replies(status, body)))
    assert isinstance(error, kind)
    assert re.search(said, str(error))
    asked = [path for method, path, _ in lying.registry.seen if method == "GET" and "/manifests/" in path]
    assert len(asked) == (3 if status in {429, 500} else 1)


def test_a_refusal_in_any_form_is_one_line(lying: Lying) -> None:
    for body in (
        b"",
        b"\xff",
        b"<html>",
        b'{"errors": 3}',
        b'{"errors": [1, {"message": null}]}',
        b"[" * 9999,
        b"x" * 99999,
    ):
        error = str(lying.pull(only("/manifests/")(replies(403, body))))
        assert len(error) < 500
        assert error.isprintable()


def test_retry_after_is_kept_to_and_bounded(lying: Lying, packed: Packed) -> None:
    faults: list[Spoil] = [replies(429, Retry_After="1")]
    lying.registry.spoil = only("/manifests/")(lambda handler: bool(faults) and faults.pop()(handler))
    began = time.monotonic()
    assert pull(f"{lying.host}/x", lying.out).bundle.digest == packed.info.digest
    assert time.monotonic() - began >= 1
    lying.out = lying.out.with_name("other")
    began = time.monotonic()
    assert "asks to wait for 3600 s" in str(lying.pull(only("/manifests/")(replies(429, Retry_After="3600"))))
    assert time.monotonic() - began < 2


# ---- pushes ----


def push_fails(lying: Lying, packed: Packed, spoil: Spoil) -> HarborPackError:
    lying.registry.blobs.clear()
    lying.registry.manifests.clear()
    lying.registry.seen.clear()
    lying.registry.spoil = spoil
    with pytest.raises(HarborPackError) as refused:
        push(packed.file, f"{lying.host}/x")
    assert "\n" not in str(refused.value)
    assert not lying.registry.manifests
    return refused.value


def test_an_upload_that_breaks_off(lying: Lying, packed: Packed) -> None:
    def break_off(handler: Handler) -> bool:
        handler.rfile.read(1000)
        handler.hang_up()
        return True

    error = push_fails(lying, packed, only("/uploads/", "PUT")(break_off))
    assert re.search(r"hung up.*\(the upload broke off, 3 tries\)", str(error))
    assert [method for method, _, _ in lying.registry.seen].count("POST") == 3


def test_an_upload_goes_on_after_faults(lying: Lying, packed: Packed) -> None:
    def answered(status: int) -> Spoil:
        def spoil(handler: Handler) -> bool:
            handler.body()
            return replies(status)(handler)

        return spoil

    lying.registry.blobs.clear()
    faults = [answered(503), answered(404)]
    lying.registry.spoil = only("/uploads/", "PUT")(lambda handler: bool(faults) and faults.pop()(handler))
    assert push(packed.file, f"{lying.host}/x:2").uploads == 3
    assert hashlib.sha256(lying.registry.blobs[lying.layer]).hexdigest() == lying.layer.removeprefix("sha256:")


@pytest.mark.parametrize(
    ("method", "part", "spoil", "said"),
    [
        ("POST", "/uploads/", replies(500), "fails .status 500"),
        ("POST", "/uploads/", replies(202), "does not say where it goes on"),
        ("POST", "/uploads/", replies(404), "has no such repository, or speaks no distribution API"),
        ("POST", "/uploads/", replies(403), "does not let an anonymous user push to"),
        ("POST", "/uploads/", replies(405), "does not take a push to .*: status 405"),
        ("POST", "/uploads/", replies(307, Location="/else"), "does not take a push to .*: status 307"),
        ("PUT", "/uploads/", replies(413), "takes no file of this size|hung up"),
        ("PUT", "/manifests/", replies(404), "has no such repository"),
        (
            "PUT",
            "/manifests/",
            replies(400, b'{"errors":[{"code":"TAG_INVALID","message":"tag is locked"}]}'),
            "locked",
        ),
        ("PUT", "/manifests/", replies(201, Docker_Content_Digest="sha256:else"), "changed the manifest"),
    ],
)
def test_pushes_that_are_refused(lying: Lying, packed: Packed, method: str, part: str, spoil: Spoil, said: str) -> None:
    def read(handler: Handler) -> bool:
        handler.body()
        return spoil(handler)

    assert re.search(said, str(push_fails(lying, packed, only(part, method)(read))))


# ---- credentials stay where they belong ----


@pytest.fixture
def elsewhere() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Another server: its host and port, and the headers of what it was asked."""
    asked: list[dict[str, str]] = []

    def answer(handler: Handler) -> None:
        asked.append(dict(handler.headers))
        handler.body()
        handler.reply(404)

    with serving(answer) as host:
        yield host, asked


def login_wanted(handler: Handler) -> bool:
    if handler.headers.get("Authorization") == f"Basic {BASIC}":
        return False
    return replies(401, WWW_Authenticate='Basic realm="tests"')(handler)


@pytest.mark.parametrize(("method", "part"), [("GET", "/blobs/"), ("POST", "/uploads/")])
def test_no_credentials_to_another_host(
    lying: Lying, packed: Packed, elsewhere: tuple[str, list[dict[str, str]]], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, method: str, part: str,
) -> None:  # fmt: skip
    host, asked = elsewhere
    monkeypatch.setenv("DOCKER_CONFIG", str(docker_config(tmp_path / "docker", logged_in(lying.host))))
    status = 307 if method == "GET" else 202

    def send_on(handler: Handler) -> bool:
        sent_on = handler.command == method and part in handler.path
        return login_wanted(handler) or (sent_on and replies(status, Location=f"http://{host}/there")(handler))

    if method == "GET":
        lying.pull(send_on)
    else:
        push_fails(lying, packed, send_on)
    assert any("Authorization" in headers for _, _, headers in lying.registry.seen)
    assert asked
    assert all("Authorization" not in headers for headers in asked)


def test_a_redirect_within_the_registry_keeps_them(
    lying: Lying, packed: Packed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(docker_config(tmp_path / "docker", logged_in(lying.host))))

    def spoil(handler: Handler) -> bool:
        if login_wanted(handler):
            return True
        if handler.path.startswith("/moved/"):
            handler.path = handler.path.removeprefix("/moved")
            return False
        return "/blobs/" in handler.path and replies(307, Location=f"/moved{handler.path}")(handler)

    lying.registry.spoil = spoil
    assert pull(f"{lying.host}/x", lying.out).bundle.digest == packed.info.digest


@pytest.mark.registry  # for openssl
def test_never_from_https_to_http(packed: Packed, certificate: Certificate, tmp_path: Path) -> None:
    registry = MemoryRegistry()
    with serving(registry.answer) as plain, serving(registry.answer, certificate) as host:
        push(packed.file, f"{host}/x", ca=certificate.cert)
        registry.spoil = only("/blobs/")(replies(307, Location=f"http://{plain}/x"))
        with pytest.raises(MachineError, match="sends us on from https to http; not followed"):
            pull(f"{host}/x", tmp_path / "out", ca=certificate.cert)
        registry.spoil = only("/uploads/", "POST")(replies(202, Location=f"http://{plain}/x"))
        registry.blobs.clear()
        with pytest.raises(MachineError, match="sends us on from https to http; not followed"):
            push(packed.file, f"{host}/x", ca=certificate.cert)


@pytest.mark.registry  # for openssl
@pytest.mark.parametrize(
    ("challenge", "said"),
    [
        ('Bearer realm="http://{elsewhere}/token",service="s"', "names no place over https for its tokens"),
        ('Bearer realm="somewhere"', "names no place over https"), ("Bearer", "names no place over https"),
        ('Bearer realm="http://[::1/"', "names no place over https"), ("Digest x", "does not accept the credentials"),
        ("", "does not accept the credentials"),
    ],
)  # fmt: skip
def test_tokens_come_over_https(
    packed: Packed, certificate: Certificate, elsewhere: tuple[str, list[dict[str, str]]], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, challenge: str, said: str,
) -> None:  # fmt: skip
    wants = challenge.replace("{elsewhere}", elsewhere[0])

    def answer(handler: Handler) -> None:
        handler.reply(401, headers={"WWW-Authenticate": wants})

    with serving(answer, certificate) as host:
        monkeypatch.setenv("DOCKER_CONFIG", str(docker_config(tmp_path / "docker", logged_in(host))))
        with pytest.raises(HarborPackError, match=said):
            pull(f"{host}/x", tmp_path / "out", ca=certificate.cert)
    assert not elsewhere[1]


@pytest.mark.parametrize("body", [b"", b"{}", b'{"token": 3}', b'{"token": "a\\nb"}', b"[]"])
def test_a_token_that_is_none(lying: Lying, body: bytes) -> None:
    def spoil(handler: Handler) -> bool:
        if handler.path.startswith("/token"):
            return replies(200, body)(handler)
        return replies(401, WWW_Authenticate=f'Bearer realm="http://{lying.host}/token",service="s",scope="a"')(handler)

    assert re.search("no token that can be used|is no JSON", str(lying.pull(spoil)))


def test_a_server_of_another_kind(packed: Packed) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host = f"127.0.0.1:{server.getsockname()[1]}"

        def greet() -> None:
            with contextlib.suppress(OSError):
                while True:
                    peer, _ = server.accept()
                    peer.sendall(b"220 mail.example ESMTP\r\n")
                    peer.close()

        threading.Thread(target=greet, daemon=True).start()
        with pytest.raises(MachineError, match=host):
            push(packed.file, f"{host}/x")
        server.shutdown(socket.SHUT_RDWR)
