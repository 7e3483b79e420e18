"""Evidence that was made by hand is found: cells without trainings, or with others' numbers."""

import dataclasses
import hashlib
import io
import itertools
import json
import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.__main__ import dispatch
from pipelines.errors import UserError
from pipelines.measurement import claim_catalog, sweep
from pipelines.measurement.cells import unpack
from pipelines.measurement.claim_run import settings_table
from pipelines.measurement.grid import Measured
from pipelines.measurement.plan import stated_plan
from pipelines.results import scoreboard
from pipelines.results.evidence import adding, bundles, check, derive
from pipelines.results.evidence import recorded as recorded_evidence
from pipelines.running.existing import DIVERGED
from pipelines.tracking import history, store, tracked_run
from tests.conftest import Go

TRAINED, THEOREM = "identity-beats-plain", "small-norm-factorization"
SHIPPED = bundles.FOLDER


@pytest.fixture(autouse=True)
def folder(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the evidence is, empty at first; no figure is drawn."""
    monkeypatch.setattr(bundles, "FOLDER", tmp_path / "evidence")
    monkeypatch.setattr(store, "is_project_home", lambda: True)
    monkeypatch.setattr(tracked_run.Run, "figure", lambda *_: None)
    bundles.FOLDER.mkdir()
    return bundles.FOLDER


def keep(_: dict[str, Any]) -> None:
    """Change nothing."""


def forge(
    name: str,
    change: Callable[[dict[str, Any]], None] = keep,
    cells: Callable[[dict[str, Any]], None] = keep,
    csv: Callable[[str], str] = str,
) -> None:
    """Put the project's evidence of a claim here, each run changed, with digests that fit.

    `cells` changes the arrays of a table by name, `csv` what is written of it for readers.
    """
    for file in bundles.files([name]) or map(Path, SHIPPED.glob(f"{name}-*[0-9a-f].zip")):
        with zipfile.ZipFile(file) as archive:
            members = {each: archive.read(each) for each in archive.namelist()}
        manifest = json.loads(members.pop("manifest.json"))
        for member in [each for each in members if each.count("/") == 1]:
            document = json.loads(members[member])
            change(document)
            members[member] = json.dumps(document).encode()
            [row] = [r for r in manifest["runs"] if r["run_id"] == document["run_id"]]
            row["status"] = document["status"]
        for member in [each for each in members if each.endswith("/cells.npz")]:
            members[member] = change_table(members[member], cells)
            text = member.replace("cells.npz", "settings.csv")
            members[text] = csv(write_table(name, members[member], members[text])).encode()
        for member, content in members.items():
            digest = hashlib.sha256(content).hexdigest()
            manifest["members"][member] = {"bytes": len(content), "sha256": digest}
        with zipfile.ZipFile(bundles.FOLDER / file.name, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, content in {**members, "manifest.json": json.dumps(manifest)}.items():
                archive.writestr(member, content)


def change_table(table: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    arrays = dict(np.load(io.BytesIO(table)))
    change(arrays)
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def write_table(name: str, table: bytes, before: bytes) -> str:
    """Write cells as `run` does, as a careful forger would."""
    lines = before.decode().splitlines()
    for scale, seeds in itertools.product(claim_catalog.load(name).scales, (3, 5)):
        plan = stated_plan(name, scale, seeds)
        found = unpack(table, plan.cells_by_fingerprint)
        if len(found) == len(plan.cells) == len(lines) - 1:
            return settings_table.write(settings_table.rows(plan.claim, [*found.values()]))
    return before.decode()


def set_curve(
    metric: str, change: Callable[[Any], Any], row: int | None = None
) -> Callable[[dict[str, Any]], None]:
    """Return what changes a curve of all cells, or of one in a row of the table."""

    def change_arrays(arrays: dict[str, Any]) -> None:
        for key in [each for each in arrays if each.endswith(f"/curves/{metric}")]:
            rows = arrays[f"{key.partition('/')[0]}/row"]
            chosen = np.ones(len(rows), bool) if row is None else rows == row
            arrays[key] = np.where(chosen[:, None], change(arrays[key]), arrays[key])

    return change_arrays


def set_metric(document: dict[str, Any], metric: str, change: Callable[[float], float]) -> None:
    points = document["metrics"].get(metric, [])
    document["metrics"] |= {metric: [[s, ms, change(v)] for s, ms, v in points]} if points else {}


def recorded(name: str) -> list[derive.RecordedCell]:
    """Return the cells of a claim in the evidence."""
    evidence = recorded_evidence.read(name)
    assert evidence.deciding
    return derive.cells_of(evidence.deciding)


def problems(name: str) -> list[str]:
    """Return what the trainings of a claim in the evidence contradict."""
    return [problem for cell in recorded(name) for problem in cell.check()]


def problems_in_results(tmp_path: Path, **how: Any) -> list[str]:
    """Return what `evidence check` finds in the evidence and a results.json that is made of it."""
    scoreboard.publish(tmp_path / "published")
    found: list[str] = check.check_evidence(tmp_path / "published" / "results.json", **how)[
        "problems"
    ]
    return found


def test_a_number_that_the_trainings_do_not_give_is_named_with_both(tmp_path: Path) -> None:
    def shift(document: dict[str, Any]) -> None:
        if document["tags"]["kind"] == "claim":
            for prefix in ("", "seed/", "ci_low/", "ci_high/"):
                set_metric(document, f"{prefix}wider_gap_pct", lambda gap: gap + 3)

    forge("batchnorm-overfits", shift, set_curve("wider_gap_pct", lambda gap: gap + 3))
    found = problems_in_results(tmp_path)
    assert len(found) == 3  # and nothing else: the forged row agrees with the forged cells
    assert (
        "batchnorm-overfits seed=0: wider_gap_pct is 4.65 in the evidence, 1.65 by its trainings"
        in found
    )


def write_cells(name: str) -> None:
    """Write the five cells of small-init-helps at hours scale, as if they had been measured."""
    plan = stated_plan(name, "hours", 5)
    curves = {"small_test_error_pct": 20.0, "standard_test_error_pct": 25.0, "advantage_pct": 5.0}
    curves |= {"small_rate": 0.1, "standard_rate": 0.001, "rates_at_an_end": 0.0}
    curves |= {"small_diverged": 0.0, "standard_diverged": 0.0}
    columns = {key: np.array([value]) for key, value in curves.items()}
    given = {
        key: Measured(cell, np.zeros(1, np.int64), columns, plan.code)
        for key, cell in plan.cells_by_fingerprint.items()
    }
    sweep.measure(plan, given)


def test_cells_written_by_hand_are_not_added_and_nothing_is_published() -> None:
    name = "small-init-helps"
    write_cells(name)
    with pytest.raises(UserError, match=r"small-init-helps seed=\d: there is no search of .*add"):
        adding.add([name])
    assert bundles.files() == []
    assert history.rows_with_evidence(None, origin="project") == []


def record_trainings(lost_pct: float = 100.0, last: int = 67) -> None:
    """Record what those cells follow from; the searches at twice the rate diverge at step 67.

    They stand for it with a validation error of `lost_pct`, and their curves end at step `last`.
    """
    plan = stated_plan("small-init-helps", "hours", 5)
    recipes = {
        each.fingerprint: (arm, each) for c in plan.cells for arm, each in plan.arms(c).items()
    }
    for fingerprint, (arm, recipe) in recipes.items():  # a search is made once for all seeds
        kind = "search" if "search" in arm else "training"
        tags = {"fingerprint": fingerprint, "code": "c", "recipe": recipe.name}
        with tracked_run.track(
            arm, experiment="other", kind=kind, params=recipe.flat(), tags=tags
        ) as run:
            if recipe.learning_rate in (0.2, 0.002):
                run.tag(DIVERGED, "67")
                run.log({"batch_loss": 1e9, "learning_rate": 0.1}, last)
                run.log({"val_error_pct": lost_pct}, 67)
            else:
                run.log({"batch_loss": 1.0, "learning_rate": 0.1, "val_error_pct": 22.0}, 7_020)
                run.log({"test_error_pct": 20.0 if arm.startswith("small") else 25.0}, 7_020)


def test_the_trainings_that_a_cell_follows_from_come_with_it_wherever_they_were_made() -> None:
    name = "small-init-helps"
    write_cells(name)
    record_trainings()
    [added] = adding.add([name])["added"]
    assert added["seeds"] == {"hours": 5}
    kinds = [row.kind for row in bundles.rows([name])]
    assert (kinds.count("training"), kinds.count("search")) == (10, 10)
    assert problems(name) == []


@pytest.mark.parametrize(("lost_pct", "last"), [(22.0, 67), (100.0, 7_020)])
def test_a_search_that_diverged_says_so_in_its_curves(lost_pct: float, last: int) -> None:
    write_cells("small-init-helps")
    record_trainings(lost_pct, last)
    with pytest.raises(UserError, match="diverged at step 67, its curves say otherwise"):
        adding.add(["small-init-helps"])
    assert bundles.files() == []


def change_trainings(**changes: Any) -> Callable[[dict[str, Any]], None]:
    """Return what sets metrics of the trainings with this seed to other numbers."""

    def change(document: dict[str, Any]) -> None:
        if document["tags"]["kind"] == "training" and document["params"]["seed"] == "3":
            for metric, value in changes.items():
                set_metric(document, metric, lambda _, value=value: value)  # type: ignore[misc]

    return change


def test_the_projects_own_cells_follow_from_their_trainings() -> None:
    forge(TRAINED)
    assert problems(TRAINED) == []


def test_final_numbers_must_be_those_of_the_curves_and_of_the_cell() -> None:
    forge(TRAINED, change_trainings(best_val_error_pct=1.5))
    [found] = problems(TRAINED)
    assert found.startswith(f"{TRAINED} seed=3: ")
    assert "best_val_error_pct 1.5, its curve" in found
    forge(TRAINED, change_trainings(test_error_pct=1.5, best_val_error_pct=1.5))  # the first again
    assert len(problems(TRAINED)) == 1


def test_an_error_that_was_changed_in_the_trainings_alone_is_found() -> None:
    forge(TRAINED, change_trainings(test_error_pct=1.5))
    found = problems(TRAINED)
    assert all(each.startswith(f"{TRAINED} seed=3: ") for each in found)
    assert any("advantage_pct is" in each and "0 by its trainings" in each for each in found)


def alter_seed(document: dict[str, Any]) -> None:
    if document["tags"]["kind"] == "training" and document["params"]["seed"] == "3":
        document["params"]["seed"] = "4"


def alter_rate(document: dict[str, Any]) -> None:
    if document["tags"]["kind"] == "training" and document["params"]["seed"] == "3":
        document["params"]["learning_rate"] = "0.06"


def drop_error(document: dict[str, Any]) -> None:
    if document["tags"]["kind"] == "training" and document["params"]["seed"] == "3":
        del document["metrics"]["test_error_pct"]


def drop_everything(document: dict[str, Any]) -> None:
    if document["tags"]["kind"] == "training" and document["params"]["seed"] == "3":
        document["metrics"] = {}


def drop_curves(document: dict[str, Any]) -> None:
    if document["tags"]["kind"] == "training" and document["params"]["seed"] == "3":
        del document["metrics"]["batch_loss"]


def cut_curves(document: dict[str, Any]) -> None:
    if document["tags"]["kind"] == "training" and document["params"]["seed"] == "3":
        curves = document["metrics"]
        halves = {
            key: [point for point in curve if point[0] <= 200] for key, curve in curves.items()
        }
        document["metrics"] = {key: halves[key] or curve for key, curve in curves.items()}
        for curve in document["metrics"].values():
            curve[:] = [[min(step, 200), *rest] for step, *rest in curve]


def finish_diverged(document: dict[str, Any]) -> None:
    if document["tags"]["kind"] == "training" and document["params"]["seed"] == "3":
        document["tags"]["diverged"] = "17"


def move_best(document: dict[str, Any]) -> None:
    if document["tags"]["kind"] == "training" and document["params"]["seed"] == "3":
        set_metric(document, "best_step", lambda _: 7.0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (alter_seed, "there is no training of allconv-digits with seed 3"),
        (alter_rate, "there is no training of allconv-digits with seed 3"),
        (drop_error, "test_error_pct"),
        (drop_everything, "has no curves up to its last step, 400"),
        (cut_curves, "has no curves up to its last step, 400"),
        (finish_diverged, "has finished, and says that it diverged"),
        (move_best, "has best_step 7, at which no validation was"),
        (drop_curves, "has no curves up to its last step, 400"),
    ],
)
def test_a_training_must_have_the_seed_and_the_settings_of_the_claim_and_its_curves(
    change: Callable[[dict[str, Any]], None], reason: str
) -> None:
    forge(TRAINED, change)
    [found] = problems(TRAINED)
    assert found.startswith(f"{TRAINED} seed=3: ")
    assert reason in found


def test_a_training_that_diverged_gives_what_it_gave_when_it_was_measured() -> None:
    def diverge(document: dict[str, Any]) -> None:
        plain = document["params"].get("model_args.shortcut") == "none"
        if plain and document["params"]["seed"] == "3":
            document["status"] = "FAILED"
            document["tags"]["diverged"] = "17"

    def lose(arrays: dict[str, Any]) -> None:
        for metric in ("plain_test_error_pct", "advantage_pct"):
            set_curve(metric, lambda error: error * np.nan, row=3)(arrays)

    forge(TRAINED, diverge, lose)
    assert problems(TRAINED) == []


def measure_theorem() -> list[derive.RecordedCell]:
    """Put measured cells of a theorem into the evidence; return them."""
    sweep.check(THEOREM, "smoke", claim_catalog.load(THEOREM).scales["smoke"])
    adding.add([THEOREM])
    return recorded(THEOREM)


def test_a_cell_of_a_theorem_changed_by_hand_is_found_when_it_is_drawn(
    tmp_path: Path, go: Go
) -> None:
    forged, *others = measure_theorem()
    title = forged.title
    forge(THEOREM, cells=set_curve("ratio", lambda ratio: ratio * 0.999, row=0))
    go("b")
    assert not any("anew" in each for each in problems_in_results(tmp_path))  # none is drawn
    everything = problems_in_results(tmp_path, again=1 + len(others))
    [found] = [each for each in everything if "anew" in each]
    assert found.startswith(f"{title}: ratio at step ")


def test_a_curve_that_rounding_changes_must_keep_to_its_side_of_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measure_theorem()
    stated = claim_catalog.load(THEOREM)
    unstable = dataclasses.replace(stated, unstable={"ratio": math.inf})
    monkeypatch.setattr(claim_catalog, "load", lambda name: unstable)
    [bound] = [each for each in stated.decided_by if each.metric == "ratio"]
    found = []
    for factor in (0.999, 100):
        forge(THEOREM, cells=set_curve("ratio", lambda ratio: ratio * factor))  # noqa: B023
        [cell, *_] = recorded(THEOREM)
        found.append([*cell.measure_anew()])
        forge(THEOREM, cells=set_curve("ratio", lambda ratio: ratio / factor))  # noqa: B023
    assert bound.at_most < 100
    assert (len(found[0]), len(found[1])) == (0, 1)


def test_a_draw_is_repeated_by_its_seed_and_takes_every_claim_first() -> None:
    measure_theorem()
    cells = recorded(THEOREM)
    columns = [cells[:5], cells[5:], []]
    first = derive.draw(columns, 4, seed=3)
    assert derive.draw(columns, 4, seed=3) == first
    assert sum(each in cells[:5] for each in first) == 2
    assert derive.draw(columns, 4, seed=4) != first
    assert len(derive.draw(columns, 99, seed=0)) == len(cells)


def test_the_command_says_what_it_drew(capsys: pytest.CaptureFixture[str]) -> None:
    measure_theorem()
    with pytest.raises(SystemExit, match="1"):  # the project has published other claims
        dispatch(["evidence", "check", "--again", "1", "--draw", "5"])
    assert f"Measured anew (--draw 5): {THEOREM} d=" in capsys.readouterr().out
    with pytest.raises(UserError, match="no option --again"):
        dispatch(["evidence", "list", "--again", "3"])


def test_a_table_that_says_another_seed_than_its_cells_is_found(tmp_path: Path) -> None:
    measure_theorem()
    forge(THEOREM, csv=lambda text: text.replace(",4,", ",5,"))
    [found] = problems_in_results(tmp_path)
    assert found.endswith("has another settings.csv than its cells say")


def test_a_table_that_lacks_a_cell_is_found(tmp_path: Path) -> None:
    def rename(arrays: dict[str, Any]) -> None:
        arrays["fingerprint"][0] = "0" * 12

    measure_theorem()
    forge(THEOREM, cells=rename)
    found = problems_in_results(tmp_path)
    assert any("holds 9 of 10 settings" in each for each in found)


@pytest.mark.parametrize(
    "damage",
    [
        lambda table: table[:-100],
        lambda table: b"",
        lambda table: table.replace(b"'descr': '<f8'", b"'descr': '|O8'"),
        lambda table: table.replace(b"(10,)", b"(99,)"),
    ],
)
def test_a_table_that_is_none_is_a_sentence(damage: Callable[[bytes], bytes]) -> None:
    [cell, *_] = measure_theorem()
    [run] = recorded_evidence.read(THEOREM).runs
    wanted = cell.plan.cells_by_fingerprint
    assert len(unpack(run.table, wanted)) == 10
    with pytest.raises(UserError, match="The cells of a claim's run must be a table"):
        unpack(damage(run.table), wanted)


def test_a_curve_that_nothing_gives_is_refused() -> None:
    def add(arrays: dict[str, Any]) -> None:
        arrays["0/curves/assumption_holds"] = np.zeros_like(arrays["0/curves/advantage_pct"])

    forge(TRAINED, cells=add)
    assert all(
        "assumption_holds: in the evidence or by its trainings" in p for p in problems(TRAINED)
    )
    assert len(problems(TRAINED)) == 5
