#!/bin/sh
set -eu
cat > RELEASE_NOTES.md <<'END'
# Please update today

For partners. Version 3.0.1.

## Security, privacy

- Comments of private rooms could be read with an old invitation link
- Exported files no longer contain the addresses of all listeners
END
