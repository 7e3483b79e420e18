"""The pages of claims: written from their evidence, without a database."""

import json
import re
import shlex
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from pipelines.measurement import claim_catalog
from pipelines.results import claim_pages, scoreboard
from pipelines.results.claim_pages import Group
from pipelines.results.evidence import recorded
from pipelines.results.published import read_claims

NAME = "standard-parameterization-saddle"


@pytest.fixture(scope="module")
def entry() -> scoreboard.Entry:
    return scoreboard.project_entry(NAME)


def write(name: str) -> str:
    page = claim_pages.write_page(scoreboard.project_entry(name), "figure.png")
    return re.sub(' data-column="[^"]+"', "", page)


def test_the_site_says_what_is_published(entry: scoreboard.Entry) -> None:
    published = read_claims()[NAME]
    document = entry.document()
    assert {key: document[key] for key in published} == published
    page = write(NAME)
    assert f'<b class="holds">{published["verdict"]}</b>' in page
    assert f"python -m pipelines run {NAME} --scale cpu --seeds 5 --force" in page
    for bound in claim_catalog.load(NAME).decided_by:
        assert f"<code>{bound.metric}</code></td><td>holds</td>" in page


def test_a_page_shows_the_newest_of_runs_that_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = recorded.read(NAME)
    [newest] = evidence.runs
    changes = {"run_id": "older", "start_ms": newest.document.start_ms - 1}
    older = replace(newest, document=newest.document.model_copy(update=changes))
    for runs in ([older, newest], [newest, older]):
        found = replace(evidence, runs=runs)
        monkeypatch.setattr(recorded, "read", lambda _, found=found: found)
        result = scoreboard.project_entry(NAME).project
        assert result and result.run.id == newest.document.run_id


def test_no_bound_has_a_verdict_where_nothing_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "<td>holds</td>" in write(NAME)
    unjudged = replace(claim_catalog.load(NAME), unjudged_scales=("cpu",))
    monkeypatch.setattr(claim_catalog, "load", lambda name: unjudged)
    page = write(NAME)
    assert "<td>holds</td>" not in page
    assert "<td>not judged</td>" in page


def test_a_page_shows_the_interval_that_decides() -> None:
    page = write("standard-init-diverges")
    [line] = [
        line for line in page.splitlines() if ">standard_diverged</code></td><td>holds" in line
    ]
    assert f"<td>{0.05**0.2:.4g} to 1</td>" in line  # all of five seeds, by the exact binomial


def test_curves_are_thin_and_name_their_settings(entry: scoreboard.Entry) -> None:
    charts = re.findall(r'<script type="application/json">(.*?)</script>', write(NAME))
    assert len(charts) == len(claim_catalog.load(NAME).charts)
    for chart in map(json.loads, charts):
        assert chart["settings"] <= 10 < chart["all_settings"]
        points = defaultdict(int)
        for trace in chart["traces"]:
            assert len(trace["x"]) == len(trace["y"])
            points[trace["name"], "metric" in trace] += sum(x is not None for x in trace["x"])
        assert all(
            n <= 200 * len(chart["y"].split(", ")) for (_, mean), n in points.items() if mean
        )


def test_a_chart_shows_the_mean_of_the_seeds_and_every_seed() -> None:
    steps = np.arange(1_000)
    seeds = [(steps, {"loss": 2.0 ** -(steps / 100) * scale}) for scale in (1.0, 3.0)]
    chart = claim_pages.draw([Group("rate=0.1", seeds)], ["loss", "absent"], "step")
    assert chart
    light, mean = chart["traces"]
    assert (mean["x"][0], mean["x"][-1], len(mean["x"])) == (0, 999, 200)
    assert mean["y"][0] == 2.0
    assert light["x"].count(None) == 2  # seeds are apart from each other
    assert chart["logarithmic"] == {"x": False, "y": True}
    point = Group("rate=1", [(steps[:1], {"loss": np.ones(1)})])
    both = claim_pages.draw([Group("rate=0.1", seeds), point], ["loss"], "step")
    assert both and both["settings"] == both["all_settings"] == 1  # a point is no curve
    assert claim_pages.draw([point], ["loss"], "step") is None


def test_learning_curves_have_the_names_and_the_order_of_the_arms() -> None:
    page = write("batchnorm-overfits")
    charts = re.findall(r'<script type="application/json">(.*?)</script>', page)
    shown = {
        trace["name"]: trace["line"]["color"]
        for chart in map(json.loads, charts)
        for trace in chart["traces"]
        if "metric" in trace
    }
    first, second, *_ = claim_pages.COLOURS  # the figure's, too, which draws them in this order
    assert list(shown.items()) == [("plain", first), ("normalized", second)]


@pytest.mark.parametrize("name", ["gradient-formula", "two-phases", "allconv-cifar10"])
def test_every_command_of_a_card_can_be_pasted_from_its_page(name: str) -> None:
    _, _, commands = write(name).partition("<p>Run:</p>\n<pre><code>")
    block, _, _ = commands.partition("</code></pre>")
    words = [shlex.split(line, comments=True) for line in block.replace("\\\n", "").splitlines()]
    assert len(words) == claim_catalog.card(name).count("python -m pipelines ")
    assert all(line[:3] == ["python", "-m", "pipelines"] and name in line for line in words)


@pytest.mark.parametrize("name", ["gradient-formula", "allconv-cifar10"])
def test_the_card_of_a_page_does_not_repeat_what_the_claim_says(name: str) -> None:
    page, claim = write(name), claim_catalog.load(name)
    assert claim_catalog.card(name).startswith(f"{claim.says}.")
    assert page.count(claim.says) == 1
    assert "<dt>source</dt>" not in page


def test_a_claim_that_is_not_run_has_a_page_with_its_cost() -> None:
    page = write("alexnet-imagenet")
    claim = claim_catalog.load("alexnet-imagenet")
    assert "not run" in page
    assert "python -m pipelines run alexnet-imagenet --scale paper" in page
    assert all(str(cost) in page for cost in claim.costs.values())
    assert "<script" not in page
