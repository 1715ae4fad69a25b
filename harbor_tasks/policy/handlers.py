"""The author's tool_handlers.yaml, and the mapping that a task carries of it (DESIGN.md, tool_handlers.yaml)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec.fields import folded
from harbor_tasks.evalspec.load import Eval
from harbor_tasks.evalspec.paths import find_path, is_file
from harbor_tasks.evalspec.reader import Document, load_yaml, parse_yaml
from harbor_tasks.evalspec.rules import check_probes
from harbor_tasks.evalspec.schema import ProbeSpec, Table
from harbor_tasks.evalspec.validate import Checked, checked_model
from harbor_tasks.policy import fields
from harbor_tasks.policy.heuristic import patterns_of
from harbor_tasks.policy.matchers import codex_names, named
from harbor_tasks.policy.places import Place, kind_of
from harbor_tasks.policy.tools import Runtime

Overrides = Mapping[str, "str | list[str]"]

KNOWN_TOP = ("handlers", "hook_model", "case_overrides", "probes")
HANDLER_TEXTS = ("case_overrides", "probes.*.env.*", "probes.*.answers.*")
"""Where a scalar of the file is its source text, however it looks."""
KNOWN_FIELDS = (
    "match", "patterns", "input_filters", "env_checks", "prompt", "prompt_file", "reason", "input_checks", "rewrite",
    "on_pass", "on_fail", "on_unanswered",
)  # fmt: skip
#: Fields of DESIGN.md that the interceptor does not apply yet: a rule that is not applied is refused.
NOT_YET = ("requires", "max_calls", "respond", "after")
MAX_PROMPT_BYTES = 256 * 1024


@dataclass(frozen=True)
class Handler:
    """One rule: which calls it catches and what becomes of them. ``line`` counts from 1 in the author's file."""

    match: str
    patterns: tuple[str, ...]
    input_filters: tuple[str, ...] | None = None
    env_checks: dict[str, dict[str, Any]] | None = None
    prompt: str | None = None
    prompt_text: str | None = None
    prompt_file: str | None = None
    reason: str | None = None
    input_checks: tuple[dict[str, Any], ...] | None = None
    rewrite: dict[str, Any] | None = None
    on_pass: str = "none"  # noqa: S105 - no password
    on_fail: str = "deny"
    on_unanswered: str = "first_option"
    line: int | None = None

    @property
    def enforced(self) -> bool:
        """False when the handler names Bash without filters: the interceptor skips it for Bash and says so."""
        return "Bash" not in self.patterns or bool(self.input_filters)

    @property
    def gates(self) -> bool:
        """Whether some calls that it catches pass: it has a check, or it rewrites."""
        return bool(self.env_checks or self.input_checks or self.rewrite)

    @property
    def approves(self) -> bool:
        """Whether a call that passes is permitted by this, whatever the permission rules say; a rewrite does that."""
        return self.on_pass == "allow" or bool(self.rewrite)  # noqa: S105 - no password


@dataclass(frozen=True)
class Handlers:
    """All rules of an eval. ``source`` is the author's file, or None when stage 1 made them from ``inputs.tools``.

    ``probes`` are those that the file brings; a task does not carry them.
    """

    handlers: tuple[Handler, ...]
    hook_model: str | None = None
    case_overrides: dict[str, str | list[str]] = field(default_factory=dict)
    source: Path | None = None
    probes: tuple[ProbeSpec, ...] = ()


class _Probes(Table):
    """The key `probes` of the file: as in eval.yaml."""

    probes: list[ProbeSpec] = Field(default_factory=list)


def read_handlers(
    path: Path, problems: Problems, *, ev: Eval | None = None, content: str | None = None
) -> Handlers | None:  # fmt: skip
    """Read the author's tool_handlers.yaml; every fault goes to ``problems`` with its line, and the result is None.

    ``ev`` gives the project root, where a ``prompt_file`` may lie too, and the default of ``hook_model``. ``content``
    is read in place of what the file holds.
    """
    before = len(problems.errors)
    if content is None:
        document = load_yaml(path, problems, text_under=HANDLER_TEXTS)
    else:
        document = parse_yaml(content, path, problems, text_under=HANDLER_TEXTS)
    if document is None:
        return None
    top, data = Place(document, problems), document.data
    if not isinstance(data, dict):
        hint = "write 'handlers: []' when nothing is intercepted"
        if data is None:
            hint += "; without the file inputs.tools counts, and harbor-pack resolve writes it"
        says = f"must be a mapping with the key 'handlers', and is {kind_of(data)}"
        problems.error(says, path, document.line(), hint=hint, code="bad-handlers")
        return None
    top.unknown_keys(data, KNOWN_TOP)
    roots = (path.parent, path.parent if ev is None else ev.project)
    read = Handlers(
        _handlers(top, data, roots),
        fields.optional_text(top.at("hook_model"), data.get("hook_model")) or (ev.spec.models.hook if ev else None),
        _overrides(top.at("case_overrides"), data.get("case_overrides")),
        path,
        _probes(document, problems),
    )
    if len(problems.errors) != before:
        return None
    return read if ev is None else for_runtime(read, ev.spec.runner.type)


def for_runtime(handlers: Handlers, runtime: Runtime) -> Handlers:
    """The handlers with the names that their tools have in this program, after the author's own."""
    if runtime != "codex":
        return handlers
    found = (replace(one, patterns=codex_names(one.patterns)) for one in handlers.handlers)
    return replace(handlers, handlers=tuple(found))


def _handlers(top: Place, data: dict[str, Any], roots: tuple[Path, Path]) -> tuple[Handler, ...]:
    if "handlers" not in data:
        top.error("has no key 'handlers'", "write 'handlers: []' when nothing is intercepted")
        return ()
    place, entries = top.at("handlers"), data["handlers"]
    if not isinstance(entries, list):
        place.error(f"must be a list, and is {kind_of(entries)}", "write '[]' when nothing is intercepted")
        return ()
    regexes = fields.Regexes()
    found = [_handler(place.at(at), entry, regexes, roots) for at, entry in enumerate(entries)]
    regexes.report_slow()
    return tuple(handler for handler in found if handler is not None)


def _handler(place: Place, entry: Any, regexes: fields.Regexes, roots: tuple[Path, Path]) -> Handler | None:
    if not isinstance(entry, dict):
        place.error(f"must be a mapping with match and patterns, and is {kind_of(entry)}")
        return None
    place.unknown_keys(entry, (*KNOWN_FIELDS, *NOT_YET))
    for key in NOT_YET:
        if key in entry:
            hint = "take it out: a rule that is not applied protects nothing"
            place.at(key).error("is not yet supported", hint, "not-yet-supported")
    for key in ("match", "patterns"):
        if key not in entry:
            place.error(f"has no key {key!r}")
    handler = Handler(
        match=fields.text(place.at("match"), entry["match"]) or "" if "match" in entry else "",
        patterns=fields.patterns(place.at("patterns"), entry["patterns"]) or () if "patterns" in entry else (),
        input_filters=fields.input_filters(place.at("input_filters"), entry.get("input_filters"), regexes),
        env_checks=_checked(place, entry, "env_checks", fields.env_checks, regexes),
        prompt=fields.optional_text(place.at("prompt"), entry.get("prompt")),
        prompt_text=_prompt_text(place.at("prompt_file"), entry.get("prompt_file"), *roots),
        prompt_file=entry.get("prompt_file"),
        reason=fields.optional_text(place.at("reason"), entry.get("reason")),
        input_checks=_checked(place, entry, "input_checks", fields.input_checks, regexes),
        rewrite=_checked(place, entry, "rewrite", fields.rewrite, regexes),
        **{key: _choice(place, entry, key) for key in fields.CHOICES},
        line=place.line,
    )
    if handler.rewrite and named("AskUserQuestion", handler.patterns):
        hint = "give the other tools a handler of their own"
        place.at("rewrite").error("cannot stand in a handler that names AskUserQuestion, which is answered", hint)
    return handler


def _checked(place: Place, entry: dict[str, Any], key: str, check: Any, regexes: fields.Regexes) -> Any:
    """The value of a field that guards something: left out it is None, left empty it is an error."""
    return check(place.at(key), entry[key], regexes) if key in entry else None


def _choice(place: Place, entry: dict[str, Any], key: str) -> str:
    allowed = fields.CHOICES[key]
    return fields.choice(place.at(key), entry[key], allowed) if key in entry else allowed[0]


def _prompt_text(place: Place, value: Any, root: Path, project: Path) -> str | None:
    """The content of a ``prompt_file``, looked for beside the handlers and then from the project's root."""
    name = fields.optional_text(place, value)
    if name is None:
        return None
    found = find_path(name, root, project)
    if found.path is None:
        place.error(found.fault, found.hint, "path")
        return None
    try:
        content = found.path.read_bytes() if is_file(found.path) else None
    except OSError as error:
        place.error(f"cannot be read: {error.strerror or error}", code="path")
        return None
    if content is None or len(content) > MAX_PROMPT_BYTES:
        fault = "is not a file" if content is None else f"is larger than {MAX_PROMPT_BYTES // 1024} KiB"
        place.error(fault, code="path")
        return None
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n").strip("\n")
    except UnicodeDecodeError:
        place.error("is not encoded in UTF-8", "save the file as UTF-8", "encoding")
        return None


def _overrides(place: Place, value: Any) -> dict[str, str | list[str]]:
    """Question -> answer or answers, as source text."""
    if value in (None, ""):
        return {}
    if not isinstance(value, dict):
        place.error(f"must be a mapping of questions to answers, and is {kind_of(value)}")
        return {}
    seen: dict[str, str] = {}
    for question, answer in value.items():
        here = place.at(question)
        if not question.strip():
            place.error("has a question without text")
        many = answer if isinstance(answer, list) else [answer]
        if not many or not all(isinstance(item, str) for item in many):
            here.error("must be an answer or a list of answers", "write a text, or [text, text]")
        twin = seen.setdefault(folded(question), question)
        if twin != question and value[twin] != answer:
            hint = "white space and case do not tell questions apart; keep one"
            here.error(f"is the same question as {twin!r} (line {place.at(twin).line}) with another answer", hint)
    return value


def _probes(document: Document, problems: Problems) -> tuple[ProbeSpec, ...]:
    """The probes that the file brings, by the rules of eval.yaml's."""
    checked = Checked({"probes": document.data.get("probes")}, document, problems)
    found = checked_model(_Probes, checked)
    probes = found.probes if found is not None else []
    check_probes(probes, checked)
    return tuple(probes)


def handlers_of(ev: Eval, problems: Problems) -> Handlers | None:
    """The eval's handlers: the resolved file as it is, else stage 1 from ``inputs.tools``; None when it has neither."""
    if ev.handlers_file is not None:
        return read_handlers(ev.handlers_file, problems, ev=ev)
    tools = ev.spec.inputs.tools
    if not tools:
        return None
    made = []
    for at, tool in enumerate(tools):
        place = Place(ev.document, problems, ev.where("inputs", "tools", at, "prompt_file"))
        found = None if tool.prompt_file is None else find_path(tool.prompt_file, ev.root, ev.project).path
        # That it is no file was said when eval.yaml was read.
        text = _prompt_text(place, tool.prompt_file, ev.root, ev.project) if found and is_file(found) else None
        made.append(Handler(
            tool.match, patterns_of(tool.match), prompt=tool.prompt, prompt_text=text, prompt_file=tool.prompt_file,
            line=ev.line("inputs", "tools", at, "match"),
        ))  # fmt: skip
    return for_runtime(Handlers(tuple(made), ev.spec.models.hook), ev.spec.runner.type)


def task_handlers(h: Handlers, overrides: Overrides) -> dict[str, Any]:
    """The pure-JSON mapping of one task; the case's own overrides beat the eval's."""
    mapping: dict[str, Any] = {"handlers": [task_handler(handler) for handler in h.handlers]}
    if h.hook_model:
        mapping["hook_model"] = h.hook_model
    return {**mapping, "case_overrides": merged_overrides(h.case_overrides, overrides)}


def task_handler(handler: Handler) -> dict[str, Any]:
    """One handler as the interceptor reads it: what says nothing is left out."""
    prompts = [text for text in (handler.prompt, handler.prompt_text) if text]
    entry: dict[str, Any] = {
        "match": " ".join(handler.match.split()),
        "patterns": list(handler.patterns),
        "input_filters": list(handler.input_filters or ()),
        "env_checks": handler.env_checks,
        "prompt": "\n\n".join(prompts),
        "reason": handler.reason,
        "input_checks": list(handler.input_checks or ()),
        "rewrite": handler.rewrite,
    }
    chosen = {key: getattr(handler, key) for key in fields.CHOICES}
    entry.update({key: word for key, word in chosen.items() if word != fields.CHOICES[key][0]})
    return {key: value for key, value in entry.items() if value}


def merged_overrides(eval_wide: Overrides, own: Overrides) -> dict[str, str | list[str]]:
    """Both maps as one, sorted by question; of two answers to one question the later stands, the case's own last."""
    answers = {folded(question): (question, answer) for question, answer in (*eval_wide.items(), *own.items())}
    return dict(sorted(answers.values()))
