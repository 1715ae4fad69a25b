#!/bin/sh
set -eu
mkdir -p desk
echo '{"amount": 120, "currency": "USD", "order_id": "A-1001", "reason": "lost in transit"}' > desk/refunds.jsonl
echo '{"body": "[assistant] Lost, refunded.", "order_id": "A-1001", "visibility": "internal"}' > desk/notes.jsonl
cat > reply.md <<'END'
Dear Miriam, your refund of 120 USD for order A-1001 is on its way.
END
