#!/bin/sh
# What the tracker and the skill leave behind.
set -eu
mkdir -p tracker
cat > tracker/log.jsonl <<'END'
{"body": "Report 3112 too.", "did": "comment", "door": "mcp", "key": "SHOP-3"}
END
cat > filed.json <<'END'
{"action": "commented", "issue": "SHOP-3"}
END
