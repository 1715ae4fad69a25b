"""The tool policy as data: handlers, permission rules, matchers, probes (DESIGN.md, From `match` to rules).

- handlers.py, fields.py, places.py: the author's tool_handlers.yaml, field by field, with its lines
- heuristic.py: from a `match` in plain words to tool patterns; resolve/: by a model
- matchers.py, tools.py: tool patterns and names
- permissions.py, settings.py: permission rules and more settings of the agent program
- regexes.py, regex_timer.py: regexes that are valid everywhere and end
- lint.py, lint_codex.py, shadows.py: valid handlers that do not do what their author may think
- probes.py, own_cases.py: probes as data, calls made from a handler itself
- routes.py: what handlers and permission rules make of each tool
"""
