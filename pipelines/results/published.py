"""The published results: results.json, read back."""

import json
import math
from pathlib import Path
from typing import Any

from pipelines.runtime import places

FILE = "results.json"
RESULTS = places.published_folder() / FILE


def read(file: Path = RESULTS) -> dict[str, Any]:
    """Return the document of results.json; without that file nothing is published."""
    if not file.is_file():
        return {"claims": [], "unfinished": []}
    document: dict[str, Any] = json.loads(file.read_bytes())
    for claim in [*document["claims"], *document["unfinished"]]:
        for metric in claim["metrics"].values():
            if metric["mean"] is None:  # the networks diverged: JSON has no NaN
                metric["mean"] = math.nan
    return document


def read_claims(file: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Return the documents of the claims by name."""
    return {each["claim"]: each for each in read(file)["claims"]}
