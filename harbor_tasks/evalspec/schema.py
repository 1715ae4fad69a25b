"""What eval.yaml may hold, as models: one class per table, one field per key, a sentence under each.

A validated model is frozen. The attribute is the key; ``schema`` and ``if`` are ``schema_`` and ``if_``.
A key that is left empty (null) counts as not given. Checks that need more than one key are in ``rules.py``.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from harbor_tasks.evalspec.fields import (
    BuiltinName,
    Count,
    EnvMap,
    Fraction,
    ImageName,
    ImagePath,
    ModelName,
    NonEmptyText,
    Number,
    PositiveInt,
    PositiveNumber,
    ProjectPath,
    Samples,
    ScoreRange,
    StepId,
    Weight,
    one_or_more,
)

DEFAULT_HOOK_MODEL = "claude-haiku-4-5-20251001"
DEFAULT_JUDGE_TIMEOUT = 60
DEFAULT_HOOK_TIMEOUT = 600


class Table(BaseModel):
    """Base of all tables: frozen, typed strictly (no guessing of numbers from texts), unknown keys refused."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _empty_is_not_given(cls, data: Any) -> Any:
        """A known key without a value is a key that was not given."""
        if isinstance(data, dict) and None in data.values():
            known = keys_of(cls)
            return {key: value for key, value in data.items() if value is not None or key not in known}
        return data


@cache
def keys_of(table: type[Table]) -> dict[str, Any]:
    """The keys that a table may hold, as they are written, with the types of their values."""
    return {field.alias or name: field.annotation for name, field in table.model_fields.items()}


# Tags of union members stand in pydantic's paths; in brackets they are never taken for keys of the file.
def _rule_kind(value: Any) -> str:
    return "<path rule>" if isinstance(value, (dict, PathRule)) else "<text>"


def _answer_kind(value: Any) -> str:
    return "<list>" if isinstance(value, list) else "<text>"


class Workspace(Table):
    """`dataset.workspace`."""

    files: list[ProjectPath] = []
    """More files or folders of a case that the agent gets in its workspace; `files/` always comes."""


class Dataset(Table):
    """`dataset`: where the cases are."""

    path: NonEmptyText
    """The folder of cases, from the folder of eval.yaml, then from the project's root."""
    schema_: str | None = Field(None, alias="schema")
    """What a case holds, in words."""
    workspace: Workspace = Workspace()
    """What of a case the agent gets."""


class Step(Table):
    """`execution.steps[]`: one of several runs in a row on one workspace."""

    id: StepId
    """Name of the step: a folder name."""
    skill: NonEmptyText | None = None
    """The skill to run, or `prompt`."""
    prompt: NonEmptyText | None = None
    """The prompt to give, or `skill`; a template."""
    arguments: str | None = None
    """Arguments of the skill; a template."""
    timeout: PositiveInt | None = None
    """Seconds."""
    env: EnvMap = {}
    """More environment variables for this step."""
    on_failure: Literal["fail", "continue"] = "fail"
    """Whether the next step runs when this one failed."""


class Execution(Table):
    """`execution`: what to run and within which limits."""

    mode: Literal["case", "batch"] = "case"
    """One run per case, or one for the whole `batch.yaml`."""
    skill: NonEmptyText | None = None
    """The skill to run; also accepted at the top level."""
    prompt: NonEmptyText | None = None
    """The prompt to give; a template."""
    steps: list[Step] = []
    """Several runs in a row on one workspace."""
    arguments: str | None = None
    """Arguments of the skill; a template."""
    timeout: PositiveInt | None = None
    """Seconds that the agent has."""
    max_budget_usd: PositiveNumber | None = None
    """Dollars that one run may cost."""
    parallelism: PositiveInt = 1
    """Trials at the same time."""
    env: EnvMap = {}
    """Environment of the agent: literals, or `$VAR` and `${VAR:-default}` taken from the caller when it runs."""


class Runner(Table):
    """`runner`: the agent program and how it is started."""

    type: Literal["claude-code", "codex"] = "claude-code"
    """The agent program."""
    effort: NonEmptyText | None = None
    """Effort level of the program (`rules.EFFORTS`)."""
    system_prompt: str | None = None
    """Text added to the program's system prompt."""
    plugin_dirs: list[ProjectPath] = []
    """Folders with plugins; `.` is the project itself."""
    permission_mode: NonEmptyText | None = None
    """The program's permission mode (`rules.PERMISSION_MODES`), as `dontAsk`."""
    settings: dict[str, Any] | None = None
    """More settings of the program."""
    workspace_mode: NonEmptyText | None = None
    """`repo` of other tools, which has no effect: every case has a workspace of its own."""


class HookBudget(Table):
    """`models.hook_budget`: what answers may take in one trial; past it they are guessed, or the call is denied."""

    calls: Count = 100
    """How often the model is asked, a call's questions together; 0 is never."""
    tokens: Count = 1_000_000
    """Tokens of all requests and replies, after which it is not asked again."""


class Models(Table):
    """`models`: which model does what."""

    skill: ModelName | None = None
    """Runs the skill or prompt."""
    subagent: ModelName | None = None
    """Runs subagents."""
    judge: ModelName | None = None
    """Judges, when a judge names no model of its own."""
    hook: ModelName = DEFAULT_HOOK_MODEL
    """Answers the agent's questions."""
    hook_budget: HookBudget = HookBudget()
    """How much of that model a trial may use."""


class PathRule(Table):
    """A permission given as a path and tools."""

    path: NonEmptyText
    """A file, or a folder with a closing `/` for the whole tree."""
    tools: Annotated[list[NonEmptyText], Field(min_length=1)]
    """Names of tools."""


Rule = Annotated[
    Annotated[NonEmptyText, Tag("<text>")] | Annotated[PathRule, Tag("<path rule>")],
    Discriminator(_rule_kind),
]


class Permissions(Table):
    """`permissions`: rules of the agent program."""

    allow: list[Rule] = []
    """What is permitted without a question."""
    deny: list[Rule] = []
    """What is never permitted."""


class ToolInput(Table):
    """`inputs.tools[]`: which calls are intercepted, in words."""

    match: NonEmptyText
    """Which calls, in natural language."""
    prompt: str | None = None
    """What to do with them."""
    prompt_file: ProjectPath | None = None
    """A file with more of `prompt`."""


class Inputs(Table):
    """`inputs`."""

    tools: list[ToolInput] = []
    """Calls that are intercepted."""


class McpServer(Table):
    """`mcp_servers[]`: a server of tools, started by a command or reached by a URL."""

    name: NonEmptyText
    """The name in `mcp__<name>__<tool>`."""
    type: Literal["stdio", "http", "sse", "streamable-http"] | None = None
    """How it is reached; `command` is stdio, `url` is http when nothing is said."""
    command: NonEmptyText | None = None
    """The program."""
    args: list[str] = []
    """Its arguments."""
    env: EnvMap = {}
    """Its environment; a secret is a `${VAR}`."""
    url: NonEmptyText | None = None
    """Where the server listens, in place of `command`."""
    headers: dict[str, str] = {}
    """Headers of the requests; a secret is a `${VAR}`."""


class Output(Table):
    """`outputs[]`: what a run leaves behind."""

    path: ProjectPath | None = None
    """A file or folder of the workspace, or `tool`."""
    tool: NonEmptyText | None = None
    """Name or glob of a tool whose calls are the output."""
    schema_: Any = Field(None, alias="schema")
    """What it holds, in words."""
    batch_pattern: NonEmptyText | None = None
    """How outputs of a batch are named, as `RFE-{n:03d}`."""
    types: list[Any] | None = None
    """Kinds of output."""


class Judge(Table):
    """`judges[]`: one check of what a run left behind."""

    name: NonEmptyText
    """Its name in `reward` and `thresholds`."""
    description: str | None = None
    """What it looks at, in words."""
    check: NonEmptyText | None = None
    """Body of a Python function of `outputs, arguments, annotations`."""
    prompt: NonEmptyText | None = None
    """What a model is asked."""
    prompt_file: ProjectPath | None = None
    """A file with what a model is asked."""
    builtin: BuiltinName | None = None
    """A judge that comes with the product: `cost_budget`, `documents_consulted`, `tool_calls_valid`."""
    command: NonEmptyText | None = None
    """A shell command that is run in the workspace."""
    module: NonEmptyText | None = None
    """A Python module of the project."""
    function: NonEmptyText | None = None
    """The function in `module`."""
    if_: NonEmptyText | None = Field(None, alias="if")
    """A Python expression of `outputs, arguments, annotations`: the judge is skipped when it is false."""
    arguments: dict[str, Any] = {}
    """Given to the judge."""
    step: NonEmptyText | None = None
    """The step whose verifier runs it."""
    feedback_type: Literal["bool", "int", "float"] | None = None
    """What it returns."""
    score_range: ScoreRange | None = None
    """Lowest and highest score; 0 to 1 when it is not given."""
    samples: Samples = 1
    """How often a model is asked, up to `fields.MAX_SAMPLES` times."""
    model: ModelName | None = None
    """The model that is asked."""
    type: str | None = None
    """Repeats the kind; not needed."""
    timeout: PositiveInt | None = None
    """Seconds."""


class Reward(Table):
    """`reward`: how the judges become one number."""

    weights: dict[str, Weight] = {}
    """Weight of each judge; 1 when it is not given."""
    gate: bool = True
    """Whether a failed boolean judge makes the reward 0."""
    judge: NonEmptyText | None = None
    """The one judge whose score is the reward."""


class Threshold(Table):
    """`thresholds.<judge>`: what a job must reach."""

    min_mean: Number | None = None
    """Lowest mean, on the judge's own scale."""
    min_pass_rate: Fraction | None = None
    """Lowest share of trials that pass."""
    max_error_rate: Fraction | None = None
    """Highest share of trials without a result, those aside whose judge was skipped or has still to be asked."""


class HookCommand(Table):
    """`hooks.<when>[]`: a command on the author's machine."""

    command: NonEmptyText
    """The shell command."""
    timeout: PositiveInt = DEFAULT_HOOK_TIMEOUT
    """Seconds."""
    on_failure: Literal["fail", "continue"] = "fail"
    """Whether the work goes on when it fails."""


Commands = Annotated[list[HookCommand], BeforeValidator(one_or_more)]


class Hooks(Table):
    """`hooks`: commands on the author's machine, before the build of a task and after a run."""

    before_all: Commands = []
    """Once, before any case is built."""
    before_each: Commands = []
    """For each case, in its workspace."""
    after_each: Commands = []
    """After each trial."""
    after_all: Commands = []
    """After the job."""


Answer = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[list[str], Tag("<list>")],
    Discriminator(_answer_kind),
]


class ProbeSpec(Table):
    """`probes[]`: a forced call and the decision that it must get."""

    name: NonEmptyText
    """Its name in the table of results."""
    tool: NonEmptyText
    """The tool that is called."""
    input: dict[str, Any] = {}
    """The input of the call."""
    env: EnvMap = {}
    """Environment of the hook."""
    result: Any = None
    """What the tool returned, for handlers that look at results."""
    expect: Literal["deny", "allow", "none", "answer", "rewrite"]
    """The decision that must come."""
    reason_has: Annotated[list[str], BeforeValidator(one_or_more)] = []
    """Texts that the reason must hold."""
    answers: dict[str, Answer] = {}
    """Question → answer that must come."""
    input_after: dict[str, Any] | None = None
    """The input after a rewrite."""
    result_after: Any = None
    """The result that the model must see."""


class Sandbox(Table):
    """`sandbox`: where a trial runs."""

    image: ImageName | None = None
    """Base of the runtime image."""
    dockerfile: ProjectPath | None = None
    """A Dockerfile whose image is the base, in place of `image`."""
    sealed: bool = True
    """Whether the policy is kept out of the agent's reach."""
    workdir: ImagePath = "/workspace"
    """Where the agent works: a plain absolute path."""
    cpus: PositiveNumber | None = None
    """Processors."""
    memory_mb: PositiveInt | None = None
    """Memory in MiB."""
    network: Literal["public", "model", "none"] = "public"
    """What the sandbox can reach: everything, the model endpoint, nothing."""


class AllowedSecret(Table):
    """`bundle.allow_secrets[]`: findings of the secrets scan that do not stop a bundle."""

    path: ProjectPath
    """Which files, as findings name them: `*` stands for a part of a name, `**` for any folders."""
    rule: NonEmptyText
    """Which rule, as findings name it (`secrets.RULES`)."""
    reason: str | None = None
    """Why it is no secret."""


class Bundle(Table):
    """`bundle`: how the eval is packed for other machines."""

    allow_secrets: list[AllowedSecret] = []
    """What looks like a secret and is none."""


class EvalSpec(Table):
    """eval.yaml."""

    name: NonEmptyText
    """Name of the eval; the organisation part of the names of its tasks."""
    description: str = ""
    """What is evaluated."""
    version: str | None = None
    """Version of the eval."""
    dataset: Dataset
    """Where the cases are."""
    execution: Execution = Execution()
    """What to run."""
    runner: Runner = Runner()
    """The agent program."""
    models: Models = Models()
    """Which model does what."""
    permissions: Permissions = Permissions()
    """Rules of the agent program."""
    inputs: Inputs = Inputs()
    """Calls that are intercepted."""
    mcp_servers: list[McpServer] = []
    """Servers of tools; the project's `.mcp.json` is merged in."""
    outputs: list[Output] = []
    """What a run leaves behind."""
    judges: list[Judge] = []
    """Checks of what a run left behind."""
    reward: Reward = Reward()
    """How the judges become one number."""
    thresholds: dict[str, Threshold] = {}
    """What a job must reach, by judge."""
    hooks: Hooks = Hooks()
    """Commands on the author's machine."""
    probes: list[ProbeSpec] = []
    """Forced calls that test the policy."""
    sandbox: Sandbox = Sandbox()
    """Where a trial runs."""
    bundle: Bundle = Bundle()
    """How the eval is packed for other machines."""
    traces: Any = None
    """Kept as it is."""
    mlflow: Any = None
    """Of another tool; not packed."""
    generation: Any = None
    """Of another tool; not packed."""
