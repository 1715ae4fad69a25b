#!/bin/sh
# What the tracker and the skill leave behind.
set -eu
mkdir -p tracker
cat > tracker/log.jsonl <<'END'
{"did": "create", "door": "mcp", "issue": {"component": "export", "project": "CAD", "severity": "major", "title": "PDF export hangs at 80 % when a room name has an umlaut"}, "key": "CAD-15"}
END
cat > filed.json <<'END'
{"action": "created", "issue": "CAD-15"}
END
