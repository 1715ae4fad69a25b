"""A model endpoint that follows a script: the real agent program proposes exactly the calls that we want to see.

- script.py: what is proposed, and where in the script a conversation is
- anthropic.py: requests and replies in the form of Anthropic's Messages, as JSON and as a stream
- server.py: the HTTP server: several scripts at once, each below a URL of its own; records what it was asked

It needs no key and costs nothing. Another wire form is one more module beside anthropic.py, named in `server.WIRES`.
"""

from harbor_tasks.endpoint.script import Call, Script, Turn, script_of
from harbor_tasks.endpoint.server import Endpoint, Recorded

__all__ = ["Call", "Endpoint", "Recorded", "Script", "Turn", "script_of"]
