"""The first four minutes: claims, a learning-rate study, a table. No finished part is repeated."""

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from pipelines import claim, report
from pipelines.provenance import ROOT

CLAIMS = ("small-norm-factorization", "gradient-formula", "identity-beats-plain")
STUDY = (
    "-m", "tuning", "run", "quickstart", "--recipe", "allconv-digits", "--trials", "6", "--json"
)  # fmt: skip


def quickstart(force: bool) -> None:
    """Run every part, say what each gave, and end with the scoreboard."""
    started = time.perf_counter()
    parts: list[tuple[str, Callable[[], str]]] = [
        (name, lambda name=name: _claim(name, force))  # type: ignore[misc]
        for name in CLAIMS
    ]
    parts.append(("learning-rate study", lambda: _study(force)))
    parts.append(("results table", _report))
    for number, (title, part) in enumerate(parts, 1):
        print(f"[{number}/{len(parts)}] {title} ...", flush=True)
        begun = time.perf_counter()
        print(f"[{number}/{len(parts)}] {title}: {part()}, {time.perf_counter() - begun:.0f} s")
    report.show(report.entries())
    print(f"Done in {time.perf_counter() - started:.0f} s. See every run and curve: make ui")


def _claim(name: str, force: bool) -> str:
    found: dict[str, Any] = claim.check(name, "cpu", claim.load(name).scales["cpu"], force=force)
    return f"{found['verdict']}{' (found finished)' if found['reused'] else ''}"


def _study(force: bool) -> str:
    """In a process of its own: tuning builds on pipelines, not the other way round."""
    import json

    command = [sys.executable, *STUDY, *(["--force"] if force else [])]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout)
    best, published = (found["metrics"][f"{k}_val_error_pct"] for k in ("best", "baseline"))
    state = " (found finished)" if found["reused"] else ""
    return f"published schedule {published:.2f} %, best of 6 {best:.2f} % validation error{state}"


def _report() -> str:
    return str(report.write(report.place())["results"])
