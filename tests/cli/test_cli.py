"""The commands as a person types them: fast to answer, one sentence for a mistake."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.__main__ import dispatch
from pipelines.cli import tables
from pipelines.tracking import history, tracked_run
from tests.conftest import ROOT, command


def answers(calls: list[list[str]]) -> subprocess.CompletedProcess[str]:
    """The CLI's answers to these argument lists, one after the other in one fresh interpreter."""
    source = (
        "import sys, json\n"
        "from pipelines.__main__ import dispatch\n"
        "from pipelines.cli.shell import run_command_safely\n"
        "for arguments in json.loads(sys.argv[1]):\n"
        "    try:\n"
        "        code = run_command_safely(dispatch, arguments)\n"
        "    except SystemExit as exit:\n"
        "        code = exit.code\n"
        "    print('exit', code, file=sys.stderr, flush=True)\n"
        "    print('imported', sorted({'tensorflow', 'mlflow'} & set(sys.modules)), flush=True)\n"
    )
    return subprocess.run(
        [sys.executable, "-c", source, json.dumps(calls)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_list_and_help_import_nothing_heavy(home: Path) -> None:
    calls = [["list"], ["list", "--json"], ["--help"], ["run", "allconv-digits", "--help"]]
    calls += [["show", "gradient-formula"], ["show", "allconv-digits", "--json"]]
    done = answers(calls)
    assert done.stdout.count("imported []") == len(calls)


def test_every_name_that_can_be_run_has_help(home: Path) -> None:
    from pipelines.measurement import claim_catalog
    from pipelines.recipes import catalog

    calls = [["run", name, "--help"] for name in [*claim_catalog.names(), *catalog.RECIPES]]
    done = answers(calls)
    assert done.stderr.count("exit 0") == len(calls), done.stderr
    assert done.stdout.count("--seeds") >= len(calls)
    claims = [words for words in calls if words[1] in claim_catalog.names()]
    assert done.stdout.count("Source: ") == len(claims)


def test_a_recipe_repeated_over_seeds_has_one_set_of_numbers(home: Path, digits: Path) -> None:
    from pipelines.recipes.catalog import get_recipe
    from pipelines.running.seeds import repeat

    recipe = get_recipe("mlp-digits", "smoke")
    single, again = repeat(recipe), repeat(recipe)
    assert (single["reused"], again["reused"]) == (False, True)
    assert single["metrics"] == again["metrics"]
    both = repeat(recipe, seeds=2)  # its first seed is there already
    assert both["metrics"].keys() == single["metrics"].keys()
    errors = [repeat(recipe.override(seed=s))["metrics"]["test_error_pct"] for s in range(2)]
    mean = sum(error["mean"] for error in errors) / 2
    assert both["metrics"]["test_error_pct"]["mean"] == pytest.approx(mean)
    assert repeat(recipe, seeds=2)["run_id"] == both["run_id"]


def test_run_claim_prints_the_documented_json(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = "run small-norm-factorization --scale smoke --seeds 2 --json"
    dispatch(words.split())
    document = json.loads(capfd.readouterr().out)
    keys = {"claim", "source", "scale", "verdict", "seeds", "metrics", "reported", "run_id"}
    assert keys | {"wall_s"} <= document.keys()
    assert (document["verdict"], document["seeds"]) == ("holds", 2)
    assert document["metrics"]["ratio"].keys() >= {"mean", "sd", "n"}


def test_a_claim_ends_with_its_verdict_first_and_its_link_last(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    dispatch(["run", "small-norm-factorization", "--scale", "smoke", "--seeds", "2"])
    first, *rest, link = capfd.readouterr().out.splitlines()
    assert first.startswith("small-norm-factorization: holds at smoke scale, 2 seeds, ")
    assert first.endswith(" (HM Theorem 2.1)")
    assert any(re.match("ratio .* <= 1 for every seed", line) for line in rest)
    [row] = history.rows(kind="claim")
    assert link.startswith("http") and row.id in link and len(link) < 150


def test_a_recipe_ends_with_its_errors_first_beside_the_reported_one(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tags = {"recipe": "allconv-cifar10"}
    with tracked_run.track(
        "seeds", experiment="trained networks", kind="seeds", tags=tags, params={"seeds": "2"}
    ) as run:
        pass
    values = {"test_error_pct": 9.5, "val_error_pct": 8.25, "wall_s": 7_560.0}
    metrics = {key: {"mean": value, "sd": 0.5, "n": 2} for key, value in values.items()}
    document = {"recipe": "allconv-cifar10", "scale": "paper", "seeds": 2, "run_id": run.id}
    tables.show_training({**document, "metrics": metrics, "reused": False})
    first, *rest, page = capfd.readouterr().out.splitlines()
    assert first == (
        "allconv-cifar10: test error 9.5 % (reported 6.38 %), validation error 8.25 % at paper "
        f"scale, 2 seeds, 2.1 h each (run {run.id[:8]})"
    )
    row = "test_error_pct 9.50 ± 0.50 6.38"
    assert row in [" ".join(line.split()) for line in rest]
    assert page.startswith("http") and run.id in page


def test_overrides_reach_the_run_and_a_finished_one_is_found(
    home: Path, digits: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "mlp-digits", "--scale", "smoke", "--json", "--schedule", "exponential"]
    words += ["--final", "0.5", "--width", "8", "--devices", "1"]
    words += ["--steps", "1"]  # one step has no rate: standard output is JSON all the same
    dispatch(words)
    first = json.loads(capfd.readouterr().out, parse_constant=pytest.fail)
    assert first["metrics"]["images_per_s"]["mean"] is None
    dispatch(words)
    again = json.loads(capfd.readouterr().out)
    assert (first["reused"], again["reused"]) == (False, True)
    assert again["run_id"] == first["run_id"]
    assert again["metrics"]["test_error_pct"] == first["metrics"]["test_error_pct"]

    from pipelines.tracking import history

    params = history.row(first["run_id"]).params
    assert params["schedule_args.final"] == "0.5"
    assert params["model_args.width"] == "8"


def test_data_check_is_one_json_document(
    digits: Path, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    dispatch(["data", "check", "digits", "--json"])
    document = json.loads(capfd.readouterr().out)
    assert document["train"] + document["val"] + document["test"] == 1797


@pytest.mark.slow
def test_a_slice_ends_with_success_and_says_that_it_is_unfinished(home: Path, digits: Path) -> None:
    words = ("run", "mlp-digits", "--scale", "smoke", "--max-minutes", "1e-6", "--json")
    done = command("pipelines", *words)
    assert done.returncode == 0, done.stderr
    said = "Paused after step 1 of 8: the time of --max-minutes is over. The same command goes on."
    assert json.loads(done.stdout) == {"name": "mlp-digits", "finished": False, "said": said}
    assert done.stderr == f"{said}\n"
    assert [row.status for row in history.rows(None)] == ["KILLED"]
