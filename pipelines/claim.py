"""Claims: a sentence of a source, how it is measured at each scale, the bounds that decide it.

Each module of pipelines/claims holds one, named after its file, as `CLAIM`; nothing else has to be
edited to add one.
"""

import dataclasses
import importlib
import pkgutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from pipelines import claims, history, tracking
from pipelines.errors import UserError, unknown
from pipelines.provenance import ROOT
from pipelines.recipes import Recipe, digest
from pipelines.run import run
from pipelines.verdict import VERDICTS, Bound, summary


@dataclass(frozen=True)
class Bench:
    """What a measurement works with: the claim's run in MLflow and the ways to add to it."""

    run: tracking.Run
    force: bool

    def train(self, recipe: Recipe) -> dict[str, float]:
        """The final numbers of a training run, which becomes a child of the claim's run."""
        return run(recipe, parent=self.run, force=self.force).metrics

    def curves(
        self, name: str, setting: Mapping[str, Any], curves: Mapping[str, Any], steps: Any
    ) -> None:
        """One child run: curves [n] over integer steps [n], which become the chart's axis."""
        with tracking.tracked(
            name, experiment=self.run.experiment, kind="setting", params=setting, parent=self.run
        ) as child:
            for i, step in enumerate(steps):
                child.log({key: float(values[i]) for key, values in curves.items()}, int(step))


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of a source and how it is decided.

    `measure(setting, seed, bench)` returns numbers by name, and whatever `figure` draws from, one
    of each per seed; `scales` holds a frozen dataclass of settings for each scale.
    """

    source: str
    says: str
    family: str
    scales: Mapping[str, Any]
    decided_by: tuple[Bound, ...]
    measure: Callable[[Any, int, Bench], tuple[dict[str, float], Any]]
    figure: Callable[[list[Any]], Any]
    reported: Mapping[str, float] = field(default_factory=dict)
    seeds: int = 5

    def verdict(self, values: Mapping[str, Sequence[float]], scale: str) -> str:
        """The weakest verdict of its bounds; a reported number is judged at paper scale only."""
        if self.reported and scale != "paper":
            return "smaller scale"
        return min((b.verdict(values[b.metric]) for b in self.decided_by), key=VERDICTS.index)


def names() -> list[str]:
    """Names of all claims, found without importing any of them."""
    return sorted(m.name.replace("_", "-") for m in pkgutil.iter_modules(claims.__path__))


def load(name: str) -> Claim:
    """The claim of that name; UserError lists the choices."""
    if name not in names():
        raise unknown("A claim", name, names())
    found: Claim = _module(name).CLAIM
    return found


def card(name: str) -> str:
    """The claim in words: the docstring of its module."""
    return (_module(name).__doc__ or "").strip()


def _module(name: str) -> Any:
    return importlib.import_module(f"{claims.__name__}.{name.replace('-', '_')}")


def setting(claim: Claim, name: str, scale: str) -> Any:
    """The claim's settings at that scale; UserError lists the scales it has."""
    if scale not in claim.scales:
        raise unknown(f"The scale of {name}", scale, claim.scales)
    return claim.scales[scale]


def check(
    name: str, scale: str, settings: Any, seeds: int | None = None, force: bool = False
) -> dict[str, Any]:
    """Measure a claim over seeds 0, 1, ..., record it, and return its document.

    The claim is not measured again when a finished run has the same settings, seeds and code of
    theory and claim, unless `force`.
    """
    claim, n = load(name), load(name).seeds if seeds is None else seeds
    if n < 1:
        raise UserError(f"seeds must be >= 1. Received: seeds={n}. Set --seeds 1 or more.")
    identity = {"claim": name, "settings": dataclasses.asdict(settings), "seeds": n}
    fingerprint = digest({**identity, "code": _code(name)})
    done = [] if force else history.rows(kind="claim", fingerprint=fingerprint, scale=scale)
    if done:
        return document(done[0]) | {"reused": True}
    with tracking.tracked(
        f"{name} {scale}",
        experiment=claim.family,
        kind="claim",
        params=dataclasses.asdict(settings) | {"seeds": n},
        tags={"claim": name, "scale": scale, "fingerprint": fingerprint, "source": claim.source},
    ) as tracked:
        drawn, values = _measure(claim, settings, range(n), Bench(tracked, force))
        verdict = claim.verdict(values, scale)
        tracked.log(summary(values))
        tracked.tag("verdict", verdict)
        tracked.tag("seeds", str(n))
        tracked.tag("mlflow.note.content", note(name, scale, verdict))
        tracked.figure(claim.figure(drawn), "figure.png")
    return document(history.row(tracked.id))


def _measure(
    claim: Claim, settings: Any, seeds: Sequence[int], bench: Bench
) -> tuple[list[Any], dict[str, list[float]]]:
    """What the figure draws from, and one value a seed of every metric, logged as it comes."""
    import scipy.linalg  # noqa: F401 - loads its BLAS, so that the limit below finds it

    started = time.perf_counter()
    drawn: list[Any] = []
    values: dict[str, list[float]] = {}
    with threadpool_limits(1, user_api="blas"):  # on small matrices more threads cost, not gain
        for seed in seeds:
            metrics, drawable = claim.measure(settings, seed, bench)
            bench.run.log({f"seed/{key}": value for key, value in metrics.items()}, seed)
            drawn.append(drawable)
            for key, value in metrics.items():
                values.setdefault(key, []).append(value)
    bench.run.log({"wall_s": time.perf_counter() - started})
    return drawn, values


def note(name: str, scale: str, verdict: str) -> str:
    """Markdown for the top of the run's page."""
    claim = load(name)
    decided = "; ".join(map(str, claim.decided_by))
    return (
        f"**{claim.says}** ({claim.source})\n\nVerdict: **{verdict}**, decided by {decided}.\n\n"
        f"Repeat: `python -m pipelines run {name} --scale {scale} --force`\n\n{card(name)}"
    )


def document(row: history.Row) -> dict[str, Any]:
    """A measured claim as users script against it; all of it read back from MLflow."""
    name, n = row.tags["claim"], int(row.tags["seeds"])
    return {
        "claim": name,
        "source": row.tags["source"],
        "scale": row.tags["scale"],
        "verdict": row.tags["verdict"],
        "seeds": n,
        "metrics": spreads(row, n),
        "reported": dict(load(name).reported),
        "run_id": row.id,
        "wall_s": row.metrics["wall_s"],
        "reused": False,
    }


def spreads(row: history.Row, n: int) -> dict[str, dict[str, Any]]:
    """{metric: {"mean", "sd", "n"}} of a run that carries the summary of n seeds."""
    own = {k: v for k, v in row.metrics.items() if "/" not in k and k != "wall_s"}
    return {
        k: {"mean": v, "sd": row.metrics.get(f"sd/{k}"), "n": n} for k, v in sorted(own.items())
    }


def _code(name: str) -> str:
    """Digest of what a measurement computes with: theory/ and the claim's own module."""
    paths = [*sorted((ROOT / "theory").glob("*.py")), Path(_module(name).__file__)]
    return digest([path.read_text() for path in paths])
