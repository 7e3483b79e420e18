"""The page of a training in MLflow: its errors, what it is, which command made it."""

from collections.abc import Mapping
from types import MappingProxyType

from pipelines.recipes.recipe import Recipe
from pipelines.running.seed_statistics import format_mean
from pipelines.runtime import provenance


def describe_errors(
    metrics: Mapping[str, float], sds: Mapping[str, float | None] = MappingProxyType({})
) -> str:
    """Return `error: test 4.9 %, validation 5.1 %, best 4.7 %`; losses where errors are none.

    Where `sds` has the standard deviation of a number, `4.9 ± 0.2 %`.
    """
    unit = " %" if {"val_error_pct", "test_error_pct"} & metrics.keys() else ""
    what = "error_pct" if unit else "loss"
    names = {f"test_{what}": "test", f"val_{what}": "validation", f"best_val_{what}": "best"}
    numbers = [
        f"{name} {format_mean({'mean': metrics[key], 'sd': sds.get(key)})}{unit}"
        for key, name in names.items()
        if key in metrics
    ]
    return f"{what.removesuffix('_pct')}: {', '.join(numbers)}"


def write(recipe: Recipe, metrics: Mapping[str, float], run_id: str) -> str:
    """Return Markdown for the page of a training, without asking the store, which may be away."""
    reported = [f"`{key}` {value:g}" for key, value in recipe.reported.items()]
    lines = [
        f"**{describe_errors(metrics)}**",
        f"Recipe `{recipe.name}` ({recipe.source}), seed {recipe.seed}",
        f"Reported: {'; '.join(reported)}" if reported else "",
        f"Made by: `python -m {provenance.tags()['mlflow.source.name']}`",
        f"![learning rate](get-artifact?path=learning_rate.png&run_uuid={run_id})",
    ]
    return "\n\n".join(filter(None, lines))
