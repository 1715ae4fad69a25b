#!/bin/sh
set -eu
mkdir -p desk
echo '{"order_id": "A-1090", "summary": "Return of the wardrobe, 700 USD."}' > desk/escalations.jsonl
cat > reply.md <<'END'
A colleague takes over your request for order A-1090 and writes to you within one working day.
END
