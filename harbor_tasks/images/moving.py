"""Pushes and pulls by the engine, which speaks to the registry itself."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from harbor_tasks.images.builder import SILENCE_SECONDS, Engine, refusal
from harbor_tasks.images.output import BuildFailedError, read_answer


def fault_of(engine: Engine, what: str, parameters: Mapping[str, str], auth: Mapping[str, Any]) -> str | None:
    """Ask the engine's API at ``what``, with credentials as Docker has them; what went wrong in one line, or None."""
    from docker.auth import encode_header
    from docker.errors import DockerException

    api = engine.client.api
    try:
        response = api.post(
            f"{api.base_url}/v{api.api_version}/{what}", params=dict(parameters), stream=True,
            timeout=(60, SILENCE_SECONDS), headers={"X-Registry-Auth": encode_header(dict(auth)).decode("ascii")},
        )  # fmt: skip
        with closing(response):
            said = None if response.ok else refusal(response.text)
            if response.ok:
                read_answer(response.iter_content(None))
    except BuildFailedError as error:
        said = error.message
    except (DockerException, OSError) as error:
        said = str(error)
    return None if said is None else " ".join(said.split())[:300]
