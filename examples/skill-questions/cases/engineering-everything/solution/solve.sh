#!/bin/sh
set -eu
cat > RELEASE_NOTES.md <<'END'
# Lectern Server 1.11.0

For engineering. Version 1.11.0.

## New features

- Rooms can be created from a template

## Fixes

- Search finds words with a hyphen

## Security, privacy

- Session tokens are bound to the client's address

## Upgrade steps

From version 1.10:

- The table rooms has a new column template_id: run the migration 0042 before the start
- The option store.path is called storage.path

## Internal

- Nightly load test moved to the new cluster
END
