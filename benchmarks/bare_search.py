"""What `run` does for a claim that it finds finished, without the product: MLflow's client alone.

It opens STORE, finds the claim's run and prints its numbers; such a `run` logs nothing either.

    python -m benchmarks.bare_search STORE CLAIM
"""

import sys

import mlflow


def main(store: str, claim: str) -> None:
    """Find the newest finished run of the claim, and print its metrics."""
    client = mlflow.MlflowClient(store)
    experiments = [each.experiment_id for each in client.search_experiments()]
    condition = f"attributes.status = 'FINISHED' and tags.claim = '{claim}'"
    (run,) = client.search_runs(experiments, condition, max_results=1)
    for name, value in run.data.metrics.items():
        print(f"{name:40} {value}")


if __name__ == "__main__":
    main(*sys.argv[1:])
