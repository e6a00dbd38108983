"""Rows are found by every name that a reader of the papers would use."""

import pytest

from examples.reproduce import catalog


@pytest.mark.parametrize("name", catalog.names())
def test_a_row_is_found_by_its_whole_name(name: str) -> None:
    assert name in catalog.chosen([name])


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("I-001", "I-001"),
        ("V-1", "V-1"),
        ("I-F10", "I-F10a-h"),
        ("I-eq120", "I-eq4/120/127"),
        ("U-P3.12", "U-P3.11/12, Thm3.13"),
        ("U-P3.9", "U-P3.6/3.9"),
        ("O-F2", "O-F1-F4"),
        ("o-f8", "O-F7/F8"),
    ],
)
def test_a_part_of_a_name_finds_its_row(word: str, name: str) -> None:
    assert catalog.chosen([word]) == (name,)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="no row 'nothing like it'; --list shows them"):
        catalog.chosen(["nothing like it"])


def test_an_unknown_name_gets_the_nearest_ones() -> None:
    with pytest.raises(ValueError, match=r"no row 'S-T22'; did you mean .*S-T2.*\?"):
        catalog.chosen(["S-T22"])
    with pytest.raises(ValueError, match="did you mean I-F9, I-T1; "):
        catalog.chosen(["I-F99"])
