"""What the page of a training in MLflow says: its errors, what it is, how to repeat it."""

from collections.abc import Mapping
from contextlib import suppress

from pipelines.errors import UserError
from pipelines.recipes import catalog
from pipelines.recipes.recipe import Recipe
from pipelines.runtime import provenance
from pipelines.tracking import mlflow_ui


def describe_errors(metrics: Mapping[str, float]) -> str:
    """Return `error: test 4.9 %, validation 5.1 %, best 4.7 %`; losses where errors are none."""
    unit = " %" if "val_error_pct" in metrics else ""
    what = "error_pct" if unit else "loss"
    names = {f"test_{what}": "test", f"val_{what}": "validation", f"best_val_{what}": "best"}
    numbers = [f"{name} {metrics[key]:.4g}{unit}" for key, name in names.items() if key in metrics]
    return f"{what.removesuffix('_pct')}: {', '.join(numbers)}"


def write(recipe: Recipe, metrics: Mapping[str, float], run_id: str) -> str:
    """Return Markdown for the page of a training: its errors, what it is and how to repeat it."""
    reported = [f"`{key}` {value:g}" for key, value in recipe.reported.items()]
    lines = [
        f"**{describe_errors(metrics)}**",
        f"Recipe `{recipe.name}` ({recipe.source}), seed {recipe.seed}",
        f"Reported: {'; '.join(reported)}" if reported else "",
        f"Repeat: `{repeat_command(recipe)}`",
        f"[Its learning curves]({mlflow_ui.learning_curves([run_id])})",
        f"![learning rate](get-artifact?path=learning_rate.png&run_uuid={run_id})",
    ]
    return "\n\n".join(filter(None, lines))


def repeat_command(recipe: Recipe) -> str:
    """Return the command that trains a recipe alone, else the one that was typed."""
    commands = []
    for scale, published in catalog.RECIPES.get(recipe.name, {}).items():
        with suppress(UserError):
            words = ["run", recipe.name, "--scale", scale, recipe.flags(published), "--force"]
            commands.append(f"python -m pipelines {' '.join(filter(None, words))}")
    return min(commands, key=len, default=f"python -m {provenance.tags()['mlflow.source.name']}")
