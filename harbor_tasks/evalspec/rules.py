"""Rules of eval.yaml that need more than one key, or a look at what a text means."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Sequence

from harbor_tasks.evalspec import code, envrefs, keys, secrets
from harbor_tasks.evalspec.fields import shown
from harbor_tasks.evalspec.schema import EvalSpec, Judge, McpServer, ProbeSpec, Sandbox
from harbor_tasks.evalspec.validate import Checked, Key

BUILTIN_JUDGES = ("cost_budget", "documents_consulted", "tool_calls_valid")
MODEL_AGENTS = ("claude-code", "codex")
PERMISSION_MODES = ("default", "manual", "acceptEdits", "plan", "auto", "dontAsk", "bypassPermissions")
"""Of Claude Code, as `claude --help` and its documentation name them; `manual` is `default` by another name."""
EFFORTS = {
    "claude-code": ("low", "medium", "high", "xhigh", "max"),
    # what its list of models names (0.171), and two of older ones; it passes any word on, and the provider decides
    "codex": ("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"),
}
WORKSPACE_MODES = ("repo",)

_REFERENCE = "write ${VAR}: it is taken from your environment when the eval runs"
_JUDGE_KINDS = "check, prompt, prompt_file, builtin, command, module and function"
_QUESTION_TOOLS = ("AskUserQuestion", "request_user_input", "request_user_input_async")
# Settings that would take the tool policy away from the agent program.
_POLICY_SETTINGS = ("disableAllHooks", "hooks", "allowManagedHooksOnly")


def check_rules(spec: EvalSpec, checked: Checked) -> None:
    """Report what the models cannot see."""
    _execution(spec, checked)
    _runner(spec, checked)
    for index, server in enumerate(spec.mcp_servers):
        check_server(server, checked, ("mcp_servers", index))
    _unique(checked, [server.name for server in spec.mcp_servers], "mcp_servers", "name", "server name")
    _outputs(spec, checked)
    _judges(spec, checked)
    _reward(spec, checked)
    _thresholds(spec, checked)
    _never_met(spec, checked)
    check_probes(spec.probes, checked)
    _bundle(spec, checked)
    if spec.sandbox.image and spec.sandbox.dockerfile:
        checked.error("sandbox", "dockerfile", says="is mutually exclusive with sandbox.image")
    if network_fault(spec.sandbox, spec.runner.type):
        says = f"is none, but the agent {spec.runner.type} needs its model: only other agents can run it"
        checked.warn("sandbox", "network", says=says, hint="use sandbox.network: model", code="network")


def network_fault(sandbox: Sandbox, agent: str) -> str:
    """Why this agent cannot work in the eval's network, or ""."""
    if sandbox.network == "none" and agent in MODEL_AGENTS:
        return f"sandbox.network is none, but the agent {agent} needs its model; use sandbox.network: model"
    return ""


def _bundle(spec: EvalSpec, checked: Checked) -> None:
    for index, allowed in enumerate(spec.bundle.allow_secrets):
        if allowed.rule not in secrets.RULES:
            near = keys.nearest_word(allowed.rule, secrets.RULES)
            hint = f"did you mean {shown(near)}?" if near else f"known are {', '.join(secrets.RULES)}"
            says = f"is no rule of the secrets scan: {shown(allowed.rule)}"
            checked.error("bundle", "allow_secrets", index, "rule", says=says, hint=hint)


def _execution(spec: EvalSpec, checked: Checked) -> None:
    execution = spec.execution
    given = [key for key in ("skill", "prompt", "steps") if getattr(execution, key)]
    if not given and not any(checked.is_faulty("execution", key) for key in ("skill", "prompt", "steps")):
        hint = "say what the agent is to run"
        if "steps" in execution.model_fields_set:
            checked.error("execution", "steps", says="must not be empty", hint=hint)
        else:
            checked.error("execution", says="must set one of skill, prompt, steps", hint=hint)
    for key in given[1:]:
        checked.error("execution", key, says=f"is mutually exclusive with execution.{given[0]}", hint="keep one")
    if given and execution.arguments and execution.skill is None and not checked.is_faulty("execution", "skill"):
        _arguments_of_nothing(checked, ("execution",), "a steps pipeline" if execution.steps else "a prompt")
    if execution.steps and execution.mode == "batch":
        checked.error("execution", "steps", says="is only supported in mode: case", hint="set execution.mode to case")
    _env(execution.env, checked, ("execution", "env"))
    # Folders on some machines do not tell upper from lower case.
    _unique(checked, [step.id.casefold() for step in execution.steps], "execution.steps", "id", "step id")
    for index, step in enumerate(execution.steps):
        at = ("execution", "steps", index)
        if step.skill and step.prompt:
            checked.error(*at, "prompt", says=f"is mutually exclusive with {checked.name(*at)}.skill", hint="keep one")
        elif not step.skill and not step.prompt and not checked.is_faulty(*at):
            checked.error(*at, says="must set one of skill, prompt")
        if step.prompt and step.arguments and step.skill is None and not checked.is_faulty(*at, "skill"):
            _arguments_of_nothing(checked, at, "a prompt")
        _env(step.env, checked, (*at, "env"))


def _arguments_of_nothing(checked: Checked, at: tuple[Key, ...], beside: str) -> None:
    """Arguments are given to a skill; without one they would be dropped."""
    hint = "give them to its steps" if "steps" in beside else "write what they say into the prompt, as {{ input.x }}"
    checked.error(*at, "arguments", says=f"go with a skill; beside {beside} they would be dropped", hint=hint)


def _env(env: dict[str, str], checked: Checked, at: tuple[Key, ...]) -> None:
    for name, value in env.items():
        inside = envrefs.named_inside(value)
        if envrefs.env_references(value):
            continue
        if secrets.looks_secret(name, value):
            checked.warn(*at, name, says="looks like a secret", hint=_REFERENCE, code="secret")
        elif inside:
            hint = (
                "only a whole value is one: write $VAR, ${VAR} or ${VAR:-default}, and put the rest into the variable"
            )
            says = f"is taken as it is: {inside} inside a text is no reference"
            checked.warn(*at, name, says=says, hint=hint, code="env-literal")


def _runner(spec: EvalSpec, checked: Checked) -> None:
    runner = spec.runner
    known = (
        ("permission_mode", runner.permission_mode, PERMISSION_MODES if runner.type == "claude-code" else ()),
        ("effort", runner.effort, EFFORTS[runner.type]),
        ("workspace_mode", runner.workspace_mode, WORKSPACE_MODES),
    )
    for key, value, words in known:
        if value is not None and words and value not in words and not checked.is_faulty("runner", "type"):
            near = keys.nearest_word(value, words)
            hint = f"did you mean {shown(near)}?" if near else ""
            checked.error(
                "runner", key, says=f"must be one of {', '.join(map(repr, words))}, not {shown(value)}", hint=hint
            )
    if runner.permission_mode is not None and runner.type == "codex":
        says = "has no effect on codex, which knows no such modes"
        checked.warn("runner", "permission_mode", says=says, code="no-effect")
    if runner.workspace_mode in WORKSPACE_MODES:
        says = "has no effect: each case has a workspace of its own"
        hint = "name what the agent needs of the project in hooks.before_all"
        checked.warn("runner", "workspace_mode", says=says, hint=hint, code="no-effect")
    settings = spec.runner.settings or {}
    for key in _POLICY_SETTINGS:
        if key in settings:
            hint = "remove it: the hooks of a task are those of its handlers"
            checked.error("runner", "settings", key, says="would switch the tool policy off", hint=hint)
    env = settings.get("env")
    for name, value in env.items() if isinstance(env, dict) else ():
        fault = envrefs.name_fault(name) or ("" if isinstance(value, str) else "must be a string")
        if fault:
            checked.error("runner", "settings", "env", name, says=fault)


def check_server(server: McpServer, checked: Checked, at: tuple[Key, ...]) -> None:
    """The rules of one MCP server."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", server.name, re.ASCII) or "__" in server.name:
        says = f"must be letters, digits, '-' and single '_', not {shown(server.name)}"
        checked.error(*at, "name", says=says, hint="it stands in mcp__<name>__<tool>")
    if server.command and server.url:
        checked.error(*at, "url", says=f"is mutually exclusive with {checked.name(*at)}.command", hint="keep one")
    elif server.command or server.url:
        _check_transport(server, checked, at)
    elif not checked.is_faulty(*at):
        checked.error(*at, says="must set one of command, url")
    for key, values in (("env", server.env), ("headers", server.headers)):
        for name, value in values.items():
            if secrets.looks_secret(name, value):
                checked.warn(*at, key, name, says="looks like a secret", hint=_REFERENCE, code="secret")
            _reference_inside(value, checked, (*at, key, name))
    _reference_inside(server.url or "", checked, (*at, "url"))
    for index, argument in enumerate(server.args):
        if secrets.token_in(argument):
            checked.warn(*at, "args", index, says="looks like a secret", hint="pass it in env as ${VAR}", code="secret")


def _reference_inside(value: str, checked: Checked, at: tuple[Key, ...]) -> None:
    """Not in a command's arguments, which may be a shell's."""
    inside = envrefs.named_inside(value, braces=False)
    if inside:
        says = f"is taken as it is: {inside} inside a text is no reference"
        checked.warn(*at, says=says, hint=f"write ${{{inside[1:]}}}", code="env-literal")


def _check_transport(server: McpServer, checked: Checked, at: tuple[Key, ...]) -> None:
    way, others = ("url", ("args", "env")) if server.url else ("command", ("headers",))
    if server.url and not re.match(r"https?://[^\s/]+", server.url) and "${" not in server.url:
        checked.error(*at, "url", says=f"must be an http or https URL, not {shown(server.url)}")
    for key in others:
        if getattr(server, key):
            checked.error(*at, key, says=f"has no meaning with a {way}")
    if server.type and (server.type == "stdio") != bool(server.command):
        checked.error(*at, "type", says=f"is {server.type}, which does not go with a {way}")


def _outputs(spec: EvalSpec, checked: Checked) -> None:
    for index, output in enumerate(spec.outputs):
        at = ("outputs", index)
        if output.path and output.tool:
            checked.error(*at, "tool", says=f"is mutually exclusive with {checked.name(*at)}.path", hint="keep one")
        elif not output.path and not output.tool and not checked.is_faulty(*at):
            checked.error(*at, says="must set one of path, tool")
        if output.batch_pattern and not _is_batch_pattern(output.batch_pattern):
            says = f"must hold {{n}}, the number of the case, as RFE-{{n:03d}} does, not {shown(output.batch_pattern)}"
            checked.error(*at, "batch_pattern", says=says)


def _is_batch_pattern(text: str) -> bool:
    """Whether a pattern has `{n}` and nothing else in braces; `*` is a folder that all cases share."""
    if text == "*":
        return True
    try:
        names = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
        return names != [] and set(names) == {"n"} and bool(text.format(n=1))
    except (ValueError, LookupError, TypeError):
        return False


def _judges(spec: EvalSpec, checked: Checked) -> None:
    names = [judge.name for judge in spec.judges]
    _unique(checked, names, "judges", "name", "judge name")
    for index, judge in enumerate(spec.judges):
        at, before = ("judges", index), len(checked.problems.errors)
        if judge.name == "reward":
            checked.error(*at, "name", says="must not be 'reward', which is the name of the whole")
        if not checked.is_faulty(*at):
            _judge_kind(judge, checked, at)
        if judge.check:
            for fault in code.body_faults(judge.check):
                checked.error(*at, "check", says=f"is not valid Python: {fault.message}", row=fault.row, code="python")
        if judge.if_:
            for fault in code.expression_faults(judge.if_):
                says = f"is not a Python expression: {fault.message}"
                checked.error(*at, "if", says=says, row=fault.row, code="python")
        _judge_scale(judge, checked, at)
        if judge.step:
            _judge_step(judge.step, spec, checked, at)
        if judge.check and len(checked.problems.errors) == before and code.returns_nothing(judge.check):
            hint = "let it return True or False, a number, or one of them with a reason"
            checked.error(*at, "check", says="never returns a verdict", hint=hint, code="python")


def _judge_kind(judge: Judge, checked: Checked, at: tuple[Key, ...]) -> None:
    kinds = [key for key in ("check", "prompt", "builtin", "command") if getattr(judge, key)]
    if judge.prompt_file and not judge.prompt:  # both together are one prompt
        kinds.append("prompt_file")
    if judge.module or judge.function:
        kinds.append("module")
    if not kinds:
        checked.error(*at, says=f"must set one of {_JUDGE_KINDS}")
    elif len(kinds) > 1:
        checked.error(*at, says=f"must set one of {_JUDGE_KINDS}, not {' and '.join(kinds)}", hint="keep one")
    if bool(judge.module) != bool(judge.function):
        missing = "function" if judge.module else "module"
        checked.error(*at, missing, says="is missing: module and function go together")
    if judge.module and not all(part.isidentifier() for part in judge.module.split(".")):
        checked.error(*at, "module", says=f"must be the name of a Python module, not {shown(judge.module)}")
    if judge.function and not judge.function.isidentifier():
        checked.error(*at, "function", says=f"must be the name of a function, not {shown(judge.function)}")
    if judge.builtin and judge.builtin not in BUILTIN_JUDGES:
        says = f"is {shown(judge.builtin)}, an unknown builtin judge"
        checked.error(*at, "builtin", says=says, hint=_did_you_mean(judge.builtin, BUILTIN_JUDGES))
    if judge.type in ("check", "prompt", "builtin", "command", "module") and len(kinds) == 1:
        kind = kinds[0].removesuffix("_file")
        if judge.type != kind:
            checked.error(*at, "type", says=f"is {judge.type}, but the judge sets {kinds[0]}", hint="remove type")


def _judge_scale(judge: Judge, checked: Checked, at: tuple[Key, ...]) -> None:
    if judge.score_range is None:
        return
    if judge.feedback_type == "bool":
        checked.error(*at, "score_range", says="has no meaning with feedback_type: bool", hint="remove one of them")
    if judge.feedback_type == "int" and any(bound != int(bound) for bound in judge.score_range):
        says = "has a fractional bound, but feedback_type is int"
        checked.error(*at, "score_range", says=says, hint="use whole numbers")


def _judge_step(step: str, spec: EvalSpec, checked: Checked, at: tuple[Key, ...]) -> None:
    known = [one.id for one in spec.execution.steps]
    if not known:
        given = "steps" in spec.execution.model_fields_set
        if not given and not checked.is_faulty("execution", "steps"):
            checked.error(*at, "step", says="requires an execution.steps pipeline", hint="remove it, or add steps")
    elif step not in known and not checked.is_faulty("execution", "steps"):
        checked.error(*at, "step", says=f"names the unknown step {shown(step)}", hint=_did_you_mean(step, known))


def _reward(spec: EvalSpec, checked: Checked) -> None:
    reward, names = spec.reward, [judge.name for judge in spec.judges]
    if not names:
        _no_judges(spec, checked)
        return
    known_all = not checked.is_faulty("judges")
    for name in reward.weights:
        if name not in names and known_all:
            checked.error("reward", "weights", name, says="is no judge of this eval", hint=_did_you_mean(name, names))
    if reward.judge and reward.judge not in names and known_all:
        says = f"names the unknown judge {shown(reward.judge)}"
        checked.error("reward", "judge", says=says, hint=_did_you_mean(reward.judge, names))
    if reward.judge and reward.weights:
        checked.error("reward", "weights", says="is mutually exclusive with reward.judge", hint="keep one")
    if names and known_all and all(reward.weights.get(name, 1) == 0 for name in names):
        checked.error("reward", "weights", says="must leave at least one judge a weight above 0")


def _no_judges(spec: EvalSpec, checked: Checked) -> None:
    """One error for all that names judges in an eval without any."""
    named = [f"reward.weights.{name}" for name in spec.reward.weights]
    named += ["reward.judge"] if spec.reward.judge else []
    named += [f"thresholds.{name}" for name in spec.thresholds]
    if named and not checked.is_faulty("judges"):
        key = "judges" if "judges" in spec.model_fields_set else named[0].partition(".")[0]
        says = "must not be empty:" if key == "judges" else "names judges, but the eval has no judges:"
        checked.error(key, says=f"{says} see {', '.join(named[:3])}{' …' if len(named) > 3 else ''}")


def _thresholds(spec: EvalSpec, checked: Checked) -> None:
    names = [judge.name for judge in spec.judges]
    for name, threshold in spec.thresholds.items():
        unknown = name not in names and not checked.is_faulty("judges")
        if unknown and names:  # without any judges that was said once for all
            checked.error("thresholds", name, says="is no judge of this eval", hint=_did_you_mean(name, names))
        if not unknown and not threshold.model_fields_set and not checked.is_faulty("thresholds", name):
            says = "must set one of min_mean, min_pass_rate, max_error_rate"
            checked.error("thresholds", name, says=says, hint="it would never be missed as it is")


def _never_met(spec: EvalSpec, checked: Checked) -> None:
    """Warn of limits that no verdict of their judge can keep."""
    judges = {judge.name: (index, judge) for index, judge in enumerate(spec.judges)}
    for name, threshold in spec.thresholds.items():
        index, judge = judges.get(name, (None, None))
        if judge is None or checked.is_faulty("judges", index or 0) or checked.is_faulty("thresholds", name):
            continue
        high = (judge.score_range or (0, 1))[1]
        if threshold.min_mean is not None and threshold.min_mean > high:
            says = f"is {threshold.min_mean:g}, which can never be reached: the judge's scale ends at {high:g}"
            known = judge.score_range is not None or judge.feedback_type == "bool"
            hint = "lower it" if known else "lower it, or set the judge's score_range, which is 0 to 1 without one"
            checked.warn("thresholds", name, "min_mean", says=says, hint=hint, code="never-met")
        number = judge.feedback_type in ("int", "float") or judge.score_range is not None
        if threshold.min_pass_rate is not None and number:
            why = "score_range" if judge.feedback_type is None else f"feedback_type: {judge.feedback_type}"
            says = f"can never be met: a judge with {why} gives numbers, which neither pass nor fail"
            hint = "use min_mean, or feedback_type: bool"
            checked.warn("thresholds", name, "min_pass_rate", says=says, hint=hint, code="never-met")


def check_probes(probes: Sequence[ProbeSpec], checked: Checked) -> None:
    """The rules of the list `probes` of a file."""
    _unique(checked, [probe.name for probe in probes], "probes", "name", "probe name")
    for index, probe in enumerate(probes):
        at = ("probes", index)
        if not re.fullmatch(r"[A-Za-z0-9_.:-]+", probe.tool, re.ASCII):
            checked.error(*at, "tool", says=f"must be the name of one tool, not {shown(probe.tool)}")
        if probe.expect == "answer" and probe.tool not in _QUESTION_TOOLS:
            checked.error(*at, "expect", says=f"can be answer only for {', '.join(_QUESTION_TOOLS)}")
        for key, wanted in (("answers", ("answer",)), ("reason_has", ("deny",)), ("input_after", ("rewrite",))):
            if getattr(probe, key) and probe.expect not in wanted:
                checked.error(*at, key, says=f"goes with expect: {' or '.join(wanted)}, not with {probe.expect}")


def _unique(checked: Checked, names: Sequence[str], at: str, key: str, what: str) -> None:
    path: tuple[Key, ...] = tuple(at.split("."))
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if name in first:
            line = checked.line(*path, first[name], key)
            says = f"is a duplicate {what}: {shown(name)}" + (f" (first at line {line})" if line else "")
            checked.error(*path, index, key, says=says, hint="give it another one", code="duplicate-name")
        first.setdefault(name, index)


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    known = list(dict.fromkeys(known))
    nearest = keys.nearest(name, known)
    if nearest:
        return f"did you mean {shown(nearest)}?"
    return f"known: {', '.join(known)}" if known else "the eval has no judges"
