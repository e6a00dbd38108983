"""Every registered query keeps the laws of its contract."""

from __future__ import annotations

import pytest

from memaudit import registry
from memaudit.interfaces import AbstractTokenQuery, AbstractTrialQuery
from memaudit.testing import check_query, check_token_query, check_trial_query


@pytest.mark.parametrize("name", registry.available("queries"))
def test_the_query_keeps_the_laws(name):
    query = registry.build("queries", name)
    assert query.name == name
    if isinstance(query, AbstractTokenQuery):
        check_token_query(query)
    elif isinstance(query, AbstractTrialQuery):
        check_trial_query(query)
    else:
        check_query(query)
