"""Every registered report format keeps the laws of its contract."""

from __future__ import annotations

import pytest

from memaudit import registry
from memaudit.testing import check_report_format

#: Drawing every sample takes half a minute.
FORMATS = [
    pytest.param(name, marks=pytest.mark.slow) if name == "figure" else name
    for name in registry.available("reports")
]


@pytest.mark.parametrize("name", FORMATS)
def test_the_report_format_keeps_the_laws(name):
    form = registry.build("reports", name)
    assert form.name == name
    check_report_format(form)


def test_no_two_formats_share_a_suffix():
    suffixes = [registry.build("reports", name).suffix for name in registry.available("reports")]
    assert len(set(suffixes)) == len(suffixes)
