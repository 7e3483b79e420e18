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

from pipelines import claims, history, provenance, tracking
from pipelines.errors import UserError, unknown
from pipelines.recipes import Recipe, digest
from pipelines.run import run
from pipelines.verdict import VERDICTS, Bound, spreads, summary


@dataclass(frozen=True)
class Bench:
    """What a measurement works with: the claim's run in MLflow and the ways to add to it."""

    run: tracking.Run
    force: bool

    def train(self, recipe: Recipe) -> dict[str, float]:
        """The final numbers of a training run, which becomes a child of the claim's run."""
        result = run(recipe, parent=self.run, force=self.force)
        if result.reused:  # a child of another run: say which
            self.run.tag(f"reused.{result.run_id}", f"{recipe.name} seed {recipe.seed}")
        return result.metrics

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

    It is not measured again when a finished run has the same settings, seeds and code, unless
    `force`. The scoreboard takes runs `as_stated`: with the claim's own settings and seeds.
    """
    claim = load(name)
    n = claim.seeds if seeds is None else seeds
    if n < 1:
        raise UserError(f"seeds must be >= 1. Received: seeds={n}. Set --seeds 1 or more.")
    identity = {"claim": name, "settings": dataclasses.asdict(settings), "seeds": n}
    tags = {
        "fingerprint": digest(identity),
        "code": provenance.code(Path(_module(name).__file__)),
        "scale": scale,
    }
    done = [] if force else history.rows(kind="claim", **tags)
    if done:
        return document(done[0]) | {"reused": True}
    with tracking.tracked(
        f"{name} {scale}",
        experiment=claim.family,
        kind="claim",
        params=dataclasses.asdict(settings) | {"seeds": n},
        tags={
            **tags,
            "claim": name,
            "source": claim.source,
            "as_stated": str(settings == claim.scales.get(scale) and n >= claim.seeds),
        },
    ) as tracked:
        drawn, values = _measure(claim, settings, range(n), Bench(tracked, force))
        verdict = claim.verdict(values, scale)
        tracked.log(summary(values))
        tracked.tag("verdict", verdict)
        tracked.tag("seeds", str(n))
        tracked.tag(
            "mlflow.note.content",
            note(name, scale, verdict, _flags(settings, claim.scales[scale], n)),
        )
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


def _flags(settings: Any, default: Any, seeds: int) -> str:
    """The options that repeat a measurement, as a person would type them."""
    words = [f"--seeds {seeds}"]
    for f in dataclasses.fields(settings):
        value = getattr(settings, f.name)
        if value != getattr(default, f.name):
            values = value if isinstance(value, tuple | list) else [value]
            words.append(f"--{f.name.replace('_', '-')} {' '.join(map(str, values))}")
    return " ".join(words)


def note(name: str, scale: str, verdict: str, flags: str) -> str:
    """Markdown for the top of the run's page."""
    claim = load(name)
    decided = "; ".join(map(str, claim.decided_by))
    return (
        f"**{claim.says}** ({claim.source})\n\nVerdict: **{verdict}**, decided by {decided}.\n\n"
        f"Repeat: `python -m pipelines run {name} --scale {scale} {flags} --force`\n\n{card(name)}"
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
        "metrics": spreads({k: v for k, v in row.metrics.items() if k != "wall_s"}, n),
        "reported": dict(load(name).reported),
        "run_id": row.id,
        "wall_s": row.metrics["wall_s"],
        "reused": False,
    }
