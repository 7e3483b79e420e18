"""The digests of code: what changes them, and what does not."""

from pathlib import Path

import pytest

from pipelines.measurement import claim_catalog, claim_code
from pipelines.running import code_digest

CLAIM = """
\"\"\"A claim.\"\"\"

from pipelines.errors import UserError
from pipelines.measurement.claim import Theorem
from theory import descent

def measure(cells):
    "Measure."
    if not cells:
        raise UserError("Give cells.")
    return descent.step(cells)

CLAIM = Theorem(says="A sentence.", measure=measure, seeds=3)
"""
DESCENT = """
from theory.matrices import norm

RATE = 0.5

def step(x, rate=RATE):
    return norm(x + 1) * rate
"""
TREE = {
    "theory/__init__.py": "",
    "theory/descent.py": DESCENT,
    "theory/matrices.py": "def norm(x):\n    return max(x)\n",
    "theory/unused.py": "NOTHING = 1\n",
    "pipelines/__init__.py": "",
    "pipelines/errors.py": "class UserError(Exception):\n    pass\n",
    "pipelines/measurement/claim.py": "class Theorem:\n    pass\n",
    "pipelines/claims/__init__.py": "",
    "pipelines/claims/mine.py": CLAIM,
}


def digest(root: Path) -> str:
    """Return the digest of what the claim's numbers come from."""
    reached = claim_code.measuring_modules("pipelines.claims.mine", trains=False, root=root)
    return code_digest.digest_of(reached, "tensorflow")


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def changed(tmp_path: Path, file: str, old: str, new: str) -> bool:
    """Return whether the digest is another where a text of a file is another."""
    assert old in TREE[file]
    before = digest(write(tmp_path / "before", TREE))
    files = TREE | {file: TREE[file].replace(old, new)}
    return digest(write(tmp_path / "after", files)) != before


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("theory/descent.py", "RATE = 0.5", "RATE = 0.25"),
        ("theory/descent.py", "x + 1", "x + 2"),
        ("theory/descent.py", "step", "descend"),  # a name costs one measuring
        ("theory/matrices.py", "max(x)", "min(x)"),
        ("pipelines/claims/mine.py", "if not cells", "if cells is None"),
    ],
)
def test_what_the_numbers_come_from_changes_the_digest(
    tmp_path: Path, file: str, old: str, new: str
) -> None:
    assert changed(tmp_path, file, old, new)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("theory/descent.py", "RATE = 0.5", "RATE = 0.5  # a comment"),
        ("theory/descent.py", "(x, rate=RATE)", "(\n    x,\n    rate=RATE,\n)"),
        ("theory/unused.py", "1", "2"),
        ("pipelines/claims/mine.py", '"Measure."', '"In other words."'),
        ("pipelines/claims/mine.py", "A claim.", "Another card."),
        ("pipelines/claims/mine.py", "Give cells.", "Cells are needed."),
        ("pipelines/claims/mine.py", "A sentence.", "Another one."),
        ("pipelines/claims/mine.py", "seeds=3", "seeds=5"),
        ("pipelines/errors.py", "pass", "code = 2"),
        ("pipelines/measurement/claim.py", "pass", "says = 2"),
    ],
)
def test_words_and_what_is_not_reached_change_nothing(
    tmp_path: Path, file: str, old: str, new: str
) -> None:
    assert not changed(tmp_path, file, old, new)


def test_a_moved_file_changes_nothing(tmp_path: Path) -> None:
    moved = {name: text for name, text in TREE.items() if name != "theory/descent.py"}
    moved |= {"theory/linear/__init__.py": "", "theory/linear/gradient.py": DESCENT}
    moved["pipelines/claims/mine.py"] = CLAIM.replace(
        "from theory import descent", "from theory.linear import gradient as descent"
    )
    before = digest(write(tmp_path / "before", TREE))
    assert digest(write(tmp_path / "after", moved)) == before


@pytest.mark.parametrize(
    ("name", "reached", "unreached"),
    [
        ("two-phases", {"theory.circulant"}, "pipelines.training.train"),
        ("digit-pairs", {"pipelines.data.pictures"}, "pipelines.training.train"),
        (
            "identity-beats-plain",
            {
                "keras_models.resnet",
                "pipelines.claims._arms",
                "pipelines.data.generated",
                "pipelines.data.pictures",
                "pipelines.recipes.lr",
                "pipelines.training.input_pipeline",
                "pipelines.training.train",
            },
            "pipelines.recipes.catalog",
        ),
        ("tuning-without-batchnorm", {"tuning.search.samplers"}, "tuning.plan"),
    ],
)
def test_what_makes_a_number_is_reached(name: str, reached: set[str], unreached: str) -> None:
    module, _ = claim_catalog.locate(name)
    modules = claim_code.measuring_modules(module, claim_catalog.load(name).trains)
    assert reached <= modules.keys()
    assert unreached not in modules
    assert not [each for each in modules if each.startswith("pipelines.tracking")]
