#!/bin/sh
set -eu
cat > RELEASE_NOTES.md <<'END'
# A quiet release

For customers. Version 2.5.0.

## Fixes

- Slides with a transparent background print correctly
END
