"""What the model may answer, as pydantic models, and the handlers and probes that this becomes.

The schema is one that structured output takes: no maps, no optional keys, no unions. A map is a list of named parts, a
value of any type is JSON in a text. What loosens a policy (`rewrite`, `on_pass: allow`, `on_fail: ask`) cannot be
proposed at all: that is the author's to write.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from harbor_tasks.policy.handlers import Handler
from harbor_tasks.policy.matchers import named

CODEX_QUESTIONS = "request_user_input"
"""Of Codex; a rule lets it pass and answers when it has run."""
QUESTION_TOOLS = ("AskUserQuestion", CODEX_QUESTIONS)
MAX_FAULTS = 20
_MANY = 24
_PROBES = 8


class ProposalError(ValueError):
    """An answer that is no proposal; ``faults`` are lines in plain words."""

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(faults))


def _plain(text: str) -> str:
    """A text that can stand in a file and in a terminal."""
    if any(not ch.isprintable() and ch not in "\n\t" for ch in text):
        raise ValueError("holds control characters, or characters that cannot be written")
    return text


def _value(text: str) -> str:
    _json(_plain(text))
    return text


def _mapping(text: str) -> str:
    if not isinstance(_json(_plain(text)), dict):
        raise ValueError("is not a JSON object")  # noqa: TRY004 - for pydantic
    return text


def _json(text: str) -> Any:
    def constant(name: str) -> Any:
        raise ValueError(f"{name} is no JSON")

    try:
        data = json.loads(text, parse_constant=constant)
        json.dumps(data, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON: {str(error)[:100]}") from None
    return data


Short = Annotated[str, Field(max_length=200), AfterValidator(_plain)]
Long = Annotated[str, Field(max_length=1000), AfterValidator(_plain)]
JsonValue = Annotated[str, Field(max_length=2000), AfterValidator(_value)]
JsonObject = Annotated[str, Field(max_length=8000), AfterValidator(_mapping)]


class Part(BaseModel):
    """Base of all parts: nothing is guessed, nothing else may stand there."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)


class Variable(Part):
    """An environment variable with a value."""

    name: Short
    value: Long


class EnvCheck(Part):
    """What must hold for one environment variable; lists and texts that are not used are empty."""

    variable: Short
    must_contain: Annotated[list[Short], Field(max_length=_MANY)]
    host_in: Annotated[list[Short], Field(max_length=_MANY)]
    equals: Short
    matches: Short


class InputCheck(Part):
    """What must hold for one field of the tool's input."""

    field: Short
    """A dotted path."""
    op: Literal["lt", "le", "gt", "ge", "eq", "ne", "in", "not_in", "matches", "glob", "exists"]
    value_json: JsonValue
    """The value to compare with, as JSON."""


class Answer(Part):
    """A question with its answer, or its answers where several may be chosen."""

    question: Long
    answers: Annotated[list[Long], Field(min_length=1, max_length=_MANY)]


class ProposedProbe(Part):
    """A call that shows a rule at work."""

    name: Short
    """A few words."""
    tool: Short
    input_json: JsonObject
    """The tool's input, as a JSON object."""
    env: Annotated[list[Variable], Field(max_length=_MANY)]
    answers: Annotated[list[Answer], Field(max_length=_MANY)]
    """For questions only: the answers that must be given."""


class Rule(Part):
    """The rule for one entry."""

    entry: int
    """The number of the entry."""
    patterns: Annotated[list[Short], Field(max_length=_MANY)]
    input_filters: Annotated[list[Long], Field(max_length=_MANY)]
    env_checks: Annotated[list[EnvCheck], Field(max_length=_MANY)]
    input_checks: Annotated[list[InputCheck], Field(max_length=_MANY)]
    reason: Long
    caught: Annotated[list[ProposedProbe], Field(max_length=_PROBES)]
    """At least two calls that it must catch."""
    passing: Annotated[list[ProposedProbe], Field(max_length=_PROBES)]
    """At least two calls that must pass."""


class Proposal(Part):
    """A rule for each entry, in any order, and answers that the rules give word for word."""

    rules: Annotated[list[Rule], Field(max_length=200)]
    case_overrides: Annotated[list[Answer], Field(max_length=100)]


def schema() -> dict[str, Any]:
    """The JSON schema of a proposal."""
    return Proposal.model_json_schema()


def parse_proposal(answer: str | Any) -> Proposal:
    """The proposal of an answer (JSON in a text, or data already); ProposalError says all that is wrong with it."""
    try:
        if isinstance(answer, str):
            return Proposal.model_validate_json(answer)
        return Proposal.model_validate(answer)
    except ValidationError as error:
        raise ProposalError(list(_faults(error))) from None
    except RecursionError:
        raise ProposalError(["the answer is nested too deep"]) from None


def _faults(error: ValidationError) -> Iterable[str]:
    found = error.errors(include_url=False, include_input=False, include_context=False)
    for fault in found[:MAX_FAULTS]:
        place = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in fault["loc"]).lstrip(".")
        says = fault["msg"].removeprefix("Value error, ")
        yield f"{place or 'the answer'}: {says[:1].lower()}{says[1:]}"
    if len(found) > MAX_FAULTS:
        yield f"and {len(found) - MAX_FAULTS} more faults"


def handler_of(rule: Rule, entry: Handler) -> dict[str, Any]:
    """The rule as it stands in tool_handlers.yaml; ``match`` and the prompt for questions are the author's."""
    data: dict[str, Any] = {"match": " ".join(entry.match.split()), "patterns": list(rule.patterns)}
    if rule.input_filters:
        data["input_filters"] = list(rule.input_filters)
    if rule.env_checks:
        data["env_checks"] = {check.variable: _env_check(check) for check in rule.env_checks}
    if rule.input_checks:
        data["input_checks"] = [
            {"field": check.field, "op": check.op, "value": json.loads(check.value_json)} for check in rule.input_checks
        ]
    if named("AskUserQuestion", rule.patterns):
        if entry.prompt:
            data["prompt"] = entry.prompt
        if entry.prompt_file:
            data["prompt_file"] = entry.prompt_file
    data["reason"] = " ".join(rule.reason.split())
    return data


def _env_check(check: EnvCheck) -> dict[str, Any]:
    given = {
        "host_in": list(check.host_in), "must_contain": list(check.must_contain), "equals": check.equals,
        "matches": check.matches,
    }  # fmt: skip
    return {key: value for key, value in given.items() if value}


def probes_of_rule(rule: Rule) -> list[dict[str, Any]]:
    """The rule's probes as they stand in tool_handlers.yaml: caught ones first; names are made different later."""
    return [_probe(rule, one, passes=False) for one in rule.caught] + [
        _probe(rule, one, passes=True) for one in rule.passing
    ]


def _probe(rule: Rule, one: ProposedProbe, *, passes: bool) -> dict[str, Any]:
    asks = named("AskUserQuestion", rule.patterns) and one.tool in QUESTION_TOOLS
    expected = "none" if passes else "answer" if asks else "deny"
    data: dict[str, Any] = {
        "name": " ".join(one.name.split()), "tool": one.tool, "input": json.loads(one.input_json),
        "expect": expected,
    }  # fmt: skip
    if one.env:
        data["env"] = {variable.name: variable.value for variable in one.env}
    if one.answers:
        data["answers"] = overrides_of(one.answers)
    return data


def overrides_of(answers: Iterable[Answer]) -> dict[str, str | list[str]]:
    """Question -> answer, or list of answers."""
    return {one.question: one.answers[0] if len(one.answers) == 1 else list(one.answers) for one in answers}
