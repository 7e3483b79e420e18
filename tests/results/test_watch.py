"""A result that has changed is found, and who is to be told is told."""

import http.server
import json
import math
import shlex
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import ttest_ind_from_stats

from pipelines.cli import results_command
from pipelines.errors import UserError
from pipelines.results import regressions
from pipelines.running import seed_statistics
from pipelines.runtime import notify
from pipelines.tracking import history, store, tracked_run

NAME, METRIC = "small-norm-factorization", "ratio"


def result(
    mean: float, sd: float | None = 0.1, n: int = 5, verdict: str = "reproduced", **more: Any
) -> str:
    """A finished run of a claim with that number over seeds; its id."""
    tags = dict.fromkeys((*history.NEEDED["claim"], *history.JUDGED), "5")  # all that is read
    tags |= {"claim": NAME, "scale": "cpu", "fingerprint": "f", "verdict": verdict}
    packages, parent = more.pop("packages", None), more.pop("below", None)
    with tracked_run.track(
        NAME, experiment="test", kind="claim", tags=tags | more, parent=parent
    ) as run:
        spread = {} if sd is None else {f"sd/{METRIC}": sd}
        run.log({METRIC: mean, f"n/{METRIC}": n, "ratio_twice": 2 * mean} | spread)
        if packages is not None:
            run.flush()
            run.text(packages, regressions.PACKAGES)
    return run.id


def changes(**how: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = regressions.compare_newest(**how)["changes"]
    return found


def test_a_flipped_verdict_is_found_beside_what_was_installed(home: Path) -> None:
    old = result(0.5, packages="numpy==2.4.5\nscipy==1.0\n", commit="aaa")
    new = result(0.5, verdict="refuted", packages="numpy==2.4.6\nscipy==1.0\n", commit="bbb")
    found = regressions.compare_newest()
    (change,) = found["changes"]
    assert (change["run_id"], change["previous"], change["what"]) == (new, old, "verdict")
    assert found["versions"] == {"numpy": ["2.4.5", "2.4.6"]}
    assert regressions.change_summary(found) == (
        f"{NAME} (cpu): verdict reproduced -> refuted; numpy 2.4.5 -> 2.4.6; commit aaa -> bbb"
    )


def test_a_number_has_changed_where_welchs_test_says_so(home: Path) -> None:
    result(0.5, 0.1, 5)
    found = []
    for mean in (0.58, 0.62, 0.66, 0.9):
        new = result(mean, 0.04, 9)
        watched = changes()
        p = ttest_ind_from_stats(mean, 0.04, 9, 0.5, 0.1, 5, equal_var=False).pvalue
        assert [change["what"] for change in watched] == [METRIC] * int(p < 0.05)
        found += [change["interval"] for change in watched]
        store.client().delete_run(new)  # the next one is compared with the first
    assert 0 < len(found) < 4
    low, high = found[-1]
    assert 0 < low < 0.9 - 0.5 < high


@pytest.mark.parametrize(
    ("means", "sd", "n", "found"),
    [
        ((1.0, 1.0 + 1e-8), 0.0, 5, 0),  # without spread: any change but of rounding
        ((1.0, 1.0001), 0.0, 5, 1),
        ((1.0, 1.0 + 1e-8), 1e-12, 5, 0),
        ((1.0, 1.0001), 1e-12, 5, 1),
        ((1.0, 9.0), None, 1, 0),  # one seed says nothing of a spread
        ((1.0, math.nan), 0.1, 5, 1),
        ((math.nan, math.nan), 0.1, 5, 0),
        ((math.inf, 1.0), math.nan, 5, 1),
    ],
)
def test_numbers_without_a_spread_or_without_an_end(
    home: Path, means: tuple[float, float], sd: float | None, n: int, found: int
) -> None:
    for mean in means:
        result(mean, sd, n)
    document = regressions.compare_newest()
    assert len(document["changes"]) == found
    assert document["one_seed"] == [NAME] * (n == 1)
    json.dumps(document, allow_nan=False)


def test_only_the_same_settings_are_compared_and_only_those_asked_for(home: Path) -> None:
    with tracked_run.track("attempt", experiment="scheduled runs", kind="scheduled") as attempt:
        pass
    result(0.5, verdict="reproduced")
    result(0.5, verdict="refuted", scale="smoke")
    result(0.5, verdict="refuted", fingerprint="g")
    assert regressions.compare_newest()["compared"] == 0
    result(0.5, verdict="refuted", below=attempt)
    result(0.5, verdict="refuted")  # another process's, later
    assert changes() == [] != changes(below=attempt.id)
    assert regressions.compare_newest(["gradient-formula"])["compared"] == 0
    assert regressions.compare_newest([NAME])["compared"] == 1
    assert regressions.compare_newest([])["compared"] == 0


def test_a_run_is_compared_with_the_one_before_it_whatever_else_has_changed(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for old_verdict in ("reproduced", "refuted"):
        old = result(0.5, verdict=old_verdict, scale="smoke")
    result(0.5)
    new = result(0.5)
    with pytest.raises(SystemExit):
        results_command.watch_command([NAME], json=True)
    capsys.readouterr()
    results_command.watch_command([new], json=True)
    assert json.loads(capsys.readouterr().out)["compared"] == 1
    with pytest.raises(SystemExit):
        results_command.watch_command([new, old], json=True)
    assert [each["run_id"] for each in json.loads(capsys.readouterr().out)["changes"]] == [old]
    with tracked_run.track("t", experiment="test", kind="training") as training:
        pass
    with pytest.raises(UserError, match="a training that is FINISHED"):
        results_command.watch_command([training.id])
    store.client().delete_run(new)
    with pytest.raises(UserError, match="must be a known name"):
        results_command.watch_command([new])


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
def test_the_interval_has_the_size_of_its_numbers(size: float) -> None:
    found = seed_statistics.difference_interval((0.0, size, 5), (3 * size, 0.5 * size, 9))
    usual = seed_statistics.difference_interval((0.0, 1.0, 5), (3.0, 0.5, 9))
    assert [each / size for each in found] == pytest.approx(usual)
    assert 0 < usual[0] < 3 < usual[1]


def test_errors_of_a_recipe_over_seeds_are_watched(home: Path) -> None:
    for error in (10.0, 12.0):
        tags = {"recipe": "allconv-digits", "fingerprint": "f"}
        with tracked_run.track("r", experiment="test", kind="seeds", tags=tags) as run:
            for key in ("test_error_pct", "loss"):
                run.log({key: error, f"sd/{key}": 0.1, f"n/{key}": 5})
    assert [change["what"] for change in changes()] == ["test_error_pct"]


class Webhook(http.server.BaseHTTPRequestHandler):
    """Keeps what it is told."""

    heard: list[tuple[Any, str | None]]

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"]))
        self.heard.append((json.loads(text), self.headers["Authorization"]))
        self.send_response({"broken": 500, "moved": 302}.get(self.path.split("/")[1], 204))
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def do_GET(self) -> None:
        self.heard.append((None, self.headers["Authorization"]))

    def log_message(self, *_: Any) -> None:
        """Silent."""


@pytest.fixture
def webhook() -> Iterator[str]:
    Webhook.heard = []
    with http.server.HTTPServer(("127.0.0.1", 0), Webhook) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_command_prints_tells_and_ends_with_code_3(
    home: Path, webhook: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result(0.5)
    results_command.watch_command([NAME], json=True)
    assert json.loads(capsys.readouterr().out)["changes"] == []
    result(0.5, verdict="refuted")
    with pytest.raises(SystemExit) as ended:
        results_command.watch_command(json=True, target=f"http://{webhook}/")
    assert ended.value.code == 3
    said = capsys.readouterr()
    assert json.loads(said.out)["changes"][0]["after"] == "refuted"
    assert said.err.startswith("error: A result has changed: small-norm-factorization (cpu): verd")
    ((heard, _),) = Webhook.heard
    assert heard["watch"] == json.loads(said.out)
    with pytest.raises(UserError, match="small-norm-factorization"):
        results_command.watch_command(["small-norm"])


def test_a_webhook_or_a_command_is_told_and_secrets_are_not_said(
    webhook: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert notify.send(f"http://me:secret@{webhook}/hook", {"a": 1}) == ""
    assert Webhook.heard == [({"a": 1}, "Basic bWU6c2VjcmV0")]
    assert "500" in notify.send(f"http://me:secret@{webhook}/broken/secret", {"a": 1})
    assert "redirects" in notify.send(f"http://me:secret@{webhook}/moved", {"a": 1})
    assert len(Webhook.heard) == 3  # nobody was told in its place
    write = f"import sys, pathlib; pathlib.Path('{tmp_path}/told').write_text(sys.stdin.read())"
    assert notify.send(shlex.join([sys.executable, "-c", write]), {"b": 2}) == ""
    assert json.loads((tmp_path / "told").read_text()) == {"b": 2}
    fails = shlex.join([sys.executable, "-c", "raise SystemExit('no one is there')"])
    assert notify.send(fails, {}).endswith("exit code 1, no one is there")
    assert "no such command" in notify.send("no-such-command secret", {})
    assert "secret" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "target",
    ["", "'", "no-such-command secret", "ftp://u:secret@host/", "http://", "http://u:secret@h:x/"],
)
def test_what_can_be_told_nothing_is_refused(target: str) -> None:
    with pytest.raises(UserError, match="must be a URL") as error:
        notify.check(target)
    assert "secret" not in str(error.value)
    assert notify.send(target, {}) != ""
