"""How the columns of the kernel matrix are arranged."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from protodask.prototypes.panels import NARROWEST_PANEL, PANEL_OVERHEAD, Panels, arrange


@st.composite
def arranged(draw: st.DrawFn) -> tuple[Panels, list[int], list[int]]:
    counts = draw(st.lists(st.one_of(st.integers(0, 6), st.integers(0, 300)), min_size=1, max_size=8))
    classes = [label for label, count in enumerate(counts) for _ in range(count)]
    kept = draw(st.lists(st.booleans(), min_size=len(classes), max_size=len(classes)))
    members = [index for index, keep in enumerate(kept) if keep]
    panels = arrange(np.array(members, dtype=np.int64), np.array(classes, dtype=np.int64), draw(st.integers(0, 100)))
    return panels, members, classes


@given(arranged())
def test_arrange__gives_every_member_one_column_of_its_class(case: tuple[Panels, list[int], list[int]]) -> None:
    panels, members, classes = case
    assert panels.column[panels.used].tolist() == members
    column_class = np.repeat(panels.panel_class, panels.width)
    assert [int(label) for label in column_class[panels.used]] == [classes[member] for member in members]
    assert panels.n_columns == panels.n_panels * panels.width == len(column_class)


@given(arranged())
def test_arrange__fills_up_less_than_a_panel_for_each_class(case: tuple[Panels, list[int], list[int]]) -> None:
    panels, members, classes = case
    for label in set(panels.panel_class.tolist()):
        mine = int((panels.panel_class == label).sum()) * panels.width
        assert 0 <= mine - sum(classes[member] == label for member in members) < panels.width


@given(arranged())
def test_spread__puts_values_at_their_columns_and_zeros_elsewhere(case: tuple[Panels, list[int], list[int]]) -> None:
    panels, members, classes = case
    values = np.arange(1.0, len(classes) + 1)
    spread = panels.spread(values)
    assert spread[panels.used].tolist() == [member + 1.0 for member in members]
    assert not np.delete(spread, panels.used).any()
    matrix = np.stack([values, -values], axis=1)
    np.testing.assert_array_equal(panels.spread(matrix), np.stack([spread, -spread], axis=1))


def test_arrange__of_nothing_has_no_panel() -> None:
    panels = arrange(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), 3)
    assert (panels.n_panels, panels.n_columns) == (0, 0)
    assert panels.spread(np.zeros((0, 4))).shape == (0, 4)


def test_arrange__cuts_a_large_class_beside_small_ones() -> None:
    # One class of 400 and ten of 40: at a width of 400 nine tenths of the small classes' columns would be padding.
    classes = np.concatenate([np.zeros(400, dtype=np.int64), np.repeat(np.arange(1, 11), 40)])
    panels = arrange(np.arange(800), classes, 30)
    assert NARROWEST_PANEL <= panels.width <= 60
    assert panels.n_columns < 1.3 * 800


@given(st.lists(st.integers(1, 200), min_size=1, max_size=6), st.integers(1, 60))
def test_arrange__needs_no_more_work_than_one_panel_for_each_class(counts: list[int], n_features: int) -> None:
    classes = np.repeat(np.arange(len(counts)), counts)
    panels = arrange(np.arange(len(classes)), classes, n_features)

    def work(n_panels: int, width: int) -> int:
        return n_panels * width * (n_features + PANEL_OVERHEAD) + PANEL_OVERHEAD * n_panels * n_features

    assert work(panels.n_panels, panels.width) <= work(len(counts), max(counts))


def test_arrange__takes_members_in_any_order() -> None:
    random = np.random.default_rng(0)
    classes = random.integers(0, 3, 50)
    panels = arrange(np.arange(50), classes, 4)
    of_column = np.repeat(panels.panel_class, panels.width)[panels.used]
    np.testing.assert_array_equal(classes[panels.members], of_column)
    assert sorted(panels.members.tolist()) == list(range(50))
