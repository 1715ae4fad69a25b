"""Prices of Anthropic's models: by exact name, for each kind of token, and none for what is not listed."""

from __future__ import annotations

import pytest

from harbor_tasks.evalspec.schema import DEFAULT_HOOK_MODEL
from harbor_tasks.pricing import CACHE_READ, CACHE_WRITE, INPUT, KINDS, OUTPUT, PRICES, cost_usd, price_of

MILLION = dict.fromkeys(KINDS, 1_000_000)


@pytest.mark.parametrize(
    ("model", "prices"),
    [
        ("claude-opus-5-5", (4, 20, 5, 0.2)), ("claude-opus-4-1-20250805", (15, 75, 18.75, 1.5)),
        ("claude-opus-4-20250514", (15, 75, 18.75, 1.5)), ("claude-opus-4-5", (5, 25, 6.25, 0.5)),
        ("claude-sonnet-5-5", (2, 10, 2.5, 0.1)), ("claude-sonnet-4-5-20250929", (3, 15, 3.75, 0.3)),
        ("claude-sonnet-4-5[1m]", (3, 15, 3.75, 0.3)), ("claude-fable-5-1", (10, 50, 12.5, 0.25)),
        ("claude-haiku-4-5-20251001", (1, 5, 1.25, 0.1)), ("claude-3-5-haiku-latest", (0.8, 4, 1, 0.08)),
        ("anthropic/claude-haiku-4-5", (1, 5, 1.25, 0.1)), ("claude-3-haiku-20240307", (0.25, 1.25, 0.3, 0.03)),
    ],
)  # fmt: skip
def test_each_kind_of_token_has_its_price(model: str, prices: tuple[float, ...]) -> None:
    kinds = (INPUT, OUTPUT, CACHE_WRITE, CACHE_READ)
    found = tuple(cost_usd(model, {kind: 1_000_000}, requests=1 if "5-5" not in model else None) for kind in kinds)
    assert found == pytest.approx(prices)
    assert cost_usd(model, MILLION) == pytest.approx(sum(prices))
    assert cost_usd(model, {}) == 0


@pytest.mark.parametrize(
    "model",
    [
        "", "opus", "sonnet", "claude", "claude-opus", "gpt-6-sol", "claude-opus-9", "claude-opus-4-5-preview",
        "claude-opus-4-55", "claude-haiku-4-5-2025", "us.anthropic.claude-haiku-4-5-20251001-v1:0",
        "claude-haiku-4-5@20251001", "x-claude-haiku-4-5", "claude-haiku-4-5\n", "CLAUDE-HAIKU-4-5",
        "claude-opus-4-5-9",
    ],
)  # fmt: skip
def test_nobody_guesses_the_price_of_another_name(model: str) -> None:
    assert price_of(model) is None
    assert cost_usd(model, MILLION) is None


def test_longer_prompts_have_their_own_price_where_it_can_be_told() -> None:
    """Together more than the limit: of one request it was long, of several nobody knows which ones were."""
    short, long = (
        {INPUT: 60_000, CACHE_READ: 40_000, OUTPUT: 1_000_000},
        {INPUT: 60_000, CACHE_READ: 40_001, OUTPUT: 10},
    )
    assert cost_usd("claude-haiku-5-5", short) == cost_usd("claude-haiku-5-5", short, requests=3)
    assert cost_usd("claude-haiku-5-5", short) == pytest.approx(0.006 + 0.0004 + 0.5)
    assert cost_usd("claude-haiku-5-5", long, requests=1) == pytest.approx(0.03 + 40_001 * 0.05 / 1e6 + 25e-6)
    assert cost_usd("claude-haiku-5-5", long) is None
    assert cost_usd("claude-haiku-5-5", long, requests=2) is None


def test_the_default_of_the_hook_has_a_price() -> None:
    assert price_of(DEFAULT_HOOK_MODEL) is PRICES["claude-haiku-4-5"]
