"""Stage 2: a model proposes the rules that `inputs.tools` means (DESIGN.md, From `match` to rules).

- asked.py: what the model is told, and the digest of it
- proposal.py: what it may answer, as pydantic models, and the handlers and probes that this becomes
- model.py: the request itself, by the Anthropic SDK, and its faults in plain words
- judged.py: what is wrong with a proposal that is valid: catch-alls, filters that hit everything, tools nobody has
- record.py: the head of tool_handlers.yaml, which tells what in it was proposed and never touched since
- merge.py: which parts of the file are the author's and stay, which are replaced
- yamlfile.py: the file's new text, with the author's comments

Probes are replayed by `proving.resolving`, which puts all this together.
"""
