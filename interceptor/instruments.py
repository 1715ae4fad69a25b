#!/usr/bin/env python3
"""Puts instruments into a sealed sandbox: then what the model runs is noted, and not run. For probes through an agent
program (`harbor-pack probe --through`); run by root at the end of `setup`, with what to put as JSON in its argument:

    files     name -> text of what goes into the folder of the instruments
    keep      a text: commands that hold it are run, since they are the probes' own
    servers   the names of the MCP servers, all of them stand-ins
    mode      the permission mode
    env       variables of this session
    limit     seconds that the program gives its hook, or null
    hook      lines of the hook -> what stands in their place

The seal stays as it is: the same users, the same rules, the same registered command. Standard library only, Python 3.8.
"""

from __future__ import annotations

import json
import os
import pwd
import sys
from typing import Any, Dict

PLACE = "/opt/harbor-pack-probes"
IMAGE = "/usr/local/lib/harbor-pack"
MANAGED, CODEX_HOOKS = "/etc/claude-code/managed-settings.json", "/etc/codex/hooks.json"
CODEX = "/usr/local/bin/codex"
HOOK = "/opt/harbor-pack/hooks/tools.py"
RUNS = 'eval "$1"'  # how the prefix has worker run a command
SERVES = 'exec "$1" exec-server'  # how Codex's launcher has worker run all of them
STAND_IN = """case $1 in
'id -un' | *%s*) eval "$1" ;;
*) printf '%%s %%s\\0' "$(date +%%s.%%N)" "$1" >>%s/marks/commands ;;
esac
"""


START_UP = """case $BASH_EXECUTION_STRING in
*%s*) unset BASH_ENV ;;
*)
    printf '%%s %%s\\0' "$(date +%%s.%%N)" "$BASH_EXECUTION_STRING" >>%s/marks/commands
    exit 0
    ;;
esac
"""


def main(given: Dict[str, Any]) -> None:
    os.umask(0o022)
    os.makedirs(PLACE + "/marks")
    for name, user in (("commands", "worker"), ("calls", "services")):
        write("%s/marks/%s" % (PLACE, name), "", 0o600)
        os.chown("%s/marks/%s" % (PLACE, name), pwd.getpwnam(user).pw_uid, 0)
    for name, text in given["files"].items():
        write("%s/%s" % (PLACE, name), text)
    write(PLACE + "/stand-in", STAND_IN % (quoted(given["keep"]), PLACE))
    prefix = read(IMAGE + "/prefix")
    if prefix.count(RUNS) != 1:
        sys.exit("instruments: the prefix does not run commands in the way that is known")
    write(IMAGE + "/prefix", prefix.replace(RUNS, ". %s/stand-in" % PLACE))
    write(PLACE + "/start-up", START_UP % (quoted(given["keep"]), PLACE))
    launcher = read(CODEX)
    if launcher.count(SERVES) != 1:
        sys.exit("instruments: Codex's launcher does not run commands in the way that is known")
    write(CODEX, launcher.replace(SERVES, "BASH_ENV=%s/start-up %s" % (PLACE, SERVES)))
    start = "/usr/bin/sudo -n -u services %s/serve %%s\n" % IMAGE
    write("/etc/harbor-pack/servers", "".join(start % name for name in given["servers"]))
    rule = "agent ALL=(services) NOPASSWD: %s/serve %%s\n" % IMAGE
    write("/etc/sudoers.d/harbor-pack-probes", "".join(rule % name for name in given["servers"]), 0o440)
    told = "/etc/harbor-pack/agent.env"
    lines = [line for line in read(told).splitlines() if not line.startswith("permission_mode=")]
    write(told, "\n".join([*lines, "permission_mode=%s" % given["mode"]]) + "\n")
    settings = json.loads(read(MANAGED))
    settings["env"] = {**settings.get("env", {}), **given["env"]}
    write(MANAGED, json.dumps(limited(settings, given["limit"])))
    if os.path.exists(CODEX_HOOKS):
        write(CODEX_HOOKS, json.dumps(limited(json.loads(read(CODEX_HOOKS)), given["limit"])))
    if os.path.exists(HOOK):
        text = read(HOOK)
        for line, other in given["hook"].items():
            if text.count(line) != 1:
                sys.exit("instruments: the hook has no line %r" % line)
            text = text.replace(line, other)
        write(HOOK, text, 0o640)


def limited(settings: Dict[str, Any], limit: Any) -> Dict[str, Any]:
    """Settings whose hooks have this limit, if there is one."""
    for groups in settings.get("hooks", {}).values() if limit is not None else ():
        for hook in (hook for group in groups for hook in group["hooks"]):
            hook["timeout"] = limit
    return settings


def quoted(text: str) -> str:
    return "'%s'" % text.replace("'", "'\\''")


def read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path: str, text: str, mode: int = 0) -> None:
    """In place of what is there, with its owner and mode."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    if mode:
        os.chmod(path, mode)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
