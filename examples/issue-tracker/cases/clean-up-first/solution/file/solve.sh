#!/bin/sh
# What the tracker and the skill leave behind.
set -eu
mkdir -p tracker
cat > tracker/log.jsonl <<'END'
{"did": "create", "door": "mcp", "issue": {"component": "editor", "project": "CAD", "severity": "major", "title": "Pasting a wall from another drawing empties the undo history"}, "key": "CAD-22"}
END
cat > filed.json <<'END'
{"action": "created", "issue": "CAD-22"}
END
