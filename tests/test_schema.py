"""Numbers that are appended to MLflow's tables are those that its client would have written."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy

from pipelines import schema, sending, store, tracking

NAN, INF = math.nan, math.inf
PARTS = [  # in the order in which they come: (metric, value, step, milliseconds)
    [("loss", 3.0, 0, 10), ("loss", 2.0, 1, 20), ("error", 0.5, 1, 20)],
    [("loss", 9.0, 0, 30), ("error", NAN, 2, 30)],  # an earlier step, logged later
    [("loss", 2.0, 1, 20), ("loss", 2.0, 1, 20)],  # again, and again
    [("loss", 5.0, 1, 20), ("loss", 1.0, 1, 20), ("loss", 4.0, 1, 19)],  # one step, several values
    [("error", 0.25, 2, 30), ("up", INF, 0, 1), ("down", -INF, 0, 1), ("nan", NAN, 0, 1)],
    [("nan", -1.0, 0, 1), ("up", 1.0, -3, 5), ("big", 1e308, 2**40, 2**41)],
    [("error", NAN, 7, 40), ("error", NAN, 7, 40), ("down", NAN, 0, 1)],
]


@pytest.fixture(params=["sqlite", "postgresql"])
def database(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store whose tables are known."""
    if request.param == "sqlite":
        request.getfixturevalue("home")
    else:
        monkeypatch.setenv("MLRUNS_HOME", str(tmp_path))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", request.getfixturevalue("postgresql"))


def written(parts: list[Any], revision: str) -> dict[str, list[str]]:
    """The rows of a run into which the parts were sent, one after the other, in both tables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "REVISION", revision)
        with tracking.tracked("r", experiment="test", kind="training") as run:
            for part in parts:
                sending.send(run.id, part)
    found = {}
    with schema.sql_store().ManagedSessionMaker() as session:
        for table in ("metrics", "latest_metrics"):
            query = sqlalchemy.text(f"SELECT * FROM {table} WHERE run_uuid = :id")  # noqa: S608
            rows = session.execute(query, {"id": run.id}).mappings()
            found[table] = sorted(
                str({k: v for k, v in row.items() if k != "run_uuid"}) for row in rows
            )
    return found


@pytest.mark.parametrize("order", range(4))
def test_the_tables_hold_what_the_client_writes(database: None, order: int) -> None:
    parts = [PARTS[i] for i in np.random.default_rng(order).permutation(len(PARTS))]
    appended = written(parts if order else PARTS, schema.REVISION)
    sent = written(parts if order else PARTS, "another")
    assert appended == sent
    assert len(appended["latest_metrics"]) == 6


def test_a_deleted_run_takes_no_numbers(database: None) -> None:
    import mlflow

    with tracking.tracked("r", experiment="test", kind="training") as run:
        pass
    store.client().delete_run(run.id)
    for run_id in (run.id, "0" * 32):
        assert not schema.append(schema.sql_store(), run_id, PARTS[0])
        with pytest.raises(mlflow.MlflowException) as caught:
            sending.send(run_id, PARTS[0])
        assert caught.value.error_code in ("INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST")
