"""Registries that want tokens: the real program, with a token service that it trusts."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harbor_tasks.bundles.oci import pull, push
from harbor_tasks.errors import AuthorError, MachineError

from .conftest import Packed
from .kit import Certificate, Tokens, digest_of, docker_config, docker_registry, logged_in, serving

pytestmark = pytest.mark.registry


@pytest.fixture(scope="module")
def service(certificate: Certificate) -> Tokens:
    return Tokens(certificate)


@pytest.fixture(scope="module")
def registry(service: Tokens, certificate: Certificate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry over TLS that sends everybody to the token service for a token; its host and port."""
    with serving(service.answer, certificate) as tokens:
        auth = {
            "token": {
                "realm": f"https://{tokens}/token", "service": service.service, "issuer": "tests",
                "rootcertbundle": str(certificate.cert),
            }
        }  # fmt: skip
        with docker_registry(tmp_path_factory.mktemp("tokens"), tls=certificate, auth=auth) as host:
            yield host


@pytest.fixture(autouse=True)
def logged(
    service: Tokens, registry: str, certificate: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.asked.clear()
    service.granted = lambda _action: True
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.cert))
    monkeypatch.setenv("DOCKER_CONFIG", str(docker_config(tmp_path / "docker", logged_in(registry))))


def test_tokens_for_what_is_done(packed: Packed, service: Tokens, registry: str, tmp_path: Path) -> None:
    pushed = push(packed.file, f"{registry}/team/desk:1")
    assert pushed.uploads == 3
    assert _scopes(service) == [("repository:team/desk", {"pull"}), ("repository:team/desk", {"pull", "push"})]
    service.asked.clear()
    assert pull(f"{registry}/team/desk:1", tmp_path / "out").digest == pushed.digest
    assert _scopes(service) == [("repository:team/desk", {"pull"})]


def _scopes(service: Tokens) -> list[tuple[str, set[str]]]:
    """What tokens were asked for, as (resource, actions). The registry names the actions in no order of its own."""
    asked = [scope.rpartition(":") for scope, _ in service.asked]
    return [(resource, set(actions.split(","))) for resource, _, actions in asked]


def test_a_name_without_permission(packed: Packed, service: Tokens, registry: str, tmp_path: Path) -> None:
    service.granted = lambda action: action == "pull"
    with pytest.raises(
        AuthorError, match=r"does not let these credentials push to .*/others/desk.*; take another name"
    ):
        push(packed.file, f"{registry}/others/desk:1")
    service.granted = lambda _action: False
    with pytest.raises(AuthorError, match=r"does not let these credentials pull from .*/others/desk"):
        pull(f"{registry}/others/desk:1", tmp_path / "out")


def test_a_password_that_the_token_service_refuses(
    packed: Packed, registry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = base64.b64encode(b"tester:secret-word").decode()
    monkeypatch.setenv("DOCKER_CONFIG", str(docker_config(tmp_path / "wrong", logged_in(registry, wrong))))
    said = r"does not accept the credentials of Docker's configuration \(incorrect username or password\)"
    with pytest.raises(AuthorError, match=said) as refused:
        push(packed.file, f"{registry}/team/desk:1")
    assert "secret-word" not in str(refused.value)


def test_anonymous_tokens(
    packed: Packed, service: Tokens, registry: str, no_docker_config: Path, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    push(packed.file, f"{registry}/public/desk:1")
    monkeypatch.setenv("DOCKER_CONFIG", str(no_docker_config))
    service.granted = lambda action: action == "pull"
    assert pull(f"{registry}/public/desk:1", tmp_path / "out").bundle.digest == packed.info.digest
    with pytest.raises(AuthorError, match="does not let an anonymous user push to"):
        push(packed.file, f"{registry}/public/desk:2")


def test_an_identity_token_is_exchanged(
    packed: Packed, service: Tokens, registry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"auths": {registry: {"auth": base64.b64encode(b"x:").decode(), "identitytoken": "an-identity"}}}
    monkeypatch.setenv("DOCKER_CONFIG", str(docker_config(tmp_path / "identity", config)))
    push(packed.file, f"{registry}/team/identity:1")
    assert {form["refresh_token"] for _, form in service.asked} == {"an-identity"}
    assert {form["grant_type"] for _, form in service.asked} == {"refresh_token"}


def test_a_token_that_ended_is_asked_for_again(packed: Packed, registry: str) -> None:
    """As in a push that takes longer than a token lives: the next request gets a new one."""
    from harbor_tasks.bundles.reference import parse
    from harbor_tasks.bundles.transport import Transport

    with Transport(parse(f"{registry}/team/ended"), "push to") as transport:
        data = json.dumps({"some": "thing"}).encode()
        transport.put_blob(data, digest_of(data), len(data))
        transport.auth._header = {"Authorization": "Bearer ended"}
        other = data + b" "
        assert transport.put_blob(other, digest_of(other), len(other))
        assert transport.has_blob(digest_of(other))


def test_a_token_service_that_is_not_there(
    packed: Packed, certificate: Certificate, tmp_path: Path, service: Tokens
) -> None:
    auth = {
        "token": {
            "realm": "https://127.0.0.1:9/token", "service": "tests", "issuer": "tests",
            "rootcertbundle": str(certificate.cert),
        }
    }  # fmt: skip
    with (
        docker_registry(tmp_path / "registry", tls=certificate, auth=auth) as host,
        pytest.raises(
            MachineError, match=r"127.0.0.1, the token service of .*, cannot be reached, or hung up: Connection refused"
        ),
    ):
        push(packed.file, f"{host}/x")
