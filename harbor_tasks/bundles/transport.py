"""One repository of a registry, over the distribution API: oras' client, with what it leaves open closed here.

Overridden, each for what was seen in oras 0.2.43:

- ``auth``: it knows no Basic challenge beside tokens (to one it sends the password to a host named after the realm),
  keeps the first token for every scope, and reads neither DOCKER_CONFIG nor identity tokens.
- ``do_request``: no time limits; any fault is tried five times within two minutes, 429 and 503 never; redirects, and a
  ``Location`` on another host, get the credentials; answers of any size are read into memory.
- ``put_upload`` reads the whole file into memory; ``upload_manifest`` leaves open which bytes are sent, and so their
  digest; ``get_manifest`` and ``download_blob`` verify no digest: three methods of our own stand for them.
"""

from __future__ import annotations

import hashlib
import io
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any
from urllib.parse import urljoin

import oras.container
import oras.provider
import oras.utils
import requests

from harbor_tasks.bundles.faults import PassingError, on_the_way, refusal
from harbor_tasks.bundles.reference import DIGEST, Reference
from harbor_tasks.bundles.session import Session, digest_of, json_object, origin, pieces, read_all
from harbor_tasks.bundles.tokens import Auth
from harbor_tasks.errors import HarborPackError, MachineError
from harbor_tasks.images.credentials import credentials_for

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
_MANIFEST_TYPES = (
    MANIFEST_TYPE, "application/vnd.docker.distribution.manifest.v2+json", "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)  # fmt: skip
_ACCEPT = {"Accept": ", ".join(_MANIFEST_TYPES)}
MAX_MANIFEST = 4 << 20
"""Bytes; the specification's own limit."""
_MAX_REFUSAL = 1 << 16
_MAX_REDIRECTS = 5
TRIES = 3
PAUSE = 0.5
"""Seconds before the second try; before the third it is twice that."""
PATIENCE = 30.0
"""Seconds that one request may wait for its other tries."""
SLOWEST = 1024
"""Bytes a second, on average: below it, after ``PATIENCE``, a download is given up."""
_AGAIN = {429, 500, 502, 503, 504}


Body = bytes | IO[bytes] | io.RawIOBase
"""What is sent; a file is sent from where it stands."""
Progress = Callable[[int, int], None]
"""Gets the bytes that are done, and all there are."""


class Transport(oras.provider.Registry):  # type: ignore[misc]
    """The requests for one repository; ``doing`` is what for: "push to" or "pull from"."""

    def __init__(self, reference: Reference, doing: str, *, plain_http: bool = False, ca: Path | None = None) -> None:
        super().__init__(hostname=reference.api_host, insecure=plain_http)
        self.reference, self.doing = reference, doing
        self.uploads = 0
        """Blobs and manifests that were uploaded."""
        self.uploaded = 0
        """Bytes that were uploaded."""
        self.session = Session(ca, loopback=reference.is_loopback)
        self.container = oras.container.Container("x", registry=reference.api_host)
        # not by its own reading of a name, to which `localhost/x` is one of Docker Hub's
        self.container.namespace, self.container.repository = None, reference.repository
        self.credentials = credentials_for(reference.name)
        if not plain_http and reference.is_loopback and self._speaks_http():
            self.prefix = "http"
        self.auth = Auth(self.session, reference, self.credentials, self.prefix, self.refused)

    def __enter__(self) -> Transport:
        return self

    def __exit__(self, *_: object) -> None:
        self.session.close()

    @property
    def _base(self) -> str:
        return f"{self.prefix}://{self.reference.api_host}"

    def _speaks_http(self) -> bool:
        """Whether this machine's own registry has no TLS. One that has refuses the question (400), or hangs up."""
        try:
            with self.session.ask("GET", f"http://{self.reference.api_host}/v2/", timeout=(5, 5)) as response:
                return response.status_code != 400
        except requests.exceptions.RequestException:
            return False

    def do_request(
        self, url: str, method: str = "GET", data: Body | None = None,
        headers: dict[str, str] | None = None, json: None = None, stream: bool = False,
    ) -> requests.Response:  # fmt: skip
        """One request, answered: below 300, or 404. All else is an error of ours; faults that pass are waited for.

        Without ``stream`` the body is not read. A file as ``data`` is sent once: whoever uploads must begin again with
        a new session.
        """
        assert json is None  # oras' own bytes; ours have a known digest
        until, tries = time.monotonic() + PATIENCE, 1 if hasattr(data, "read") else TRIES
        for attempt in range(1, tries + 1):
            try:
                response = self._answered(method, url, data, dict(headers or {}))
            except PassingError:
                wait = attempt * PAUSE
                if attempt == tries or time.monotonic() + wait > until:
                    raise
            else:
                if response.status_code < 300 or response.status_code == 404:
                    if not stream:
                        response.close()
                    return response
                wait = _wait(response, attempt)
                if response.status_code not in _AGAIN or attempt == tries or time.monotonic() + wait > until:
                    raise self.refused(response)
                response.close()
            time.sleep(wait)
        raise AssertionError("the last try returns or raises")

    def refused(self, response: requests.Response) -> HarborPackError:
        """The error for an answer that is one."""
        with response, on_the_way(self.reference.registry):
            body = read_all(response, _MAX_REFUSAL, whole=False)
        after, status = response.headers.get("Retry-After"), response.status_code
        if status == 401 and "insufficient_scope" in response.headers.get("WWW-Authenticate", ""):
            status = 403  # it knows who we are
        return refusal(status, body, self.reference, self.doing, self.credentials, after)

    def _answered(self, method: str, url: str, data: Body | None, headers: dict[str, str]) -> requests.Response:
        """The answer, after one challenge at most; credentials go to the registry's own host alone."""
        begin = data.tell() if data is not None and not isinstance(data, bytes) else 0
        ours = origin(url) == origin(self._base)
        with on_the_way(self.reference.registry):
            response = self._send(method, url, headers | (self.auth.get_auth_header() if ours else {}), data)
            if response.status_code != 401 or not ours:
                return response
            with response:
                if not self.auth.answer(response):
                    raise self.refused(response)
            if data is not None and not isinstance(data, bytes):
                data.seek(begin)
            return self._send(method, url, headers | self.auth.get_auth_header(), data)

    def _send(self, method: str, url: str, headers: Mapping[str, str], data: Body | None = None) -> requests.Response:
        """One request; redirects of GET and HEAD are followed, without credentials to another host."""
        for _ in range(_MAX_REDIRECTS + 1):
            response = self.session.ask(method, url, data=data, headers=headers)
            if not response.is_redirect or method not in {"GET", "HEAD"}:
                return response
            response.close()
            there = self._elsewhere(url, response.headers["location"])
            if origin(there) != origin(url):
                headers = {name: text for name, text in headers.items() if name != "Authorization"}
            url = there
        raise MachineError(f"{self.reference.registry} sends us round in circles")

    def _elsewhere(self, here: str, location: str) -> str:
        """Where an answer sends us on to: never from https to http."""
        try:
            there = urljoin(here, location)
        except ValueError:
            there = ""
        scheme, host, _port = origin(there)
        if scheme not in {"http", "https"} or not host or (scheme == "http" and origin(here)[0] == "https"):
            where = "from https to http" if scheme == "http" else "to no address"
            raise MachineError(f"{self.reference.registry} sends us on {where}; not followed")
        return there

    def _get_location(self, r: requests.Response, container: Any) -> str:  # noqa: ARG002 - as oras has it
        """Where an upload goes on: absolute, or in relation to the request."""
        location = r.headers.get("Location")
        if not location:
            raise MachineError(f"{self.reference.registry} began an upload, but does not say where it goes on")
        return self._elsewhere(str(r.url), location)

    def has_blob(self, digest: str) -> bool:
        """Whether the repository has it already."""
        return bool(self.blob_exists({"digest": digest}, self.container))

    def put_blob(self, source: Path | bytes, digest: str, size: int, progress: Progress | None = None) -> bool:
        """Upload a file or bytes, unless the repository has it; whether it had to be."""
        if self.has_blob(digest):
            return False
        for attempt in range(1, TRIES + 1):
            try:
                with io.BytesIO(source) if isinstance(source, bytes) else _Watched(source, size, progress) as stream:
                    self.put_upload(stream, self.container, {"digest": digest, "size": size})
                break
            except PassingError as error:  # an upload that broke is begun again, in a session of its own
                if attempt == TRIES:
                    raise PassingError(f"{error} (the upload broke off, {attempt} tries)") from None
                time.sleep(attempt * PAUSE)
        self.uploads += 1
        self.uploaded += size
        return True

    def put_upload(self, blob: IO[bytes] | io.RawIOBase, container: Any, layer: dict[str, Any]) -> requests.Response:
        """One upload, sent as a stream."""
        start = f"{self.prefix}://{container.upload_blob_url()}"
        began = self.do_request(start, "POST", headers={"Content-Length": "0"})
        if began.status_code == 404:
            raise self._no_repository()
        url = oras.utils.append_url_params(self._get_location(began, container), {"digest": layer["digest"]})
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(layer["size"])}
        done = self.do_request(url, "PUT", data=blob, headers=headers)
        if done.status_code == 404:
            raise PassingError(f"{self.reference.registry} has forgotten the upload that it began")
        return done

    def _no_repository(self) -> HarborPackError:
        return refusal(404, b"", self.reference, self.doing, self.credentials, None)

    def _manifest_url(self, name: str) -> str:
        return f"{self.prefix}://{self.container.manifest_url(name)}"

    def digest_of_tag(self, name: str) -> str | None:
        """The digest that a tag has now, as the registry says; None without one."""
        response = self.do_request(self._manifest_url(name), "HEAD", headers=dict(_ACCEPT))
        found = response.headers.get("Docker-Content-Digest", "")
        return found if response.status_code == 200 and DIGEST.fullmatch(found) else None

    def manifest(self, name: str) -> tuple[dict[str, Any], str, bytes] | None:
        """A manifest by tag or digest: what it holds, its digest, its bytes, verified; None when there is none."""
        response = self.do_request(self._manifest_url(name), headers=dict(_ACCEPT), stream=True)
        with response, on_the_way(self.reference.registry):
            if response.status_code == 404:
                return None
            body = read_all(response, MAX_MANIFEST)
        where, digest = f"the manifest {name} of {self.reference.name}", digest_of(body)
        for wanted in (name if DIGEST.fullmatch(name) else None, response.headers.get("Docker-Content-Digest")):
            if wanted and wanted != digest:
                raise MachineError(f"{where} is another: its bytes are {digest}, not {wanted[:80]}; refused")
        return json_object(body, where), digest, body

    def put_manifest(self, body: bytes, tag: str) -> bool:
        """Upload a manifest under a tag, unless the tag has it already; whether it had to be."""
        digest = digest_of(body)
        if self.digest_of_tag(tag) == digest:
            return False
        done = self.do_request(self._manifest_url(tag), "PUT", data=body, headers={"Content-Type": MANIFEST_TYPE})
        if done.status_code == 404:
            raise self._no_repository()
        told = done.headers.get("Docker-Content-Digest", digest)
        if told != digest:
            raise MachineError(f"{self.reference.registry} changed the manifest: it has {told[:80]}, not {digest}")
        self.uploads += 1
        self.uploaded += len(body)
        return True

    def json_blob(self, digest: str, size: int) -> dict[str, Any]:
        """A small blob that holds a JSON object, verified."""
        response = self.get_blob(self.container, digest, stream=True)
        with response, on_the_way(self.reference.registry):
            self._require_blob(response, digest)
            body = read_all(response, size)
        if digest_of(body) != digest:
            raise self._wrong(f"the configuration {digest}", digest_of(body))
        return json_object(body, f"the blob {digest} of {self.reference.name}")

    def download(self, digest: str, size: int, into: Path, progress: Progress | None = None) -> None:
        """A blob into a new file, verified while it comes; tried again where the way broke."""
        for attempt in range(1, TRIES + 1):
            try:
                self._download(digest, size, into, progress)
                break
            except PassingError as error:
                if attempt == TRIES:
                    raise PassingError(f"{error} ({attempt} tries)") from None
                time.sleep(attempt * PAUSE)

    def _download(self, digest: str, size: int, into: Path, progress: Progress | None) -> None:
        host, began, got, hashed = self.reference.registry, time.monotonic(), 0, hashlib.sha256()
        response = self.get_blob(self.container, digest, stream=True)
        with response, into.open("wb") as out:
            self._require_blob(response, digest)
            coming = pieces(response)
            while piece := self._next(coming):
                got += len(piece)
                if got > size:
                    raise MachineError(f"{host} sends more than the {size} bytes of {digest}; refused")
                hashed.update(piece)
                out.write(piece)
                if progress is not None:
                    progress(got, size)
                passed = time.monotonic() - began
                if passed > PATIENCE and got < SLOWEST * passed:
                    raise MachineError(f"{host} is too slow: {got} bytes in {passed:.0f} s")
        if got < size:
            raise PassingError(f"{host} sent {got} of the {size} bytes of {digest}")
        if f"sha256:{hashed.hexdigest()}" != digest:
            raise self._wrong(f"the bundle's file {digest}", f"sha256:{hashed.hexdigest()}")

    def _next(self, coming: Iterator[bytes]) -> bytes:
        with on_the_way(self.reference.registry):
            return next(coming, b"")

    def _require_blob(self, response: requests.Response, digest: str) -> None:
        if response.status_code != 200:
            place = self.reference.name
            raise MachineError(f"{place} has lost the blob {digest} that its manifest names; push it again")

    def _wrong(self, what: str, found: str) -> MachineError:
        return MachineError(f"{self.reference.registry} sends wrong bytes for {what}: they are {found}; refused")


class _Watched(io.FileIO):
    """A file that tells how much of it was read."""

    def __init__(self, path: Path, size: int, progress: Progress | None) -> None:
        super().__init__(path)
        self._whole, self._progress = size, progress

    def read(self, size: int | None = -1, /) -> bytes:
        """Read."""
        data = super().read(size)
        if self._progress is not None:
            self._progress(self.tell(), self._whole)
        return data


def _wait(response: requests.Response, attempt: int) -> float:
    """Seconds before the next try."""
    after = response.headers.get("Retry-After", "")
    return float(after) if re.fullmatch(r"[0-9]{1,6}", after) else attempt * PAUSE
