"""Someone is told of what did not go well: a webhook, or a command of the lab's own."""

import base64
import contextlib
import http.client
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Any
from urllib.error import HTTPError
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
)

from pipelines.errors import UserError

ANSWER_S = 10.0  # for a webhook
COMMAND_S = 60.0
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def check(target: str) -> None:
    """UserError for what can be told nothing: no URL of http or https, and no command there is."""
    why = _wrong(target)
    if why:
        raise UserError(
            "What is told must be a URL, http://... or https://..., or a command that is there. "
            f"Received: {shown(target)!r}: {why}. Set --notify so."
        )


def _wrong(target: str) -> str:
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


def tell(target: str, document: Mapping[str, Any]) -> str:
    """POST a document as JSON to a URL, or give it to a command on its standard input.

    Never raises: what fails is said on standard error, without what may be secret, and returned.
    """
    text = json.dumps(document, default=str)
    try:
        why = _wrong(target) or (_post if "://" in target else _run)(target, text)
    except (OSError, http.client.HTTPException, ValueError) as error:
        kind = type(error).__name__
        why = str(error) if isinstance(error, OSError) else kind  # others repeat the address
    except subprocess.TimeoutExpired:
        why = f"it took longer than {COMMAND_S:.0f} s"
    if not why:
        return ""
    said = f"{shown(target)} was not told: {why.replace(target, shown(target))}"
    with contextlib.suppress(OSError, ValueError):
        print(said, file=sys.stderr)
    return said


def _post(target: str, text: str) -> str:
    parts = urlsplit(target)
    headers = {"Content-Type": "application/json"} | _authorization(parts)
    address = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl()
    request = Request(address, text.encode(), headers, method="POST")  # noqa: S310 - checked
    try:
        with _opener(direct=parts.hostname in LOOPBACK).open(request, timeout=ANSWER_S):
            return ""
    except HTTPError as error:
        with error:
            if 300 <= error.code < 400:
                return f"it redirects (HTTP {error.code}), which is not followed; give its new URL"
            raise


def _opener(direct: bool) -> OpenerDirector:
    """What opens a URL and follows no redirect, which would take the password to another host."""
    opener = OpenerDirector()
    for handler in (HTTPHandler, HTTPSHandler, HTTPErrorProcessor, HTTPDefaultErrorHandler):
        opener.add_handler(handler())
    opener.add_handler(ProxyHandler({} if direct else None))
    return opener


def _authorization(parts: SplitResult) -> dict[str, str]:
    """The header for a user and a password in a URL."""
    if parts.username is None:
        return {}
    words = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": f"Basic {base64.b64encode(words.encode()).decode()}"}


def _run(target: str, text: str) -> str:
    """Run the command; what it says where it fails."""
    done = subprocess.run(
        shlex.split(target),
        input=text,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
    if done.returncode == 0:
        return ""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return f"exit code {done.returncode}{f', {lines[-1][:300]}' if lines else ''}"


def shown(target: str) -> str:
    """A target as people may read it: of a URL the host, of a command its name.

    The rest may be a password, or the key by which a webhook knows its users.
    """
    if "://" not in target:
        return target.split(maxsplit=1)[0] if target.split() else target
    try:
        return f"{urlsplit(target).scheme}://{urlsplit(target).hostname}"
    except ValueError:
        return target.partition("://")[0] + "://"
