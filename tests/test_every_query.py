"""Every registered query keeps the laws of its contract."""

from __future__ import annotations

import pytest

from memaudit import registry
from memaudit.testing import check_query


@pytest.mark.parametrize("name", registry.available("queries"))
def test_the_query_keeps_the_laws(name):
    query = registry.build("queries", name)
    assert query.name == name
    check_query(query)
