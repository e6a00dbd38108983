"""Every registered query keeps the laws of its contract."""

from __future__ import annotations

import pytest

from memaudit import registry
from memaudit.interfaces import AbstractTokenQuery
from memaudit.testing import check_query, check_token_query


@pytest.mark.parametrize("name", registry.available("queries"))
def test_the_query_keeps_the_laws(name):
    query = registry.build("queries", name)
    assert query.name == name
    check = check_token_query if isinstance(query, AbstractTokenQuery) else check_query
    check(query)
