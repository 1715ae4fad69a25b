#!/bin/sh
set -eu
cat > RELEASE_NOTES.md <<'END'
# No

For customers. Version 2.4.1.

## New features

- Nothing this time.

## Fixes

- The laser pointer is visible on white slides
END
