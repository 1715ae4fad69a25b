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
