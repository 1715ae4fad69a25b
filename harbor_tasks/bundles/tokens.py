"""Answers a registry's challenge with the credentials that Docker's configuration has for it."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

import oras.auth.base
import oras.auth.utils
import requests

from harbor_tasks.bundles.faults import on_the_way
from harbor_tasks.bundles.reference import Reference
from harbor_tasks.bundles.session import Session, json_object, origin, read_all
from harbor_tasks.errors import HarborPackError, MachineError
from harbor_tasks.images.credentials import Credentials

_MAX_TOKEN = 1 << 20


class Auth(oras.auth.base.AuthBackend):  # type: ignore[misc]
    """What oras asks for the headers of a request. A token is kept until a request needs one of another scope."""

    def __init__(
        self, session: Session, reference: Reference, credentials: Credentials, scheme: str,
        refused: Callable[[requests.Response], HarborPackError],
    ) -> None:  # fmt: skip
        """``scheme`` is what the registry itself speaks; ``refused`` makes an error of an answer that is one."""
        super().__init__()
        self.session, self._reference = session, reference
        # as config.json has the keys, and as the SDK has those of a helper
        self._known = {key.lower(): value for key, value in credentials.auth.items()}
        self._scheme, self._refused, self._header = scheme, refused, dict[str, str]()

    def load_configs(self, container: Any, configs: Any = None) -> None:
        """Nothing: the credentials are there."""

    def get_auth_header(self) -> dict[str, str]:
        """What the last challenge was answered with."""
        return self._header

    def answer(self, response: requests.Response) -> bool:
        """Take up the challenge of a 401; whether there is anything (new) to say to it."""
        challenge = response.headers.get("WWW-Authenticate", "")
        scheme, basic = challenge.partition(" ")[0].lower(), self._basic()
        if scheme == "basic" and basic and self._header.get("Authorization") != basic:
            self._header = {"Authorization": basic}
            return True
        if scheme == "bearer":
            self._header = {"Authorization": f"Bearer {self._token(oras.auth.utils.parse_auth_header(challenge))}"}
            return True
        return False

    def _basic(self) -> str | None:
        name, password = self._known.get("username"), self._known.get("password")
        if not name or not password or self._known.get("identitytoken"):
            return None
        return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode("ascii")

    def _token(self, wanted: Any) -> str:
        """A token for the scope that is asked for, from where the registry says that there are tokens."""
        host, realm = self._reference.registry, wanted.realm or ""
        scheme, realm_host, _port = origin(realm)
        if not realm_host or not (scheme == "https" or scheme == self._scheme == "http"):
            raise MachineError(f"{host} names no place over https for its tokens; no credentials are sent")
        asked = {name: text for name, text in (("service", wanted.service), ("scope", wanted.scope)) if text}
        with on_the_way(f"{realm_host}, the token service of {host},"):
            response = self._ask(realm, asked)
        if response.status_code != 200:
            raise self._refused(response)
        with response, on_the_way(host):
            found = json_object(read_all(response, _MAX_TOKEN), f"the token of {host}")
        token = found.get("token") or found.get("access_token")
        if not isinstance(token, str) or re.fullmatch(r"[!-~]+", token) is None:
            raise MachineError(f"{host} gives no token that can be used")
        return token

    def _ask(self, realm: str, asked: dict[str, str]) -> requests.Response:
        """Credentials against a token."""
        identity, basic = self._known.get("identitytoken"), self._basic()
        if identity:  # what `docker login` keeps for some registries in place of a password
            form = {**asked, "grant_type": "refresh_token", "refresh_token": identity, "client_id": "harbor-pack"}
            return self.session.ask("POST", realm, data=form)
        return self.session.ask("GET", realm, params=asked, headers={"Authorization": basic} if basic else {})
