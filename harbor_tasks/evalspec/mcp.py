"""MCP servers of the project: its `.mcp.json` is read and merged with those of eval.yaml, which win."""

from __future__ import annotations

import os
from pathlib import Path

from harbor_tasks.errors import Problems
from harbor_tasks.evalspec.fields import shown
from harbor_tasks.evalspec.reader import load_yaml
from harbor_tasks.evalspec.rules import check_server
from harbor_tasks.evalspec.schema import EvalSpec, McpServer
from harbor_tasks.evalspec.validate import Checked, checked_model

_TEXTS = ("mcpServers.*.env.*", "mcpServers.*.headers.*", "mcpServers.*.args.*")


def merge_project_servers(spec: EvalSpec, project: Path, problems: Problems) -> EvalSpec:
    """The eval with the servers of the project's `.mcp.json` behind its own; a malformed file is an error."""
    file = project / ".mcp.json"
    if not os.path.lexists(file):
        return spec
    document = load_yaml(file, problems, text_under=_TEXTS)
    if document is None:
        return spec
    servers = document.data.get("mcpServers") if isinstance(document.data, dict) else None
    if not isinstance(servers, dict):
        problems.error("must hold a mapping mcpServers", file, 1, hint="see .mcp.json of Claude Code", code="mcp")
        return spec
    own = {server.name for server in spec.mcp_servers}
    found: list[McpServer] = []
    for name, data in servers.items():
        if name in own:
            continue
        if not isinstance(data, dict):
            message = f"mcpServers.{name} must be a mapping, not {shown(data)}"
            problems.error(message, file, document.line("mcpServers", name), code="mcp")
            continue
        checked = Checked({"name": name, **data}, document, problems, at=("mcpServers", name))
        server = checked_model(McpServer, checked)
        if server is not None:
            check_server(server, checked, ())
            found.append(server)
    return spec.model_copy(update={"mcp_servers": [*spec.mcp_servers, *found]})
