from __future__ import annotations

import pytest

from harbor_tasks.policy.handlers import Handler
from harbor_tasks.policy.shadows import Shadow, shadow_on


def handler(*patterns: str, filters: tuple[str, ...] = ()) -> Handler:
    return Handler("m", patterns, input_filters=filters or None)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (handler("mcp__a__*"), handler("mcp__a__delete")),
        (handler("*"), handler("Read", "mcp__*")),
        (handler("*"), handler("Bash", filters=("rm",))),
        (handler("B*"), handler("Bash", filters=("rm",))),
        (handler("Task"), handler("Agent")),
        (handler("AskUserQuestion", "Read"), handler("AskUserQuestion")),
        (handler("Bash", filters=("rm", "mv")), handler("Bash", filters=("rm",))),
        (handler("*", filters=("rm",)), handler("Bash", "Read", filters=("rm",))),
        (handler("mcp__a__*"), handler("Bash", "mcp__a__x")),  # its Bash part is not enforced anyway
        (handler("mcp__*__?*"), handler("mcp__a__b*")),
    ],
    ids=str,
)
def test_a_handler_all_whose_calls_an_earlier_one_catches_is_hidden(first: Handler, second: Handler) -> None:
    shadow = shadow_on([first, second], 1)
    assert shadow is not None
    assert shadow.whole
    assert shadow.by == 0


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (handler("mcp__a__delete"), handler("mcp__a__*")),
        (handler("Bash", filters=("rm",)), handler("Bash", filters=("mv",))),
        (handler("Bash", filters=("rm",)), handler("Bash", filters=("rm", "mv"))),
        (handler("Bash"), handler("Bash", filters=("rm",))),  # skipped for want of filters
        (handler("Bash", filters=("rm",)), handler("*")),
        (handler("*", filters=("rm",)), handler("Bash", filters=("mv",))),
        (handler("mcp__a_b__*"), handler("mcp__a-b__*")),
    ],
    ids=str,
)
def test_a_handler_with_calls_of_its_own_is_not_hidden(first: Handler, second: Handler) -> None:
    shadow = shadow_on([first, second], 1)
    assert shadow is None or not shadow.whole


def test_several_handlers_hide_one_together() -> None:
    handlers = [handler("Read"), handler("Bash", filters=("rm",)), handler("Read", "Bash", filters=("rm",))]
    assert shadow_on(handlers, 2) == Shadow(("Read", "Bash"), 0, True)


def test_what_is_lost_of_several_patterns_is_told() -> None:
    handlers = [handler("Edit"), handler("AskUserQuestion"), handler("mcp__a__*", "AskUserQuestion")]
    assert shadow_on(handlers, 2) == Shadow(("AskUserQuestion",), 1, False)


def test_a_patch_is_an_edit_on_codex_only() -> None:
    handlers = [handler("Write"), handler("apply_patch")]
    assert shadow_on(handlers, 1, "codex") == Shadow(("apply_patch",), 0, True)
    assert shadow_on(handlers, 1) is None
