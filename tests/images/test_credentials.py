"""Credentials from Docker's configuration: its own, its helpers', and what is said when it has faults."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import time
from pathlib import Path

import pytest
from docker.auth import INDEX_URL

from harbor_tasks.images import credentials
from harbor_tasks.images.credentials import credentials_for


@pytest.fixture(autouse=True)
def docker_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where Docker's configuration is looked for; programs are looked for in it first."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def add_helper(folder: Path, name: str, script: str) -> None:
    program = folder / f"docker-credential-{name}"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_credentials_come_from_the_helper_of_the_registry_and_never_show(tmp_path: Path) -> None:
    add_helper(tmp_path, "mine", """echo '{"ServerURL": "x", "Username": "me", "Secret": "hunter-9"}'""")
    add_helper(tmp_path, "fails", "echo secret-7; exit 1")
    helpers = {"credHelpers": {"a.example.test": "mine", "b.example.test": "fails"}}
    (tmp_path / "config.json").write_text(json.dumps(helpers))
    assert credentials_for("a.example.test/x").auth["Password"] == "hunter-9"
    broken = credentials_for("b.example.test/x")
    assert broken.auth == {}
    assert str(broken.fault).startswith("its credential helper docker-credential-fails fails; ")
    assert "secret-7" not in str(broken.refused("base image x", "401"))
    assert credentials_for("c.example.test/x").auth == {}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("{", "is no JSON (line 1: Expecting property name enclosed in double quotes)"),
        ("\udcff", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[]", "holds no JSON object"),
        ('{"auths": [1]}', "has an auths that is no object"),
        ('{"auths": {"docker.io": 1}}', "has an entry of auths for docker.io that is no object"),
        (f'{{"auths": {{"{INDEX_URL}": {{"auth": "bm8="}}}}}}', "that is not NAME:PASSWORD in base64"),
        ('{"auths": {"docker.io": {"auth": 5}}}', "that is not NAME:PASSWORD in base64"),
        ('{"credHelpers": ["docker.io"]}', "has a credHelpers that is no object"),
        ('{"credsStore": {"a": "b"}}', "that is no text"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_named_and_gives_no_credentials(
    config: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(config, errors="surrogateescape")
    found = credentials_for("debian")
    assert found.auth == {}
    assert str(found.fault).startswith(f"{tmp_path}/config.json ")
    assert said in str(found.fault)
    assert str(found.fault).endswith("; mend it, or remove it and run docker login")


def test_a_configuration_that_is_no_readable_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "config.json"
    place.symlink_to("config.json")
    assert f"{place} cannot be read (Too many levels" in str(credentials_for("debian").fault)
    place.unlink()
    os.mkfifo(place)
    assert f"{place} is no file" in str(credentials_for("debian").fault)
    place.unlink()
    place.mkdir()
    assert f"{place} is no file" in str(credentials_for("debian").fault)
    place.rmdir()
    place.write_text("{}")
    monkeypatch.setenv("DOCKER_CONFIG", str(place))  # the file in place of its folder
    assert "cannot be read (Not a directory)" in str(credentials_for("debian").fault)


def test_an_entry_for_another_registry_is_not_in_the_way(tmp_path: Path) -> None:
    entries = {"other.test": {"auth": "?"}, "https://a.test/v1/": {"auth": base64.b64encode(b"me:a:b").decode()}}
    (tmp_path / "config.json").write_text(json.dumps({"auths": entries}))
    found = credentials_for("a.test/x")
    assert (found.auth["username"], found.auth["password"], found.fault) == ("me", "a:b", None)


def running(group: int) -> list[str]:
    """The processes of a group that are more than a name that nobody has asked for yet."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _parent, its_group = path.read_text().rpartition(")")[2].split()[:3]
            found += [path.parent.name] if int(its_group) == group and state != "Z" else []
    return found


@pytest.mark.parametrize("script", ["exec sleep 600", "sleep 600", "sleep 600 & sleep 600", "yes"])
def test_a_helper_that_does_not_end_is_ended(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_helper(tmp_path, "held", f"echo $$ > {tmp_path}/pid\n{script}")
    (tmp_path / "config.json").write_text('{"credsStore": "held"}')
    monkeypatch.setattr(credentials, "HELPER_SECONDS", 0.5)
    found = credentials_for("a.test/x")
    assert "docker-credential-held did not answer within 0.5 s; " in str(found.fault)
    assert not running(int((tmp_path / "pid").read_text()))


def test_what_a_helper_leaves_running_holds_nothing_up(tmp_path: Path) -> None:
    script = f"""sleep 5 & echo $! > {tmp_path}/pid; echo '{{"Username": "<token>", "Secret": "t"}}'"""
    add_helper(tmp_path, "daemon", script)
    (tmp_path / "config.json").write_text('{"credsStore": "daemon"}')
    began = time.monotonic()
    assert credentials_for("a.test/x").auth == {"IdentityToken": "t"}
    assert time.monotonic() - began < 4
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_a_helper_that_knows_nothing_leaves_it_to_the_configuration(tmp_path: Path) -> None:
    add_helper(tmp_path, "empty", "echo credentials not found in native keychain; exit 1")
    entry = {"auth": base64.b64encode(b"me:pass").decode()}
    (tmp_path / "config.json").write_text(json.dumps({"credsStore": "empty", "auths": {"a.test": entry}}))
    assert credentials_for("a.test/x").auth["password"] == "pass"
    assert credentials_for("b.test/x") == credentials.Credentials("b.test", {})
