"""Who works on a task.

- base.py: the contract of an agent, and the agents by name
- programs.py: the program of an agent on this machine
- claude_code.py: Claude Code, the program itself
- codex.py: Codex, the program itself; codex_sessions.py makes a transcript of its record
- oracle.py: runs the case's solution
- replay.py: plays the case's recorded tool calls
- probe.py: forces the eval's probes, in the task that `probe` makes
"""
