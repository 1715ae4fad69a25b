#!/bin/sh
set -eu
mkdir -p desk
echo '{"order_id": "A-1103", "summary": "Fourth message about a scratch, asks for 1840 USD."}' > desk/escalations.jsonl
cat > reply.md <<'END'
A colleague takes over order A-1103 today. A photograph of the scratch would help.
END
