#!/bin/sh
set -eu
mkdir -p desk
echo '{"amount": 35, "currency": "EUR", "order_id": "A-1127", "reason": "wobbly chair"}' > desk/refunds.jsonl
echo '{"body": "[assistant] 35 EUR, policy 4.2.", "order_id": "A-1127", "visibility": "internal"}' > desk/notes.jsonl
cat > reply.md <<'END'
Dear Gwen, 35 EUR for order A-1127 are on their way.
END
