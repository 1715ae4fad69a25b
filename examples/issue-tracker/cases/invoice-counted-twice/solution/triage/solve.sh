#!/bin/sh
set -eu
cat > triage.json <<'END'
{
 "title": "Invoice shows two subscriptions after a change of plan",
 "body": "October invoice.",
 "component": "billing",
 "severity": "major",
 "duplicate_of": "SHOP-3"
}
END
