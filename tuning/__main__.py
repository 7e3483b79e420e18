"""Command line: `python -m tuning run STUDY | show STUDY`."""

import sys
from pathlib import Path
from typing import Any

import tyro

from pipelines.shell import guarded, print_json, use_data_dir

PROG = "python -m tuning"
app = tyro.extras.SubcommandApp()


@app.command
def run(
    study: tyro.conf.Positional[str],
    *,
    recipe: str = "allconv-digits",
    scale: str = "cpu",
    space: str = "lr-schedule",
    trials: int = 20,
    force: bool = False,
    json: bool = False,
    data_dir: Path | None = None,
) -> None:
    """Search until the study has so many finished trials; started again, it goes on.

    Args:
        study: name of the study.
        recipe: recipe to improve; `python -m pipelines list` names them.
        scale: scale of the recipe.
        space: search space (tuning/spaces.py).
        trials: finished trials to reach.
        force: start the study over.
        json: print one JSON document on standard output.
        data_dir: folder of prepared data sets (default: TFDS_DATA_DIR).
    """
    from tuning.study import Plan, search

    use_data_dir(data_dir)
    document = search(study, Plan(recipe, scale, space), trials, force)
    if json:
        print_json(document)
    else:
        _print(document)


@app.command
def show(study: tyro.conf.Positional[str], json: bool = False) -> None:
    """Print a study: its trials, the best, and the overrides that repeat it."""
    from tuning import study as studies

    document = studies.show(study)
    if json:
        print_json(document)
    else:
        _print(document)


def _print(document: dict[str, Any]) -> None:
    if document["reused"]:
        print("Found finished; --force starts it over, more --trials continue it.")
    for trial in document["trials"]:
        error = trial["val_error_pct"]
        result = trial["status"] if error is None else f"{error:.2f} % validation error"
        print(f"{trial['name']:<32} {result}")
    metrics = document["metrics"]
    if document["best"] is None:
        print(f"Not finished; go on with: {PROG} run {document['study']}")
        return
    print(
        f"published schedule {metrics['baseline_val_error_pct']:.2f} %, "
        f"best {metrics['best_val_error_pct']:.2f} %: python -m pipelines run "
        f"{document['recipe']} --scale {document['scale']} {document['best']}"
    )


def dispatch(arguments: list[str]) -> None:
    app.cli(args=arguments, prog=PROG, description=__doc__)


if __name__ == "__main__":
    sys.exit(guarded(dispatch, sys.argv[1:]))
