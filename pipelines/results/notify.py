"""Someone is told of what did not go well: a webhook, or a command of the lab's own."""

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

WEBHOOK_S = 10.0  # for a webhook
COMMAND_S = 60.0
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def check(target: str) -> None:
    """UserError for what can be told nothing: no URL of http or https, and no command there is."""
    why = _reason_invalid(target)
    if why:
        raise UserError(
            "What is told must be a URL, http://... or https://..., or a command that is there. "
            f"Received: {hide_secrets(target)!r}: {why}. Set --notify so."
        )


def _reason_invalid(target: str) -> str:
    """Why a target cannot be told anything; empty for a good one."""
    if "://" in target:
        try:
            parts = urlsplit(target)
            there = parts.hostname and (parts.port is None or parts.port > 0)
        except ValueError as error:
            return str(error).partition(":")[0]
        if parts.scheme not in ("http", "https"):
            return "another kind of URL"
        return "" if there else "no host"
    try:
        words = shlex.split(target)
    except ValueError as error:
        return str(error)
    if not words:
        return "no command"
    return "" if shutil.which(words[0]) else "no such command"


def send(target: str, document: Mapping[str, Any]) -> str:
    """POST a document as JSON to a URL, or give it to a command on its standard input.

    Never raises: what fails is said on standard error, without what may be secret, and returned.
    """
    text = json.dumps(document, default=str)
    why = _reason_invalid(target) or (_post if "://" in target else _run)(target, text)
    if not why:
        return ""
    message = f"{hide_secrets(target)} was not told: {why.replace(target, hide_secrets(target))}"
    with contextlib.suppress(OSError, ValueError):
        print(message, file=sys.stderr)
    return message


def _post(target: str, text: str) -> str:
    """Post a text; why that failed. A redirect is not followed: it may lead to another host."""
    import requests

    headers = {"Content-Type": "application/json"}
    try:
        with requests.Session() as session:
            session.trust_env = urlsplit(target).hostname not in LOOPBACK  # to which no proxy leads
            answer = session.post(
                target, data=text, headers=headers, timeout=WEBHOOK_S, allow_redirects=False
            )
    except requests.RequestException as error:  # whose text repeats the address
        return type(error).__name__
    if answer.is_redirect:
        return f"it redirects (HTTP {answer.status_code}), which is not followed; give its new URL"
    return "" if answer.ok else f"HTTP {answer.status_code}"


def _run(target: str, text: str) -> str:
    """Run the command; why that failed."""
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
    """A target as people may read it: of a URL the host, of a command its name.

    The rest may be a password, or the key by which a webhook knows its users.
    """
    if "://" not in target:
        return target.split(maxsplit=1)[0] if target.split() else target
    try:
        return f"{urlsplit(target).scheme}://{urlsplit(target).hostname}"
    except ValueError:
        return target.partition("://")[0] + "://"
