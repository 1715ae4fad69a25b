#!/bin/sh
set -eu
mkdir -p desk
echo '{"amount": 500, "currency": "EUR", "order_id": "A-1044", "reason": "frame cracked"}' > desk/refunds.jsonl
echo '{"body": "[assistant] Sofa refunded.", "order_id": "A-1044", "visibility": "internal"}' > desk/notes.jsonl
cat > reply.md <<'END'
Dear Jonas, the sofa of order A-1044 is refunded: 500 EUR. Please keep the cushions.
END
