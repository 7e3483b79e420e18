"""Grids: axes as typed, cells, batches of equal shape, equal draws for equal seeds."""

from dataclasses import dataclass

import numpy as np
import pytest

from pipelines.errors import UserError, check_sizes
from pipelines.measurement import grid
from pipelines.recipes.catalog import get_recipe


@dataclass(frozen=True)
class Setting:
    d: tuple[int, ...] = (2, 3)
    gamma: tuple[float, ...] = (0.5, 1.0)
    l: tuple[int, ...] = (4, 8, 16)  # noqa: E741
    rate: float = 0.1
    start: str = "identity"

    def __post_init__(self):
        check_sizes(1, d=self.d, l=self.l)
        check_sizes(0, rate=(self.rate,))


@pytest.mark.parametrize(
    ("spec", "values"),
    [
        ("d=8,64", (8, 64)),
        ("d=7", (7,)),
        ("l=8:256:2x", (8, 16, 32, 64, 128, 256)),
        ("l=8:100:2x", (8, 16, 32, 64)),
        ("l=1:7:2", (1, 3, 5, 7)),
        ("l=1,8:32:2x", (1, 8, 16, 32)),
        ("gamma=0.1:0.5:0.1", (0.1, 0.2, 0.3, 0.4, 0.5)),
        ("gamma=0.001:1:10x", (0.001, 0.01, 0.1, 1.0)),
        ("gamma=1e-3,2", (0.001, 2.0)),
        ("l=16, 4, 8, 4", (4, 8, 16)),
    ],
)
def test_axes_as_typed(spec, values):
    settings, varied = grid.apply_specs(Setting(), [spec])
    found = getattr(settings, spec.partition("=")[0])
    assert found == values
    assert {type(value) for value in found} == {type(values[0])}
    assert varied == {}


def test_a_single_valued_setting_becomes_an_axis():
    settings, varied = grid.apply_specs(Setting(), ["rate=0.1:0.3:0.1", "start=zero,identity"])
    assert settings == Setting()
    assert varied == {"rate": (0.1, 0.2, 0.3), "start": ("identity", "zero")}
    axes = grid.axis_values(settings, "l", varied)
    assert len(grid.list_cells(axes, 2)) == 2 * 2 * 3 * 2 * 2


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("q=3", "A grid axis must be a known name. Received: 'q'"),
        ("d", r"NAME=VALUES, .*Received: 'd'"),
        ("d=", r"NAME=VALUES, .*Received: 'd='"),
        ("d=two", r"NAME=VALUES, .*Received: 'd=two'"),
        ("d=8:4:1", r"NAME=VALUES, .*Received: 'd=8:4:1'"),
        ("d=1:4:0", r"NAME=VALUES"),
        ("d=0:8:2x", r"NAME=VALUES"),
        ("d=1:8:1x", r"NAME=VALUES"),
        ("d=1:inf:1", r"NAME=VALUES"),
        ("d=inf", r"NAME=VALUES"),
        ("d=1:1e12:1", r"of at most 100,000 finite values"),
        ("d=8.5", "d must be integers. Received: 8.5"),
        ("d=1:2", r"NAME=VALUES"),
        ("d=2:3:0.5", "d must be integers. Received: 2.5"),
        ("d=0", "d must be one or more finite numbers >= 1"),
        ("gamma=nan", "NAME=VALUES"),
        ("rate=-1", "rate must be"),
    ],
)
def test_axes_that_cannot_be(spec, sentence):
    with pytest.raises(UserError, match=sentence):
        grid.apply_specs(Setting(), [spec])


def test_a_switch_is_swept_on_and_off():
    recipe = get_recipe("allcnn-cifar10")
    _, varied = grid.apply_specs(recipe, ["nesterov=False,True"])
    assert varied == {"nesterov": (False, True)}
    with pytest.raises(UserError, match=r"nesterov must be True or False\. Received: no"):
        grid.apply_specs(recipe, ["nesterov=no"])


def test_axes_are_judged_together_and_given_once():
    @dataclass(frozen=True)
    class Interval:
        low: tuple[float, ...] = (0.0, 1.0)
        high: tuple[float, ...] = (2.0, 3.0)

        def __post_init__(self):
            if max(self.low) > min(self.high):
                raise UserError("low exceeds high")

    for specs in (["low=5", "high=6"], ["high=6", "low=5"]):
        assert grid.apply_specs(Interval(), specs)[0] == Interval((5.0,), (6.0,))
    with pytest.raises(UserError, match="low exceeds high"):
        grid.apply_specs(Interval(), ["low=5"])
    with pytest.raises(UserError, match=r"given once\. Received: low twice"):
        grid.apply_specs(Interval(), ["low=1", "low=2"])


def test_grids_that_nobody_could_wait_for_are_refused():
    with pytest.raises(
        UserError, match=r"at most 100,000 settings times seeds\. Received: 10,000,"
    ):
        grid.list_cells({"d": range(10_000)}, 1_000)


def test_a_grid_that_nobody_could_wait_for_is_refused_before_its_settings_are_tried():
    @dataclass(frozen=True)
    class Two:
        step: float = 0.1
        trace: float = 0.1

        def __post_init__(self) -> None:
            assert self.step == 0.1, "a setting of the grid was made"

    specs = ["step=0.01:0.7:0.0001", "trace=-0.9:0:0.0001"]
    with pytest.raises(UserError, match="at most 100,000 settings"):
        grid.apply_specs(Two(), specs)


def test_cells_are_the_product_of_axes_and_seeds_and_keep_the_inner_axis_whole():
    cells = grid.list_cells(grid.axis_values(Setting(), "l", {}), 3)
    assert len(cells) == 2 * 2 * 3
    assert {cell.point["l"] for cell in cells} == {(4, 8, 16)}
    assert len({tuple(cell.params.items()) for cell in cells}) == len(cells)


def test_batches_hold_every_cell_once_and_agree_in_shape():
    cells = grid.list_cells(grid.axis_values(Setting(), "l", {}), 5)
    batches = list(grid.split_batches(cells, ("d",), 4))
    assert [len(batch) for batch in batches] == [4, 4, 2, 4, 4, 2]
    assert sorted(map(repr, (c for b in batches for c in b.cells))) == sorted(map(repr, cells))
    assert all(len(set(batch.values("d"))) == 1 for batch in batches)


def test_a_seed_draws_the_same_in_every_batch_and_setting():
    cells = grid.list_cells(grid.axis_values(Setting(), "l", {}), 4)
    (whole,) = grid.split_batches(cells[:8], (), 100)

    def make(rng, gamma):
        return gamma * rng.normal(size=3), rng.normal()

    vectors, numbers = whole.draw(make, "gamma")
    assert vectors.shape == (8, 3)
    for cell, vector in zip(whole.cells, vectors, strict=True):
        alone, _ = grid.Cells((cell,)).draw(make, "gamma")
        assert np.array_equal(alone[0], vector)
    assert np.array_equal(numbers[:4], numbers[4:])  # the seed decides, not the setting
    assert np.array_equal(2 * vectors[:4], vectors[4:])
    assert len(set(numbers[:4])) == 4


def test_titles_name_what_differs():
    axes = grid.axis_values(Setting(d=(2,)), "l", {"rate": (0.1, 0.2)})
    assert grid.cell_title(grid.list_cells(axes, 1)[-1], axes) == "gamma=1.0 rate=0.2 seed=0"
