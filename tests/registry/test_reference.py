"""References: what is one, what is wrong with one, and where requests for it go."""

from __future__ import annotations

import re

import pytest

from harbor_tasks.bundles.reference import is_reference, parse
from harbor_tasks.bundles.transport import Transport
from harbor_tasks.errors import AuthorError

DIGEST = f"sha256:{'0a' * 32}"


@pytest.mark.parametrize(
    ("text", "registry", "repository", "asked"),
    [
        ("localhost/x", "localhost", "x", "latest"),
        ("localhost:5000/team/desk:2", "localhost:5000", "team/desk", "2"),
        (f"reg.example/team/desk:2@{DIGEST}", "reg.example", "team/desk", DIGEST),
        (f"reg.example/a.b/c__d/e--f@{DIGEST}", "reg.example", "a.b/c__d/e--f", DIGEST),
        ("oci://reg.example/x", "reg.example", "x", "latest"), ("[::1]:5000/x", "[::1]:5000", "x", "latest"),
        ("docker.io/user/desk", "docker.io", "user/desk", "latest"),
    ],
)  # fmt: skip
def test_what_a_reference_names(text: str, registry: str, repository: str, asked: str) -> None:
    assert is_reference(text)
    found = parse(text)
    assert (found.registry, found.repository, found.asked) == (registry, repository, asked)
    assert str(found) == text.removeprefix("oci://")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("desk", "names no registry"), ("team/desk", "names no registry"), ("", "names no registry"),
        ("./x/y", "names no registry"), ("/x/y", "names no registry"), ("reg.example", "names no registry"),
        ("reg.example/", "names no registry"), ("reg..example/x", "names no registry"),
        ("reg.example:70000/x", "names no registry"), ("reg.example:0/x", "names no registry"),
        ("reg.example/X", "small letters only"), ("reg.example/x//y", "cannot be the name of a repository"),
        ("reg.example/../x", "cannot be the name of a repository"), ("reg.example/x:", "cannot be a tag"),
        ("reg.example/x:a/b", "cannot be a tag"), ("reg.example/x:-", "cannot be a tag"),
        (f"reg.example/{'x' * 300}", "cannot be the name"), (f"reg.example/x:{'y' * 129}", "cannot be a tag"),
        ("reg.example/x@sha256:12", "64 hexadecimal digits"), ("reg.example/x@", "64 hexadecimal digits"),
        ("http://reg.example/x", "no http:// in front; a registry over http is named without it, with --plain-http"),
        ("https://reg.example/x", "no https:// in front"), ("reg.example/x y", "cannot be the name"),
        ("reg.example/x?y=1", "cannot be the name"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_one(text: str, said: str) -> None:
    with pytest.raises(AuthorError, match=re.escape(said)) as refused:
        parse(text)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("text", ["user:secret-word@reg.example/x", "https://user:secret-word@reg.example/x"])
def test_a_password_is_not_shown(text: str) -> None:
    with pytest.raises(AuthorError) as refused:
        parse(text)
    assert "secret-word" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("reg.example/x:2", "https://reg.example/v2/x/manifests/2"),
        ("reg.example:5000/a.b/c", "https://reg.example:5000/v2/a.b/c/manifests/2"),
        ("localhost/x", "http://localhost/v2/x/manifests/2"),  # and not Docker Hub's repository of that name
    ],
)
def test_where_requests_go(text: str, url: str) -> None:
    with Transport(parse(text), "pull from", plain_http=url.startswith("http:")) as transport:
        assert transport._manifest_url("2") == url


def test_docker_hub_answers_at_another_name() -> None:
    host = parse("docker.io/user/desk").api_host
    assert host.endswith(".docker.io")
    assert parse(f"{host}/user/desk").api_host == host


@pytest.mark.parametrize(
    ("text", "loopback"),
    [
        ("localhost:5000/x", True), ("127.9.9.9/x", True), ("[::1]:5000/x", True), ("localhost.example/x", False),
        ("LocalHost:5000/x", True), ("10.0.0.1/x", False), ("reg.example/x", False), ("127.0.0.1.example/x", False),
    ],
)  # fmt: skip
def test_loopback(text: str, loopback: bool) -> None:
    assert parse(text).is_loopback is loopback
