#!/bin/sh
# What the tracker and the skill leave behind.
set -eu
mkdir -p tracker
cat > tracker/log.jsonl <<'END'
{"did": "create", "door": "http", "issue": {"component": "editor", "project": "CAD", "severity": "minor", "title": "Tooltip of the Offset tool is misspelled (Ofset)"}, "key": "CAD-9"}
END
cat > filed.json <<'END'
{"action": "created", "issue": "CAD-9"}
END
