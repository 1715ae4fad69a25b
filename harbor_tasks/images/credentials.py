"""Credentials for registries, from Docker's configuration, without letting a fault there stop what needs none.

The SDK asks every configured helper before each build and pull, waits for it without end, and takes a configuration
that it cannot use for none. Here a helper is asked for its own registry only, and not for ever. What keeps the
credentials from us is said when a registry refuses us. What a helper says is never shown.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harbor_tasks.errors import MachineError, display_path

DOCKER_HUB = "docker.io"
HELPER_SECONDS = 60.0
"""That a helper may take: it may ask its user for a password first."""
_MAX_ANSWER = 1 << 16
"""Bytes of a helper's answer, which a pipe holds."""
_NOT_THERE = b"credentials not found"


class _UnusableError(Exception):
    """Why there are no credentials, where the configuration has or should have some: a part of a sentence."""


@dataclass(frozen=True)
class Credentials:
    """What to send to a registry (empty: nothing, we are anonymous); ``fault`` says what keeps credentials from us."""

    registry: str
    auth: dict[str, Any]
    fault: str | None = None

    def refused(self, doing: str, said: str) -> MachineError:
        """The registry wants credentials."""
        if self.fault is not None:
            return MachineError(f"{doing}: {self.registry} refuses ({said}), and {self.fault}")
        return MachineError(f"{doing}: {self.registry} refuses ({said}); run docker login {self.registry}")


def registry_of(reference: str) -> str:
    """The registry that a reference of an image names."""
    first, slash, _ = reference.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else DOCKER_HUB


def credentials_for(reference: str) -> Credentials:
    """The credentials for the registry of this image."""
    registry = registry_of(reference)
    try:
        config = _read_config()
        helper = _helper_of(config, registry)
        found = _ask(helper, registry) if helper is not None else None
        return Credentials(registry, _kept(config, registry) if found is None else found)
    except _UnusableError as fault:
        return Credentials(registry, {}, str(fault))


def fault_before_asking(reference: str) -> str | None:
    """What keeps us from the credentials for this image's registry, so far as is known without asking a helper."""
    try:
        _helper_of(_read_config(), registry_of(reference))
    except _UnusableError as fault:
        return str(fault)
    return None


def _config_file() -> Path:
    return Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"


def _broken(what: str) -> _UnusableError:
    return _UnusableError(f"{display_path(_config_file())} {what}; mend it, or remove it and run docker login")


def _read_config() -> dict[str, Any]:
    """The content of Docker's configuration, empty when there is none."""
    path = _config_file()
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise _broken("is no file")
        text = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _broken(f"cannot be read ({error.strerror})") from None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        at = f" (line {error.lineno}: {error.msg})" if isinstance(error, json.JSONDecodeError) else ""
        raise _broken(f"is no JSON{at}") from None
    if not isinstance(found, dict):
        raise _broken("holds no JSON object")
    return found


def _object(data: Mapping[str, Any], name: str, shown: str) -> dict[str, Any]:
    """A part of the configuration that is an object, or is not there."""
    found = data.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise _broken(f"has {shown} that is no object")
    return found


def _helper_of(config: Mapping[str, Any], registry: str) -> str | None:
    """The program that is configured for a registry; _UnusableError when it is not installed."""
    named = _object(config, "credHelpers", "a credHelpers").get(_key(registry)) or config.get("credsStore")
    if not named:
        return None
    if not isinstance(named, str):
        raise _broken("has a credHelpers or credsStore that is no text")
    program = f"docker-credential-{named}"
    if shutil.which(program) is None:
        raise _helper_fault(program, "is not installed")
    return program


def _helper_fault(program: str, what: str) -> _UnusableError:
    return _UnusableError(
        f"its credential helper {program} {what}; mend that, or take it out of Docker's config.json and "
        "run docker login"
    )


def _key(registry: str) -> str:
    """How Docker's configuration and its helpers name a registry: Docker's own by another name."""
    from docker.auth import INDEX_URL

    return str(INDEX_URL) if _host_of(registry) == DOCKER_HUB else registry


def _host_of(key: str) -> str:
    """The registry that a key of `auths` is for: some are whole URLs."""
    host = key.removeprefix("http://").removeprefix("https://").partition("/")[0]
    return DOCKER_HUB if host == f"index.{DOCKER_HUB}" else host


def _kept(config: Mapping[str, Any], registry: str) -> dict[str, Any]:
    """What the configuration itself has for a registry."""
    entries = _object(config, "auths", "an auths")
    keys = [key for key in (registry, *entries) if key in entries and _host_of(key) == _host_of(registry)]
    if not keys:
        return {}
    entry = _object(entries, keys[0], f"an entry of auths for {keys[0]}")
    token, auth = entry.get("identitytoken"), entry.get("auth")
    if isinstance(token, str) and token:
        return {"IdentityToken": token}
    if auth is None or auth == "":  # an empty entry is what docker leaves beside a helper
        return {}
    try:
        name, colon, password = base64.b64decode(auth).decode().partition(":")
    except (ValueError, TypeError):
        name = colon = password = ""
    if not colon:
        raise _broken(f"has an auth for {keys[0]} that is not NAME:PASSWORD in base64")
    return {"username": name, "password": password.strip("\0"), "serveraddress": registry}


def _ask(program: str, registry: str) -> dict[str, Any] | None:
    """What a helper has for a registry, None when nothing."""
    code, answer = _run([program, "get"], _key(registry).encode())
    if code is None:
        raise _helper_fault(program, f"did not answer within {HELPER_SECONDS:g} s")
    if code != 0 and _NOT_THERE in answer:
        return None
    try:
        found = json.loads(answer)
        name, secret = found["Username"], found["Secret"]
    except (ValueError, RecursionError, KeyError, TypeError):
        name = secret = None
    if code != 0 or not isinstance(name, str) or not isinstance(secret, str):
        raise _helper_fault(program, "fails")
    if not name and not secret:  # what docker-credential-pass says for nothing
        return None
    if name == "<token>":
        return {"IdentityToken": secret}
    return {"Username": name, "Password": secret, "ServerAddress": registry}


def _run(command: list[str], given: bytes) -> tuple[int | None, bytes]:
    """A program's exit code (None: it did not end in time) and what it said, until its own end: one that it started
    may hold the pipe for longer."""
    reader, writer = os.pipe()
    with open(reader, "rb", buffering=0) as answer:  # noqa: PTH123 - no path
        with open(writer, "wb", buffering=0) as said:  # noqa: PTH123
            try:
                process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=said, stderr=subprocess.DEVNULL, process_group=0
                )
            except OSError:
                return 1, b""
        try:
            process.communicate(given, timeout=HELPER_SECONDS)
        except subprocess.TimeoutExpired:
            _end(process)
            return None, b""
        except BaseException:
            _end(process)
            raise
        os.set_blocking(reader, False)
        return process.returncode, answer.read(_MAX_ANSWER) or b""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it, and what it has started."""
    os.killpg(process.pid, signal.SIGKILL)
    with process:  # its input is closed
        pass
