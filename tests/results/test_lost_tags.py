"""Runs that lost tags, by hand or to another version, are named and left out; the rest goes on."""

from pathlib import Path
from typing import Any

import pytest

from pipelines.__main__ import dispatch
from pipelines.errors import UserError
from pipelines.measurement import claim_catalog, sweep
from pipelines.results import regressions, scoreboard
from pipelines.results.evidence import bundles, queue
from pipelines.tracking import history, store, tracked_run

NAME, OTHER = "small-norm-factorization", "gradient-formula"
LOST = ("scale", "claim", "seeds", "fingerprint", "source", "code", "verdict", "floor", "commit")
WRONG = {"seeds": ("five", "", "-1", "2.5")}


@pytest.fixture(autouse=True)
def folder(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the project's evidence and all figures out."""
    monkeypatch.setattr(bundles, "FOLDER", tmp_path / "evidence")
    monkeypatch.setattr(tracked_run.Run, "figure", lambda *_: None)


def measure(name: str) -> history.Row:
    settings = claim_catalog.load(name).scales["smoke"]
    return history.row(sweep.check(name, "smoke", settings)["run_id"])


def copy(row: history.Row, without: str = "", **changes: str) -> str:
    """Return the id of another run with the tags and numbers of a claim's, but for one."""
    tags = {k: v for k, v in row.tags.items() if "." not in k and k != "kind"} | changes
    with tracked_run.track(
        "copy", experiment="e", kind="claim", params=row.params, tags=tags
    ) as run:
        run.log(row.metrics)
    if without:
        store.client().delete_tag(run.id, without)
    return run.id


def test_a_claim_without_its_tags_is_named_with_what_to_do_and_the_rest_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole, row = measure(OTHER).id, measure(NAME)
    broken = {tag: copy(row, without=tag) for tag in LOST}
    wrong = {text: copy(row, seeds=text) for text in WRONG["seeds"]}
    store.client().delete_run(row.id)
    capsys.readouterr()
    dispatch(["report", "--json"])
    said = capsys.readouterr()
    for tag, run_id in broken.items():
        [line] = [each for each in said.err.splitlines() if run_id in each]  # once a process
        assert f"({run_id}) is left out: of the kind claim, it must have {tag}." in line
    for text, run_id in wrong.items():
        assert any(
            run_id in line and f"a whole number for seeds ({text!r})" in line
            for line in said.err.splitlines()
        )
    assert whole in said.out
    assert {row.id for row in history.rows(kind="claim")} == {whole}
    dispatch(["run", NAME, "--scale", "smoke", "--json"])
    assert '"verdict": "holds"' in capsys.readouterr().out
    assert queue.plan_decisions([OTHER]) is not None
    assert regressions.compare_newest()["changes"] == []
    assert len([each for each in scoreboard.entries() if each.shown]) == 2


@pytest.mark.parametrize(
    ("kind", "needed"),
    [
        ("setting", ("fingerprint", "code")),
        ("seeds", ("recipe", "fingerprint")),
        ("study", ("study",)),
    ],
)
def test_settings_seeds_and_studies_are_read_whole_or_not_at_all(
    kind: str, needed: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    tags = dict.fromkeys(("claim", "recipe", "fingerprint", "code", "study"), "x")
    how: dict[str, Any] = {"experiment": "e", "kind": kind, "params": {"seed": 1}}
    with tracked_run.track("whole", tags=tags, **how) as whole:
        pass
    for key in needed:
        less = {k: v for k, v in tags.items() if k != key}
        with tracked_run.track("broken", tags=less, **how) as broken:
            pass
        assert [row.id for row in history.rows(kind=kind)] == [whole.id]
        assert broken.id in {row.id for row in history.rows()}  # to compare or delete it
        assert capsys.readouterr().err.count(broken.id) == 1


def test_a_run_without_its_tags_is_not_watched() -> None:
    row = measure(NAME)
    store.client().delete_tag(row.id, "fingerprint")
    with pytest.raises(UserError, match="a claim without fingerprint"):
        dispatch(["watch", row.id])
