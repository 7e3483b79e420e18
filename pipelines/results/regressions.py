"""Regressions: verdicts and headline numbers, compared with those of the run before.

Two runs are compared that measured the same settings; the code and the packages may differ, and are
named where a result did. Another verdict counts, and a mean over seeds whose difference has a 95 %
Welch confidence interval without zero in it.
"""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.measurement import claim_catalog, verdict
from pipelines.running import seed_statistics, seeds
from pipelines.runtime.plain_table import print_prose
from pipelines.tracking import history, store
from pipelines.tracking.history import Row

REGRESSION = 3  # the exit code
RELATIVE_TOLERANCE = 1e-6  # a number that differs by less is unchanged
KINDS = {"claim": "claim", "seeds": "recipe"}  # kinds of results: the tag that names each
ERRORS = ("val_", "test_")  # begin the numbers of seeds that are watched
PACKAGES = "provenance/packages.txt"
VERSION = "version."  # begins the tags of a few packages
MAX_PACKAGES = 8  # packages named in one line


@dataclass(frozen=True)
class Pair:
    """A result and the one before it, of the same settings."""

    new: Row
    old: Row

    @functools.cached_property
    def spreads(self) -> list[dict[str, dict[str, Any]]]:
        """Return the statistics of the old one's metrics, and of the new one's."""
        return [seeds.spreads(row) for row in (self.old, self.new)]

    @property
    def name(self) -> str:
        return self.new.tags[KINDS[self.new.tags["kind"]]]


def compare_newest(
    names: Sequence[str] | None = None, below: str | None = None, runs: Iterable[Row] = ()
) -> dict[str, Any]:
    """Return the document of the newest results of all settings beside the previous ones.

    Of the claims and recipes in `names`, or of children of `below`, and of `runs`, if given.
    What was measured once is not compared; results of which one seed is compared are in `one_seed`.
    """
    pairs = []  # sorted by name
    results = {row.id: row for row in [*_newest(names, below), *runs]}
    for new in sorted(results.values(), key=_settings):
        tags = {tag: new.tags[tag] for tag in ("kind", "fingerprint")}
        rows = history.rows_with_evidence if new.is_project else history.rows  # one that was shown
        equal_rows = [row for row in rows(**tags) if _settings(row) == _settings(new)]
        ids = [row.id for row in equal_rows]  # newest first
        pairs += [Pair(new, old) for old in equal_rows[ids.index(new.id) + 1 :][:1]]
    changes = {pair.new.id: _find_changes(pair) for pair in pairs}
    changed = [pair for pair in pairs if changes[pair.new.id]]
    return {
        "compared": len(pairs),
        "changes": [change for pair in pairs for change in changes[pair.new.id]],
        "one_seed": sorted(
            {pair.name for pair in pairs for m in _common_metrics(pair) if _seeds(pair, m) < 2}
        ),
        **_code_changes(changed or pairs),
    }


def _newest(names: Sequence[str] | None, below: str | None) -> Iterable[Row]:
    """Return the newest results that are asked for, one of all settings."""
    newest: dict[tuple[str, ...], Row] = {}
    for kind, name_tag in KINDS.items():
        tags = [{}] if names is None else [{name_tag: name} for name in names]
        for each in [{store.PARENT: below}] if below else tags:
            for row in history.rows(kind=kind, **each):
                newest.setdefault(_settings(row), row)
    return newest.values()


def _settings(row: Row) -> tuple[str, ...]:
    """Return what two runs share that are compared."""
    kind = row.tags["kind"]
    return (kind, *(row.tags.get(key, "") for key in (KINDS[kind], "scale", "fingerprint")))


def _common_metrics(pair: Pair) -> list[str]:
    """Return the metrics that are compared: those that decide a claim, the errors of seeds."""
    name = pair.new.tags.get("claim", "")
    if pair.new.tags["kind"] == "seeds":
        metrics = sorted(key for key in pair.new.metrics if key.startswith(ERRORS))
    else:
        bounds = claim_catalog.load(name).decided_by if claim_catalog.is_claim(name) else ()
        metrics = list(dict.fromkeys(bound.metric for bound in bounds))
    return [key for key in metrics if key in pair.new.metrics and key in pair.old.metrics]


def _seeds(pair: Pair, metric: str) -> float:
    return float(min(metrics[metric]["n"] for metrics in pair.spreads))


def _find_changes(pair: Pair) -> list[dict[str, Any]]:
    """Return another verdict, and the numbers that differ beyond their spread."""
    runs: dict[str, Any] = {"name": pair.name, "scale": pair.new.tags.get("scale", "")}
    runs |= {"run_id": pair.new.id, "previous": pair.old.id}
    before, after = (row.tags.get("verdict", "") for row in (pair.old, pair.new))
    is_changed = not verdict.agree(before, after)
    changes = [runs | {"what": "verdict", "before": before, "after": after}] * is_changed
    for metric in _common_metrics(pair):
        low_high = _changed_interval(pair, metric)
        if low_high is not None:
            numbers = (row.metrics[metric] for row in (pair.old, pair.new))
            old, new = (n if math.isfinite(n) else str(n) for n in numbers)  # JSON has no infinity
            interval: dict[str, Any] = {"interval": list(low_high)} if low_high else {}
            changes.append(runs | {"what": metric, "before": old, "after": new} | interval)
    return changes


def _changed_interval(pair: Pair, metric: str) -> tuple[float, ...] | None:
    """Return the interval of a difference, if it leaves out zero; None for an unchanged number.

    It is empty where a number without spread, or one that is not finite, is another one.
    """
    old, new = pair.old.metrics[metric], pair.new.metrics[metric]
    if not (math.isfinite(old) and math.isfinite(new)):
        return None if str(old) == str(new) else ()  # NaN equals itself here
    if _seeds(pair, metric) < 2 or math.isclose(old, new, rel_tol=RELATIVE_TOLERANCE):
        return None
    before, after = (metrics[metric] for metrics in pair.spreads)
    if before["sd"] == after["sd"] == 0:
        return ()
    interval = seed_statistics.difference(before, after)
    return interval if interval and (interval[0] > 0 or interval[1] < 0) else None


def _code_changes(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return the packages and commits that differ between the oldest and the newest of the runs."""
    if not pairs:
        return {"versions": {}, "commits": []}
    old = min((pair.old for pair in pairs), key=lambda row: row.start_ms)
    new = max((pair.new for pair in pairs), key=lambda row: row.start_ms)
    lists = [store.artifact(row.id, PACKAGES) for row in (old, new)]
    if None in lists:  # those in tags
        found = [
            {k.removeprefix(VERSION): v for k, v in row.tags.items() if k.startswith(VERSION)}
            for row in (old, new)
        ]
    else:
        lines = [(text or b"").decode().split() for text in lists]
        found = [dict(line.partition("==")[::2] for line in each) for each in lines]
    before, after = found
    versions = {
        name: [before.get(name), after.get(name)]
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    }
    commits = [row.tags.get("commit", "unknown") for row in (old, new)]
    return {"versions": versions, "commits": commits}


def agreement(project: Row, yours: Row) -> str:
    """Return whether your run of a claim agrees with the project's, or in what it differs."""
    if _settings(project) != _settings(yours):
        return "not compared: other settings or seeds"
    changes = [_describe_change(each) for each in _find_changes(Pair(new=yours, old=project))]
    return "; ".join(["differs", *changes]) if changes else "agrees with the project"


def change_summary(document: Mapping[str, Any]) -> str:
    """Return the difference in one line, with the packages and commits that may have caused it."""
    changes, versions = document["changes"], document["versions"]
    if not changes:
        return f"{document['compared']} results compared, none changed"
    packages = [f"{name} {_arrow(*pair)}" for name, pair in versions.items()]
    more = [f"{len(packages) - MAX_PACKAGES} more packages"] * (len(packages) > MAX_PACKAGES)
    commits = document["commits"]
    moved = [f"commit {_arrow(*commits)}"] * (len(set(commits)) > 1)
    return "; ".join([*map(_describe_change, changes), *packages[:MAX_PACKAGES], *more, *moved])


def _describe_change(change: Mapping[str, Any]) -> str:
    scale = f" ({change['scale']})" if change["scale"] else ""
    between = ""
    if "interval" in change:
        (low, high), level = change["interval"], 100 * seed_statistics.DIFFERENCE_LEVEL
        between = f" (by {low:.3g} to {high:.3g} with {level:g} % confidence)"
    moved = _arrow(change["before"], change["after"])
    return f"{change['name']}{scale}: {change['what']} {moved}{between}"


def _arrow(before: float | str | None, after: float | str | None) -> str:
    values = [f"{each:.6g}" if isinstance(each, float) else each for each in (before, after)]
    return " -> ".join(each or "none" for each in values)


def print_regressions(document: Mapping[str, Any]) -> None:
    """Print what was compared and what has changed."""
    for change in document["changes"]:
        print_prose(_describe_change(change))
    for name, pair in document["versions"].items():
        print(f"  {name} {_arrow(*pair)}")
    if len(set(document["commits"])) > 1:
        print(f"  commit {_arrow(*document['commits'])}")
    if document["one_seed"]:
        names = ", ".join(document["one_seed"])
        print_prose(f"One seed, the verdict alone is watched: {names}.")
    if document["compared"] or document["one_seed"]:
        print(f"{document['compared']} results compared, {len(document['changes'])} changes.")
    else:
        print_prose(
            "Nothing to compare: no result was measured twice. Repeat one: run CLAIM --force, or "
            "run RECIPE --seeds 3 --force (of a recipe the mean over seeds is compared)."
        )
