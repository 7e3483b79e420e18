"""The digest of measuring code: of what the code does that a number comes from, and of no other."""

import re
from pathlib import Path

import pytest

from pipelines.measurement import claim_catalog, claim_code
from pipelines.runtime import code_digest

CLAIM = """
'''A card.'''
from pipelines.measurement.claim import Theorem
from pipelines import errors
from theory import descent

CLAIM = Theorem(says="A sentence.", measure=lambda cells: measure(cells), figure=draw)

def measure(cells):
    "Measure."
    from theory.matrices import norm
    if not cells:
        raise errors.UserError(f"Give cells. Received: {cells}.")
    return norm(descent.descend(cells, descent.RATE))

def draw(measured):
    return 1
"""
DESCENT = """
RATE = 0.5
UNUSED = 1

def descend(x, rate):
    rest = x
    return [helper(each) * rate for each in rest]

def rest():
    return 1

def helper(x):
    return x + 1
"""
TREE = {
    "theory/__init__.py": "",
    "theory/descent.py": DESCENT,
    "theory/matrices.py": "def norm(x):\n    return max(x)\n",
    "pipelines/__init__.py": "",
    "pipelines/errors.py": "class UserError(Exception):\n    pass\n",
    "pipelines/measurement/claim.py": "class Theorem:\n    pass\n",
    "pipelines/claims/__init__.py": "",
    "pipelines/claims/mine.py": CLAIM,
}


def digest(root: Path) -> frozenset[str]:
    """Return the definitions that the claim's numbers come from."""
    return frozenset(claim_code.definitions("pipelines.claims.mine:CLAIM", root).values())


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
        ("theory/descent.py", "UNUSED = 1", "UNUSED = 2  # a comment"),
        ("theory/descent.py", "(x, rate)", "(\n    x,\n    rate,\n)"),
        ("theory/descent.py", "return 1", "return 2"),  # of a name that is a local one where used
        ("pipelines/claims/mine.py", '"Measure."', '"In other words."'),
        ("pipelines/claims/mine.py", "Give cells.", "Cells are needed."),
        ("pipelines/claims/mine.py", "A sentence.", "Another one."),
        ("pipelines/claims/mine.py", "return 1", "return 2"),
        ("pipelines/errors.py", "pass", "code = 2"),
    ],
)
def test_words_figures_and_what_is_not_reached_change_nothing(
    tmp_path: Path, file: str, old: str, new: str
) -> None:
    assert not changed(tmp_path, file, old, new)


def test_a_moved_file_changes_nothing(tmp_path: Path) -> None:
    moved = {name: text for name, text in TREE.items() if name != "theory/descent.py"}
    moved |= {"theory/linear/__init__.py": "", "theory/linear/gradient.py": DESCENT}
    new = CLAIM.replace("from theory import descent", "from theory.linear import gradient")
    moved["pipelines/claims/mine.py"] = new.replace("descent.", "gradient.")
    before = digest(write(tmp_path / "before", TREE))
    assert digest(write(tmp_path / "after", moved)) == before


def test_every_claim_reaches_its_measure_and_trainings_where_it_trains() -> None:
    digests = {name: claim_code.of_claim(name) for name in claim_catalog.names()}
    assert len(set(digests.values())) == len(digests)
    reached = claim_code.definitions(claim_code.definition_of("two-phases"))
    assert "circulant_start" in {name for _, name in reached}
    trained = code_digest.training_definitions().items()
    assert (
        trained <= claim_code.definitions(claim_code.definition_of("identity-beats-plain")).items()
    )
    linear = claim_code.definitions(claim_code.definition_of("gradient-lower-bound"))
    assert not trained & linear.items()


@pytest.mark.parametrize(
    ("old", "new"), [("helper", "increment"), ("RATE", "STEP"), ("measure", "measure_cells")]
)
def test_a_renamed_definition_changes_nothing(tmp_path: Path, old: str, new: str) -> None:
    before = digest(write(tmp_path / "before", TREE))
    word = re.compile(rf"\b{old}\b(?!=)")  # keywords keep their names
    renamed = {name: word.sub(new, text) for name, text in TREE.items()}
    assert renamed != TREE
    assert digest(write(tmp_path / "after", renamed)) == before


BODY = """
from pipelines.measurement.claim import Theorem
from theory.matrices import norm

def total(xs):
    return sum(xs)

def other(xs):
    return norm(xs)

def measure(cells, scale=1):
    found = [x * scale for x in cells]
    try:
        return total(found), other(found)
    except ValueError as error:
        return error

CLAIM = Theorem(measure=measure)
"""


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("found", "scaled", True),  # a variable
        ("x", "y", True),  # of a comprehension
        ("error", "why", True),
        ("scale", "factor", False),  # a parameter: who calls may name it
        ("total(found), other(found)", "other(found), total(found)", False),
        ("total(found), other(found)", "total(found), total(found)", False),
        ("sum(xs)", "max(xs)", False),
    ],
)
def test_variables_are_told_apart_by_what_they_are(
    tmp_path: Path, old: str, new: str, same: bool
) -> None:
    file = "pipelines/claims/mine.py"
    before = digest(write(tmp_path / "before", TREE | {file: BODY}))
    body = BODY.replace(old, new) if "(" in old else re.sub(rf"\b{old}\b", new, BODY)
    assert body != BODY
    assert (digest(write(tmp_path / "after", TREE | {file: body})) == before) is same


def test_a_definition_with_the_name_of_a_field_changes_nothing(tmp_path: Path) -> None:
    sizes = "class Sizes:\n    width: int = 1\n\n"
    mine = BODY.replace("def measure", f"{sizes}def measure").replace(
        "scale=1", "scale=Sizes.width"
    )
    texts = {"before": mine, "after": f"{mine}\ndef width():\n    return 1\n"}
    before, after = (
        digest(write(tmp_path / name, TREE | {"pipelines/claims/mine.py": text}))
        for name, text in texts.items()
    )
    assert before == after


def test_two_definitions_of_one_name_are_told_apart(tmp_path: Path) -> None:
    other = {"theory/other.py": "def norm(x):\n    return sum(x)\n"}
    both = CLAIM + "\nfrom theory.other import norm as second\nBOTH = [second]\n"
    both = both.replace("measure(cells), figure", "[measure(cells), BOTH], figure")
    files = TREE | other | {"pipelines/claims/mine.py": both}
    before = digest(write(tmp_path / "before", files))
    swapped = both.replace("theory.other", "theory.x").replace("theory.matrices", "theory.other")
    files["pipelines/claims/mine.py"] = swapped.replace("theory.x", "theory.matrices")
    assert digest(write(tmp_path / "after", files)) != before


@pytest.mark.parametrize(
    ("name", "reached"),
    [
        ("teacher-student", "Bench"),
        ("skip-length", "numbers"),
        ("tuning-without-batchnorm", "lr_only"),
        ("identity-beats-plain", "_train_and_record"),
    ],
)
def test_what_makes_a_number_is_reached(name: str, reached: str) -> None:
    places = claim_code.definitions(claim_code.definition_of(name))
    assert reached in {definition for _, definition in places}


@pytest.mark.parametrize(
    "name",
    ["train", "Trainer", "batch_index", "cosine", "dense_layer", "random_batches", "_splits"],
)
def test_trainings_depend_on_the_loop_the_batches_the_schedules_and_the_networks(name: str) -> None:
    assert name in {definition for _, definition in code_digest.training_definitions()}
