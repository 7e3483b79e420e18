#!/usr/bin/env bash
# MLflow and SQLAlchemy read the same SQLite address in two ways.
#
# One would expect `sqlite:////data/feature%2Fx/mlflow.db` to be the file in the folder `feature%2Fx`,
# as a CI system calls the checkout of a branch `feature/x`; or else, with the `%` escaped as `%25`,
# to be that file and nothing else.
# What happens: SQLAlchemy 2.1 decodes `%XX` in the database part of an address, which 2.0 did not, and
# looks for feature/x/mlflow.db. With `%252F` it opens the right file; but MLflow, which makes the
# database's folder before, does not decode, and leaves an empty folder `feature%252Fx` beside it.
# Source: SQLAlchemy 2.1, sqlalchemy/engine/url.py, make_url; MLflow 3.17.2, mlflow/store/db/utils.py,
# where the parent folders of an SQLite database are made.
# Consequence for a user: after the update of SQLAlchemy a store is not found, or a new and empty one
# is made elsewhere. Where a path holds `%`, escape all of it, slashes too
# (`sqlite:///%2Fdata%2Ffeature%252Fx%2Fmlflow.db`): MLflow then makes no folder.
#
# Seen with mlflow 3.17.2, sqlalchemy 2.1.0 and 2.0.51, Python 3.11, Linux; the output is below.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
cat > "$work/sqlalchemy.txt" <<'PYTHON'
import sys, sqlalchemy
print("sqlalchemy", sqlalchemy.__version__, sqlalchemy.make_url(sys.argv[1]).database)
PYTHON
cat > "$work/mlflow.txt" <<'PYTHON'
import sys
from pathlib import Path
from urllib.parse import quote
import mlflow

for folder, escape in (("some", lambda p: p.replace("%", "%25")), ("all", lambda p: quote(p, safe=""))):
    path = Path(sys.argv[1], folder, "feature%2Fx", "mlflow.db")
    path.parent.mkdir(parents=True)
    mlflow.MlflowClient(tracking_uri=f"sqlite:///{escape(str(path))}").search_experiments()
    folders = sorted(each.name for each in path.parents[1].iterdir())
    print(f"mlflow, {folder} escaped: database {path.exists()}, folders {' '.join(folders)}")
PYTHON
{
    for version in 2.0.51 2.1.0; do
        "$work/venv/bin/pip" install --quiet "sqlalchemy==$version" >&2
        "$work/venv/bin/python" "$work/sqlalchemy.txt" "sqlite:////data/feature%2Fx/mlflow.db"
    done
    "$work/venv/bin/pip" install --quiet "sqlalchemy==2.1.0" mlflow==3.17.2 >&2
    cd "$work" && MLFLOW_DISABLE_TELEMETRY=true MLFLOW_LOGGING_LEVEL=ERROR \
        "$work/venv/bin/python" "$work/mlflow.txt" "$work"
} | tee "$work/seen"
diff "$work/seen" - <<'SEEN'
sqlalchemy 2.0.51 /data/feature%2Fx/mlflow.db
sqlalchemy 2.1.0 /data/feature/x/mlflow.db
mlflow, some escaped: database True, folders feature%252Fx feature%2Fx
mlflow, all escaped: database True, folders feature%2Fx
SEEN
echo "As seen."
