"""The request to the model, by the Anthropic SDK, and its faults in plain words: one line, no key, no header.

The answer is structured output; an endpoint that does not know the parameter is asked for a forced tool call. No
sampling parameters, since some models refuse them. The SDK repeats what may be repeated; there is a limit of time for
all of it, whatever the endpoint does.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harbor_tasks.errors import AuthorError, MachineError, printable
from harbor_tasks.evalspec.secrets import without_tokens

if TYPE_CHECKING:
    from anthropic import Anthropic

DEFAULT_MODEL = "claude-sonnet-5-5"
MAX_TOKENS = 32_000
MAX_ANSWER = 2_000_000
"""Characters."""
BY_HAND = (
    "nothing was written; the rules can be written into tool_handlers.yaml by hand, and `harbor-pack check` shows what "
    "each match becomes without them"
)
NO_KEY = f"there is no key to ask a model with: export ANTHROPIC_API_KEY, or ANTHROPIC_AUTH_TOKEN; {BY_HAND}"
_TOOL = "propose"
_MODEL_NAME = re.compile(r"[A-Za-z0-9][\w.:@/\[\]-]{0,199}", re.ASCII)
_LOGGERS = ("anthropic", "httpx", "httpx2", "httpcore", "httpcore2")
_NOT_KNOWN = re.compile(r"output_config|output_format|structured output|json_schema", re.IGNORECASE)


@dataclass(frozen=True)
class Limits:
    """Seconds: for all requests of a command, for the longest wait that an endpoint may ask for, without a byte."""

    total: float = 600
    wait: float = 60
    silence: float = 120
    retries: int = 2


class _WaitError(Exception):
    """The endpoint asks for a longer wait than there is time for."""

    def __init__(self, status: int, seconds: float) -> None:
        self.status, self.seconds = status, seconds
        super().__init__()


def model_name(model: str) -> str:
    """The name, if it can be one."""
    if not _MODEL_NAME.fullmatch(model):
        raise AuthorError(f"--model {model!r}: not the name of a model")
    return model


class Model:
    """A model that can be asked, until its time is over. MachineError when there is no key."""

    def __init__(self, name: str, limits: Limits) -> None:
        import anthropic

        for logger in _LOGGERS:  # ANTHROPIC_LOG would show what is sent
            logging.getLogger(logger).setLevel(logging.CRITICAL)
        self.name, self._limits = name, limits
        self._end = time.monotonic() + limits.total
        timeout = anthropic.Timeout(limits.silence, connect=min(10.0, limits.silence))
        keys = _keys()
        try:
            self._client: Anthropic = anthropic.Anthropic(
                timeout=timeout, max_retries=limits.retries, middleware=[self._within], open_telemetry=False, **keys
            )
        except Exception as error:  # noqa: BLE001 - an address that is none is an error of the transport's own
            raise MachineError(
                f"the credentials for the model cannot be used: {_clean(str(error))}; {BY_HAND}"
            ) from None
        if not (self._client.api_key or self._client.auth_token or self._client.credentials):
            raise MachineError(NO_KEY)
        self._structured = True

    def ask(self, system: str, text: str, schema: Mapping[str, Any]) -> str | Any:
        """The answer: JSON in a text, or the input of the forced tool. MachineError for all that goes wrong."""
        box: list[Any] = []

        def work() -> None:
            try:
                box.append(self._asked(system, text, schema))
            except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
                box.append(error)

        thread = threading.Thread(target=work, daemon=True, name="resolve")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an old model: it answers, or the endpoint says that it does not
            thread.start()
            thread.join(max(0.0, self._end - time.monotonic()))
        if not box:  # a slow endpoint cannot be stopped from here, but it can be left alone
            self.close()
            raise MachineError(f"{self.name} gave no whole answer within {self._limits.total:g} s; try again later")
        if isinstance(box[0], BaseException):
            raise box[0]
        return box[0]

    def close(self) -> None:
        """End its connections."""
        with contextlib.suppress(Exception):
            self._client.close()

    def _asked(self, system: str, text: str, schema: Mapping[str, Any]) -> str | Any:
        import anthropic

        try:
            if self._structured:
                try:
                    return self._message(system, text, schema)
                except anthropic.BadRequestError as error:
                    if not _NOT_KNOWN.search(error.api_message or ""):
                        raise
                    self._structured = False
            return self._message(system, text, schema)
        except _WaitError as wait:
            raise MachineError(
                f"{self.name}: {_status(wait.status)}, and the endpoint asks to wait {wait.seconds:g} s; try again then"
            ) from None
        except anthropic.APIStatusError as error:
            raise MachineError(_status_error(self.name, error)) from None
        except anthropic.APITimeoutError:
            raise MachineError(f"{self.name}: the endpoint was silent for {self._limits.silence:g} s") from None
        except anthropic.APIConnectionError as error:
            why = _clean(str(error.__cause__ or error))
            raise MachineError(f"{self.name}: the endpoint cannot be reached ({why})") from None
        except (anthropic.AnthropicError, TypeError, ValueError) as error:
            raise MachineError(f"{self.name}: the request failed: {_clean(str(error))}") from None
        except MachineError:
            raise
        except Exception as error:  # noqa: BLE001 - of the transport, in the middle of an answer
            why = _clean(f"{type(error).__name__}: {error}")
            raise MachineError(f"{self.name}: the answer broke off ({why}); try again") from None

    def _message(self, system: str, text: str, schema: Mapping[str, Any]) -> str | Any:
        import anthropic

        request: dict[str, Any] = {
            "model": self.name, "max_tokens": MAX_TOKENS, "system": system,
            "messages": [{"role": "user", "content": text}],
        }  # fmt: skip
        if self._structured:
            request["output_config"] = {
                "format": {"type": "json_schema", "schema": anthropic.transform_schema(dict(schema))}
            }
        else:
            request["tools"] = [{"name": _TOOL, "description": "Give the proposal.", "input_schema": dict(schema)}]
            request["tool_choice"] = {"type": "tool", "name": _TOOL}
        size = 0
        with self._client.messages.stream(**request) as stream:
            for event in stream:
                size += len(getattr(event, "text", "") or getattr(event, "partial_json", "") or "")
                if size > MAX_ANSWER:
                    raise MachineError(f"{self.name} does not stop: more than {MAX_ANSWER} characters")
            return self._content(stream.get_final_message())

    def _content(self, message: Any) -> str | Any:
        stop = message.stop_reason
        if stop == "refusal":
            details = getattr(message, "stop_details", None)
            category = getattr(details, "category", None)
            raise MachineError(
                f"{self.name} refused to propose rules{f' ({_clean(str(category))})' if category else ''}; "
                "try another --model, or write tool_handlers.yaml by hand"
            )
        if stop in ("max_tokens", "model_context_window_exceeded"):
            raise MachineError(
                f"{self.name} did not come to the end of its proposal (stopped after {message.usage.output_tokens} "
                f"tokens: {stop}); shorten inputs.tools, or write a part of tool_handlers.yaml by hand"
            )
        for block in message.content:
            if block.type == "tool_use" and block.name == _TOOL:
                return block.input
        text = "".join(block.text for block in message.content if block.type == "text")
        if not text.strip():
            raise MachineError(f"{self.name} gave an empty answer (it stopped with {_clean(str(stop))}); try again")
        return text

    def _within(self, request: Any, call_next: Any) -> Any:
        """Within each attempt of the SDK's: no wait that is longer than the time that is left."""
        response = call_next(request)
        if response.status_code >= 400:
            seconds = _retry_after(response.headers)
            if seconds > min(self._limits.wait, self._end - time.monotonic()):
                raise _WaitError(response.status_code, seconds)
        return response


def _retry_after(headers: Mapping[str, str]) -> float:
    try:
        return float(headers.get("retry-after-ms") or "") / 1000
    except ValueError:
        pass
    try:
        return float(headers.get("retry-after") or "")
    except ValueError:
        pass
    import email.utils

    with contextlib.suppress(TypeError, ValueError, IndexError):
        return email.utils.parsedate_to_datetime(headers.get("retry-after") or "").timestamp() - time.time()
    return 0


_MEANING = {
    400: "the endpoint refuses the request (400)", 401: "the key is not accepted (401)",
    403: "the key may not do this (403)", 404: "not found (404)", 413: "the request is too large (413)",
    429: "too many requests (429)", 529: "the endpoint is overloaded (529)",
}  # fmt: skip


def _status(status: int) -> str:
    return _MEANING.get(status, f"the endpoint failed ({status})" if status >= 500 else f"refused ({status})")


def _status_error(model: str, error: Any) -> str:
    what = _status(error.status_code)
    if error.status_code == 404:
        what = "there is no such model, or no such endpoint (404)"
    said = _clean(str(error.api_message or ""))
    hint = {401: "; see ANTHROPIC_API_KEY", 404: "; see --model and ANTHROPIC_BASE_URL", 429: "; try again later",
            529: "; try again later"}.get(error.status_code, "")  # fmt: skip
    return f"{model}: {what}{f': {said}' if said else ''}{hint}"


def _keys() -> dict[str, Any]:
    """The keys of the environment that have white space around them, which the SDK would send, without it."""
    found = {}
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        given = os.environ.get(name, "")
        if not given.strip().isprintable():
            raise MachineError(f"{name} has characters that cannot be sent; {BY_HAND}")
        if given.strip() != given:
            found[name.removeprefix("ANTHROPIC_").lower()] = given.strip()
    return found


def _clean(text: str) -> str:
    """What an endpoint says, on one line, without anything that this process knows as a secret."""
    secrets = [os.environ.get(name, "") for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")]
    user, at, _ = os.environ.get("ANTHROPIC_BASE_URL", "").partition("://")[2].rpartition("@")
    secrets += [user, user.partition(":")[2]] if at else []
    for line in os.environ.get("ANTHROPIC_CUSTOM_HEADERS", "").splitlines():
        secrets.append(line.partition(":")[2].strip())
    for secret in secrets:
        for form in (secret, secret.strip(), repr(secret)[1:-1]):
            if len(form) >= 4:
                text = text.replace(form, "(key)")
    words = " ".join(without_tokens(printable(text)).split())
    return words if len(words) <= 300 else f"{words[:300]}…"
