"""A model that judges are asked of: the scripted endpoint, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from harbor_tasks.endpoint import Endpoint, Replies, Reply, uses

KEY = "sk-ant-judge-0123456789"
QUALITY = {"name": "quality", "prompt": "Good? {{ outputs }}", "feedback_type": "int", "score_range": [1, 5]}


def gives(score: Any, why: str = "because", **more: Any) -> Reply:
    """A verdict."""
    return replace(uses("verdict", {"rationale": why, "score": score}), **more)


def by_type(body: Mapping[str, Any]) -> Reply:
    """A verdict of the type that is asked for."""
    asked = body["tools"][0]["input_schema"]["properties"]["score"]
    return gives(True if asked["type"] == "boolean" else 4, "as asked")


class Bench:
    """A model to be asked, and the environment of a caller who knows where it is."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint, self.url = endpoint, ""
        self.replies(choose=by_type)

    def replies(self, *replies: Reply, **more: Any) -> None:
        """What it says from now on."""
        self.url = self.endpoint.add("bench", Replies(*replies, **more))

    @property
    def asked(self) -> list[Mapping[str, Any]]:
        """The bodies of the requests."""
        return [one.body for one in self.endpoint.recorded("bench")]

    @property
    def env(self) -> dict[str, str]:
        """Of a caller with a key."""
        return {"ANTHROPIC_BASE_URL": self.url, "ANTHROPIC_API_KEY": KEY}
