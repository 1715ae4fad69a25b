#!/usr/bin/env python3
"""Starts Codex with a home of its own: settings, hooks, skills, MCP servers (facts/codex.md).

    codex_start.py --home DIR [--hooks FILE] [--skills DIR]... [--mcp-config FILE [--bridge]] --settings JSON
                   PROGRAM [ARGUMENT...]
    codex_start.py --home DIR --adopt FILE PROGRAM [ARGUMENT...]

`--home` becomes CODEX_HOME. The settings are those of config.toml; what only this process knows is added: the endpoint
and the key's variable (OPENAI_BASE_URL, OPENAI_API_KEY or CODEX_API_KEY), and the servers, whose secrets must not
stand on a command line. With `--bridge` servers that are programs are started by mcp_bridge.py, beside this script.
With `--adopt` the home has settings already, and only their servers that are programs are given to the bridge, which
starts them as FILE says.
Standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from typing import Any, Dict, List, Optional

DEFAULT_URL = "https://api.openai.com/v1"
PROVIDER = "harbor-pack"


def toml(value: Any) -> str:
    """A value of JSON as one line of TOML."""
    if isinstance(value, dict):
        return "{%s}" % ", ".join("%s = %s" % (toml(str(key)), toml(item)) for key, item in value.items())
    if isinstance(value, list):
        return "[%s]" % ", ".join(map(toml, value))
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


def provider(env: Dict[str, str]) -> Dict[str, Any]:
    """The model's endpoint: a provider of our own, so that no login and no setting of the user's matters."""
    key = "OPENAI_API_KEY" if env.get("OPENAI_API_KEY") else "CODEX_API_KEY"
    own = {"name": "OpenAI", "base_url": env.get("OPENAI_BASE_URL") or DEFAULT_URL, "wire_api": "responses"}
    return {"model_provider": PROVIDER, "model_providers": {PROVIDER: dict(own, env_key=key)}}


def servers(path: str) -> Dict[str, Any]:
    """The MCP servers of a file in Claude Code's form. One that does not start ends the run."""
    with open(path, encoding="utf-8") as file:
        given = json.load(file)["mcpServers"]
    found = {}
    for name, server in given.items():
        if "url" in server:
            found[name] = {"url": server["url"], "http_headers": server.get("headers") or {}, "required": True}
        else:
            found[name] = {key: server[key] for key in ("command", "args", "env") if server.get(key)}
            found[name]["required"] = True
    return found


def bridged(given: Dict[str, Any]) -> Dict[str, Any]:
    """Those servers that are programs, as they are told when another process starts them."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import mcp_bridge

    commands = {
        name: [one["command"], *one.get("args", [])] for name, one in given.items() if "command" in one
    }  # their variables are not needed: sudo gives them none
    return {name: dict(told, required=True) for name, told in mcp_bridge.start(commands).items()} if commands else {}


def adopt(home: str, path: str) -> None:
    """Put the bridge in the place of the servers of a home that somebody else has filled."""
    try:
        import tomllib  # type: ignore[import-not-found, unused-ignore]  # noqa: RUF100
    except ImportError:
        raise ValueError("MCP servers that are programs need an image with Python 3.11 or newer here") from None
    config = os.path.join(home, "config.toml")
    with open(config, "rb") as file:
        settings = tomllib.load(file)
    known = servers(path) if os.path.exists(path) else {}
    own = [name for name, one in settings["mcp_servers"].items() if "command" in one]
    if not set(own) <= set(known):
        raise ValueError("%s does not say how to start the MCP server %s" % (path, min(set(own) - set(known))))
    settings["mcp_servers"].update(bridged({name: known[name] for name in own}))
    write(config, settings)


def write(path: str, settings: Dict[str, Any]) -> None:
    """The settings as config.toml, for nobody else to read."""
    lines = ["%s = %s\n" % (toml(key), toml(value)) for key, value in settings.items()]
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o600)  # it may have been there
        file.writelines(lines)


def prepare(args: argparse.Namespace, env: Dict[str, str]) -> None:
    """Fill the home; files of an earlier step are replaced."""
    os.makedirs(args.home, mode=0o700, exist_ok=True)
    settings = dict(json.loads(args.settings), **provider(env))
    if args.mcp_config:
        settings["mcp_servers"] = servers(args.mcp_config)
        if args.bridge:
            settings["mcp_servers"].update(bridged(settings["mcp_servers"]))
    write(os.path.join(args.home, "config.toml"), settings)
    if args.hooks:
        shutil.copyfile(args.hooks, os.path.join(args.home, "hooks.json"))
    for folder in args.skills:
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            target = os.path.join(args.home, "skills", name)
            if os.path.isdir(os.path.join(folder, name)) and not os.path.exists(target):
                shutil.copytree(os.path.join(folder, name), target, symlinks=True)


def main(argv: Optional[List[str]] = None) -> int:
    """Never returns when all is well: the program takes over."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", required=True)
    parser.add_argument("--hooks")
    parser.add_argument("--skills", action="append", default=[])
    parser.add_argument("--mcp-config")
    parser.add_argument("--bridge", action="store_true")
    parser.add_argument("--settings")
    parser.add_argument("--adopt", metavar="FILE")
    parser.add_argument("program", nargs=argparse.REMAINDER)
    args = parser.parse_args(argv)
    try:
        if args.adopt:
            adopt(args.home, args.adopt)
        else:
            prepare(args, dict(os.environ))
        os.environ["CODEX_HOME"] = args.home
        os.execvp(args.program[0], args.program)  # noqa: S606 - no shell is wanted
    except (OSError, ValueError, LookupError) as error:
        print("codex cannot be started: %s" % error, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
