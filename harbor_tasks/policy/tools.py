"""Names of built-in tools of the agent programs, and which names are probably misspelt."""

from __future__ import annotations

from typing import Literal

from harbor_tasks.policy.places import nearest

Runtime = Literal["claude-code", "codex"]

#: Tools whose names are words of English, or names of something else, too.
WORD_TOOLS = frozenset({"Agent", "Edit", "Monitor", "PowerShell", "Read", "Skill", "Task", "Write"})
#: Claude Code 2.1, and older names that settings and prompts still use.
CLAUDE_TOOLS = frozenset({
    "AskUserQuestion", "Bash", "BashOutput", "CronCreate", "CronDelete", "CronList", "EnterPlanMode", "EnterWorktree",
    "ExitPlanMode", "ExitWorktree", "Glob", "Grep", "KillShell", "LS", "LSP", "ListMcpResourcesTool", "MultiEdit",
    "NotebookEdit", "NotebookRead", "ReadMcpResourceTool", "SendMessage", "SlashCommand", "StructuredOutput",
    "TaskCreate", "TaskGet", "TaskList", "TaskOutput", "TaskStop", "TaskUpdate", "TeamCreate", "TeamDelete", "TodoRead",
    "TodoWrite", "ToolSearch", "WebFetch", "WebSearch", *WORD_TOOLS,
})  # fmt: skip
#: Codex; its shell calls are Bash in a hook's payload (facts/codex.md).
CODEX_TOOLS = frozenset({"Bash", "apply_patch", "request_user_input", "spawn_agent", "update_plan", "view_image"})
BUILT_IN = CLAUDE_TOOLS | CODEX_TOOLS
#: What Codex 0.171 offers its models, by itself or in their programs, as its hooks were seen to be told of it.
CODEX_SEEN = CODEX_TOOLS | {
    "clockcurr_time", "clocksleep", "collaborationfollowup_task", "collaborationinterrupt_agent",
    "collaborationlist_agents", "collaborationsend_message", "collaborationspawn_agent", "collaborationwait_agent",
    "create_goal", "get_goal", "list_mcp_resource_templates", "list_mcp_resources", "multi_agent_v1close_agent",
    "multi_agent_v1resume_agent", "multi_agent_v1send_input", "multi_agent_v1wait_agent", "read_mcp_resource",
    "request_user_input_async", "send_message_to_user_async", "tool_search", "update_goal", "webrun",
}  # fmt: skip
_BY_PROGRAM = "no hook sees it; it does nothing but call other tools, which hooks see"
#: What it offers, and no hook was told of -> why, and what comes of it.
CODEX_UNSEEN: dict[str, str] = {
    "exec": _BY_PROGRAM, "wait": _BY_PROGRAM,
    "write_stdin": "no hook sees it; commands take no input, so it does nothing but wait for them",
    "web_search": "no hook sees it: it runs at the provider; a rule about WebSearch switches it off",
}  # fmt: skip
#: Names that its models have for tools -> what hooks call them.
CODEX_WIRE = {"exec_command": "Bash", "web__run": "webrun"}

#: What an agent is given at the start of a headless run, as far as it can reach files, programs, the network or people.
REACHING: dict[Runtime, tuple[str, ...]] = {
    "claude-code": (
        "Agent", "AskUserQuestion", "Bash", "Edit", "Glob", "Grep", "NotebookEdit", "Read", "Skill", "WebFetch",
        "WebSearch", "Write",
    ),
    "codex": ("Bash", "apply_patch", "request_user_input", "spawn_agent", "view_image"),
}  # fmt: skip


def misspelt(name: str) -> str | None:
    """The built-in tool that an unknown name was probably meant to be, or None."""
    return None if name in BUILT_IN or name.startswith("mcp__") else nearest(name, sorted(BUILT_IN))
