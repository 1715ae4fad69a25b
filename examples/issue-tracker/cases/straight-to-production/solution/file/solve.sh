#!/bin/sh
# What the tracker and the skill leave behind.
set -eu
mkdir -p tracker
cat > tracker/log.jsonl <<'END'
{"did": "create", "door": "http", "issue": {"component": "sync", "project": "SYNC", "severity": "critical", "title": "Renaming a shared folder deletes it on all machines"}, "key": "SYNC-41"}
END
cat > filed.json <<'END'
{"action": "created", "issue": "SYNC-41"}
END
