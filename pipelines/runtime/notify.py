"""Notifications of failures and regressions: to a webhook, or to a command."""

import contextlib
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pipelines.errors import UserError

WEBHOOK_S = 10.0  # time that a webhook has to answer
COMMAND_S = 60.0
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def check(target: str) -> None:
    """Raise UserError for what is neither a URL of http or https nor an existing command."""
    why = _reason_invalid(target)
    if why:
        raise UserError(
            "The target of a notification must be a URL, http://... or https://..., or an existing "
            f"command. Received: {hide_secrets(target)!r}: {why}. Set --notify so."
        )


def _reason_invalid(target: str) -> str:
    """Return why nothing can be sent to a target; empty for a valid one."""
    try:
        if "://" not in target:
            words = shlex.split(target)
            known = words and shutil.which(words[0])
            return "" if known else "no such command" if words else "no command"
        parts = urlsplit(target)
        if parts.scheme not in ("http", "https"):
            return "another kind of URL"
        return "" if parts.hostname and parts.port != 0 else "no host"
    except ValueError:  # whose text may repeat a part of the target
        return "no valid URL" if "://" in target else "quotation marks that are not closed"


def send(target: str, document: Mapping[str, Any]) -> str:
    """Post a document as JSON to a URL, or give it to a command on its standard input.

    Never raise: why it failed is printed, without what may be secret, and returned.
    """
    text = json.dumps(document, default=str)
    why = _reason_invalid(target) or (_post if "://" in target else _run)(target, text)
    if not why:
        return ""
    message = f"{hide_secrets(target)} got nothing: {why.replace(target, hide_secrets(target))}"
    with contextlib.suppress(OSError, ValueError):
        print(message, file=sys.stderr)
    return message


def _post(target: str, text: str) -> str:
    """Post a text and return why that failed. No redirect is followed: it may name another host."""
    import requests

    headers = {"Content-Type": "application/json"}
    try:
        with requests.Session() as session:
            session.trust_env = urlsplit(target).hostname not in LOOPBACK  # no proxy leads there
            answer = session.post(
                target, data=text, headers=headers, timeout=WEBHOOK_S, allow_redirects=False
            )
    except requests.RequestException as error:  # whose text repeats the address
        return type(error).__name__
    if answer.is_redirect:
        return f"it redirects (HTTP {answer.status_code}), which is not followed; give its new URL"
    return "" if answer.ok else f"HTTP {answer.status_code}"


def _run(target: str, text: str) -> str:
    """Run the command with the text as its input and return why that failed."""
    words = shlex.split(target)
    try:
        done = subprocess.run(
            words, input=text, capture_output=True, text=True, timeout=COMMAND_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__} of {words[0]}"
    if done.returncode == 0:
        return ""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return ", ".join([f"exit code {done.returncode}", *(line[:300] for line in lines[-1:])])


def hide_secrets(target: str) -> str:
    """Return a target as people may read it: of a URL the host, of a command its name.

    The rest may be a password, or the key by which a webhook knows its users.
    """
    if "://" not in target:
        return target.split(maxsplit=1)[0] if target.split() else target
    try:
        return f"{urlsplit(target).scheme}://{urlsplit(target).hostname}"
    except ValueError:
        return target.partition("://")[0] + "://"
