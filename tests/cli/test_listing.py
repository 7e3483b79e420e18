"""`list` and `show`: what there is, what it costs, what is known of it, at every width."""

import json
import re
from pathlib import Path

import pytest

from pipelines.__main__ import dispatch
from pipelines.data import datasets
from pipelines.errors import UserError
from pipelines.measurement import claim_catalog
from pipelines.measurement.claim_view import ClaimView
from pipelines.recipes import catalog
from pipelines.results.published import read_claims
from tests import terminal


@pytest.mark.parametrize("columns", [80, 140])
def test_list_is_one_screen_of_names(columns: int) -> None:
    lines = terminal.output("-m", "pipelines", "list", columns=columns).splitlines()
    assert max(map(len, lines)) <= columns
    assert len(lines) <= 70
    words = set(re.split(r"[\s,]+", "\n".join(lines)))
    assert {*claim_catalog.names(), *catalog.RECIPES, *datasets.DATASETS} <= words
    verdicts, under = {}, ""
    for line in lines:
        under = line if line.startswith("claims, ") else under
        verdicts |= dict.fromkeys(line.split(), under)
    assert verdicts["gradient-formula"].startswith("claims, holds: ")


@pytest.mark.parametrize("columns", [80, 140])
def test_costs_and_data_fit_the_terminal(columns: int) -> None:
    shown = terminal.commands("list claims", "list recipes", columns=columns)
    for text, names in zip(shown.values(), (claim_catalog.names(), catalog.RECIPES), strict=True):
        lines = text.splitlines()
        assert max(map(len, lines)) <= columns
        firsts = {line.split()[0]: line for line in lines if line and not line.startswith(" ")}
        assert {*names} <= firsts.keys()
    assert re.search(r"\ngradient-formula .*holds +cpu 13 s", shown["list claims"])


@pytest.mark.parametrize("columns", [80, 140])
def test_no_table_is_wider_than_the_terminal_and_none_folds_a_name(
    columns: int, home: Path
) -> None:
    commands = "report", "data", "reference", "evidence list", "evidence plan"
    shown = terminal.commands(*commands, "schedule list", "schedule history", columns=columns)
    for line in "".join(shown.values()).splitlines():
        is_address = line.strip().startswith("/") or "python -m" in line or ": /" in line
        assert len(line) <= columns or is_address
    reported, planned = (
        {line.split()[0] for line in shown[command].splitlines() if re.match(r"[a-z]", line)}
        for command in ("report", "evidence plan")
    )
    assert {*claim_catalog.names()} <= reported
    assert {"allcnn-imagenet", "no-need-for-dropout"} <= planned


def test_list_is_wider_than_a_very_narrow_terminal() -> None:
    assert "gradient-formula" in terminal.output("-m", "pipelines", "list", columns=40)


def test_list_says_which_data_are_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    dispatch(["list", "--json"])
    document = json.loads(capfd.readouterr().out)
    claims = {row["name"]: row for row in document["claims"]}
    assert claims.keys() == {*claim_catalog.names()}
    assert {"allconv_resnet", "mlp"} <= set(document["models"])
    assert (claims["allcnn-cifar10"]["data"], claims["allcnn-cifar10"]["data_at_hand"]) == (
        ["cifar10"],
        False,
    )
    assert claims["identity-beats-plain"]["data_at_hand"]
    assert claims["gradient-formula"]["data"] == []
    assert {"digits", "linear-teacher"} <= set(document["data_at_hand"])
    assert "cifar10" not in document["data_at_hand"]
    assert claims["gradient-formula"]["verdict"] == read_claims()["gradient-formula"]["verdict"]


@pytest.mark.parametrize("columns", [80, 140])
def test_show_fits_the_terminal_and_folds_no_name(columns: int) -> None:
    names = (
        *("gradient-formula", "allcnn-cifar100", "mlp-digits"),
        *("allconv-cifar10", "better-schedule-exists"),
    )
    shown = terminal.commands(*(f"show {name}" for name in names), columns=columns)
    assert "allconv-imagenet" in shown["show better-schedule-exists"]  # in a table of settings
    differences = shown["show allconv-cifar10"]
    assert {"`allconv-cifar10-tensorfloat32`", "`uniform_unit_scaling(1.0)`,"} <= {
        *differences.split()
    }
    assert "asynchronous" not in differences  # a setting that recipes had
    for name, (words, text) in zip(names, shown.items(), strict=True):
        assert max(map(len, text.splitlines())) <= columns, words
        for title in ("cost", "settings", f"Run it: python -m pipelines run {name}"):
            assert title in text


def test_show_has_evidence_cost_and_what_the_source_reports(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def document_of(name: str) -> dict[str, object]:
        dispatch(["show", name, "--json"])
        document: dict[str, object] = json.loads(capfd.readouterr().out)
        return document

    theorem, published = document_of("gradient-formula"), read_claims()["gradient-formula"]
    view = ClaimView(published)
    assert theorem["card"] == claim_catalog.card("gradient-formula")
    assert theorem["evidence"] == {
        **{k: view.text(k) for k in ("verdict", "scale", "measured", "took", "commit", "run")},
        **{"as_printed": "", "floor": "", "recorded_by": "project"},
    }
    assert theorem["evidence"]["measured"].startswith("finite_difference_error ")  # type: ignore[index]
    assert theorem["result"] == published
    cell = document_of("allcnn-cifar10")
    assert cell["evidence"] is None
    assert cell["reported"] == {"test_error_pct": 7.25}
    assert "Springenberg" in json.dumps(cell["printed_in"])
    recipe = document_of("mlp-digits")
    assert recipe["scales"]["cpu"]["cost"] == "5 s"  # type: ignore[index]
    assert recipe["scales"]["smoke"]["settings"]["steps"] == "8"  # type: ignore[index]


def test_a_name_that_is_not_known_has_one_suggestion() -> None:
    with pytest.raises(UserError) as caught:
        dispatch(["show", "allconv-digts"])
    assert str(caught.value) == (
        "A claim or recipe must be a known name. Received: 'allconv-digts'. Did you mean "
        "allconv-digits? All: python -m pipelines list"
    )
