"""What tokens of Anthropic's models cost, in USD; for a model that is not listed nobody guesses.

The list prices of Anthropic's own API, as its pricing page and its models' pages had them in October 2026
(platform.claude.com/docs/en/about-claude/pricing). Not in them: batches, fast mode, regional processing, tools of the
server, contracts, and the prices of other providers, whose names for the models are therefore not known here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

INPUT, OUTPUT = "input_tokens", "output_tokens"
CACHE_WRITE, CACHE_READ = "cache_creation_input_tokens", "cache_read_input_tokens"
KINDS = (INPUT, OUTPUT, CACHE_WRITE, CACHE_READ)
"""Kinds of tokens, by the names that the API has for them in `usage`; each token counts as one kind."""


@dataclass(frozen=True)
class Price:
    """USD for a million tokens of each kind; a write to the cache is one for five minutes.

    ``long``: another price for requests whose prompt (what is read from the cache included) is longer than
    ``long_from`` tokens.
    """

    input: float
    output: float
    cache_write: float
    cache_read: float
    long_from: int | None = None
    long: Price | None = None

    def of(self, usage: Mapping[str, int]) -> float:
        """What these tokens cost."""
        rates = zip(KINDS, (self.input, self.output, self.cache_write, self.cache_read), strict=True)
        return sum(usage.get(kind, 0) * rate for kind, rate in rates) / 1e6


def _price(given: float, written: float, read: float = 0.1) -> Price:
    """As most have it: writing to the cache is 1.25 of the input, reading from it a share of it."""
    return Price(given, written, given * 1.25, given * read)


_OPUS_4, _OPUS, _SONNET = _price(15, 75), _price(5, 25), _price(3, 15)
PRICES: Mapping[str, Price] = {
    "claude-fable-5-1": _price(10, 50, 0.025),
    "claude-fable-5": _price(10, 50),
    "claude-mythos-5-1": _price(10, 50, 0.025),
    "claude-mythos-5": _price(10, 50),
    "claude-opus-5-5": _price(4, 20, 0.05),
    "claude-opus-5": _OPUS,
    "claude-opus-4-8": _OPUS,
    "claude-opus-4-7": _OPUS,
    "claude-opus-4-6": _OPUS,
    "claude-opus-4-5": _OPUS,
    "claude-opus-4-1": _OPUS_4,
    "claude-opus-4-0": _OPUS_4,
    "claude-opus-4": _OPUS_4,
    "claude-sonnet-5-5": _price(2, 10, 0.05),
    "claude-sonnet-5": _price(2, 10),
    "claude-sonnet-4-6": _SONNET,
    "claude-sonnet-4-5": _SONNET,
    "claude-sonnet-4-0": _SONNET,
    "claude-sonnet-4": _SONNET,
    "claude-3-7-sonnet": _SONNET,
    "claude-haiku-5-5": Price(0.1, 0.5, 0.125, 0.01, 100_000, _price(0.5, 2.5)),
    "claude-haiku-4-5": _price(1, 5),
    "claude-3-5-haiku": _price(0.8, 4),
    "claude-3-haiku": Price(0.25, 1.25, 0.3, 0.03),
}
"""By the model's name without the date of a snapshot."""
_MORE = re.compile(r"(-20\d{6}|-latest)?(\[1m\])?", re.ASCII)


def price_of(model: str) -> Price | None:
    """The price of a model: by its name, or that of a snapshot of it (`-20251001`, `-latest`), with `[1m]` or without.

    `anthropic/` before it is passed over. None for any other name: for a model's family (`opus`) too, whose price
    changes with what it stands for.
    """
    name = model.removeprefix("anthropic/")
    found = max((known for known in PRICES if name.startswith(known)), key=len, default="")
    return PRICES[found] if found and _MORE.fullmatch(name, len(found)) else None


def cost_usd(model: str, usage: Mapping[str, int], *, requests: int | None = None) -> float | None:
    """What the tokens of some requests to a model cost; None when it cannot be told.

    ``requests``: how many they were, when that is known. Where longer prompts have another price, those of several
    requests together do not tell which of them were long.
    """
    price = price_of(model)
    if price is None:
        return None
    prompt = sum(usage.get(kind, 0) for kind in KINDS if kind != OUTPUT)
    if price.long is None or price.long_from is None or prompt <= price.long_from:
        return price.of(usage)
    return price.long.of(usage) if requests == 1 else None
