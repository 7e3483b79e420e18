#!/usr/bin/env bash
# MLflow 3 upgrades the database of an MLflow 2 when it only reads from it, without a question.
#
# One would expect what the documentation and `mlflow db --help` say: a database of an older version is
# refused with "Detected out-of-date database schema ... run 'mlflow db upgrade'", after a backup.
# What happens: that check comes second. First MLflow looks whether all tables that it knows are there;
# where one is missing, as in a database of MLflow 2.22, it takes the database for a new one and runs
# every migration. A search of experiments by 3.17.2 so changes the tables from revision 0584bdc529eb to
# dc11669786a5, and MLflow 2.22, whose UI may still be open on it, cannot open it from then on.
# Source: MLflow 3.17.2, mlflow/store/tracking/sqlalchemy_store.py, SqlAlchemyStore.__init__;
# https://github.com/mlflow/mlflow/issues/6703 is about the refusal that one expects.
# Consequence for a user: before a newer MLflow is pointed at a colleague's database, be it for a look,
# copy the database, or compare `SELECT version_num FROM alembic_version` with the newer one's.
#
# Seen with mlflow 2.22.0 (sqlalchemy 2.0.51, pandas 2) and mlflow 3.17.2, Python 3.11, Linux; the
# output is below.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for name in old new; do python3 -m venv "$work/$name"; done
"$work/old/bin/pip" install --quiet mlflow==2.22.0 sqlalchemy==2.0.51 "pandas<3" "setuptools<81"
"$work/new/bin/pip" install --quiet mlflow==3.17.2
cat > "$work/read.txt" <<'PYTHON'
import logging, sqlite3, sys, warnings
warnings.simplefilter("ignore")
import mlflow
logging.disable()
folder = sys.argv[1]
try:
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    said = f"reads {len(client.search_experiments())} experiment"
except Exception as error:
    said = f"ends with {type(error).__name__}: {error}"
[(revision,)] = sqlite3.connect(f"{folder}/mlflow.db").execute("SELECT * FROM alembic_version")
print(f"mlflow {mlflow.__version__} {said}; revision now {revision}")
PYTHON
for name in old new old; do
    (cd "$work" && MLFLOW_DISABLE_TELEMETRY=true "$work/$name/bin/python" "$work/read.txt" "$work")
done 2>/dev/null | tee "$work/seen"
diff "$work/seen" - <<'SEEN'
mlflow 2.22.0 reads 1 experiment; revision now 0584bdc529eb
mlflow 3.17.2 reads 1 experiment; revision now dc11669786a5
mlflow 2.22.0 ends with CommandError: Can't locate revision identified by 'dc11669786a5'; revision now dc11669786a5
SEEN
echo "As seen."
