"""A registry on loopback that holds one small image, or refuses everybody: enough for an engine to pull from."""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.kit import tar_of_one_file

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


@dataclass
class Image:
    """The parts of an image by their digests."""

    manifest: str
    blobs: dict[str, bytes] = field(default_factory=dict)


def small_image(text: str) -> Image:
    """An image of one file."""
    layer = tar_of_one_file(text)
    blobs: dict[str, bytes] = {}

    def add(data: bytes) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        blobs[digest] = data
        return {"digest": digest, "size": len(data)}

    diff = f"sha256:{hashlib.sha256(layer).hexdigest()}"
    config = {
        "architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": [diff]},
        "history": [{"created": "1970-01-01T00:00:00Z"}],
    }  # fmt: skip
    manifest = {
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": {"mediaType": "application/vnd.docker.container.image.v1+json", **add(json.dumps(config).encode())},
        "layers": [
            {"mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip",
             **add(gzip.compress(layer, mtime=0))}
        ],
    }  # fmt: skip
    return Image(add(json.dumps(manifest).encode())["digest"], blobs)


@contextmanager
def registry(image: Image | None) -> Iterator[str]:
    """Serves the image under every name and tag; without one every request is unauthorized. Its host and port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if image is None:
                self.reply(401, b'{"errors":[{"code":"UNAUTHORIZED"}]}', {"WWW-Authenticate": 'Basic realm="test"'})
                return
            kind, _, name = self.path.rpartition("/")
            digest = name if name.startswith("sha256:") else image.manifest
            data = b"{}" if self.path == "/v2/" else image.blobs.get(digest)
            if data is None:
                self.reply(404, b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}', {})
            else:
                kind = MANIFEST if kind.endswith("/manifests") else "application/octet-stream"
                self.reply(200, data, {"Content-Type": kind, "Docker-Content-Digest": digest})

        do_HEAD = do_GET  # noqa: N815 - the name is the method's

        def reply(self, status: int, data: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {"Docker-Distribution-Api-Version": "registry/2.0", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        def log_message(self, *_args: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
