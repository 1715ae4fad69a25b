"""References to the caller's environment."""

from __future__ import annotations

import pytest

from harbor_tasks.environments.variables import UnsetError, fill_in, resolve_value


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ("plain", "plain"), ("$A", "1"), ("${A}", "1"), ("${B:-two}", "two"),
        ("${EMPTY:-two}", "two"), ("${EMPTY}", ""), ("a $A b", "a $A b"), ("x${A}", "x${A}"), ("$A$A", "$A$A"),
    ],
)  # fmt: skip
def test_a_value_of_the_eval_is_a_whole_reference_or_a_literal(value: str, result: str) -> None:
    assert resolve_value(value, {"A": "1", "EMPTY": ""}) == result


def test_a_servers_text_may_hold_references() -> None:
    assert fill_in("Bearer ${A}, ${B:-two}, $A", {"A": "1"}) == "Bearer 1, two, $A"
    assert fill_in("$A", {"A": "1"}) == "1"


def test_an_unset_one_is_named() -> None:
    with pytest.raises(UnsetError, match="B"):
        resolve_value("$B", {})
    with pytest.raises(UnsetError, match="B"):
        fill_in("Bearer ${B}", {})
