"""The tool policy as data: handlers, permission rules, matchers, probes (DESIGN.md, From `match` to rules)."""
