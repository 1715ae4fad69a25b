"""A model endpoint that follows a script: the real agent program proposes exactly the calls that we want to see.

- script.py: what is proposed, and where in the script a conversation is
- replies.py: what is said to who asks for one message, faults included
- anthropic.py: requests and replies in the form of Anthropic's Messages, as JSON and as a stream
- openai.py: the same in the form of OpenAI's Responses, as Codex speaks it
- codex_items.py: Codex's tool calls, as its hooks name them and as they stand in its conversation
- server.py: the HTTP server: several scripts at once, each below a URL of its own; records what it was asked

It needs no key and costs nothing. Another wire form is one more module beside these, named in `server.WIRES`.
"""

from harbor_tasks.endpoint.replies import Replies, Reply, fails, says, uses
from harbor_tasks.endpoint.script import Call, Script, Turn, script_of
from harbor_tasks.endpoint.server import Endpoint, Recorded

__all__ = [
    "Call", "Endpoint", "Recorded", "Replies", "Reply", "Script", "Turn", "fails", "says", "script_of", "uses"
]  # fmt: skip
