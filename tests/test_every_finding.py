"""Every registered rule keeps the laws of its contract."""

from __future__ import annotations

import pytest

from memaudit import registry
from memaudit.testing import check_rule


@pytest.mark.parametrize("code", registry.available("findings"))
def test_the_rule_keeps_the_laws(code):
    rule = registry.build("findings", code)
    assert rule.code == code
    check_rule(rule)


def test_no_two_rules_share_a_name():
    names = [registry.build("findings", code).name for code in registry.available("findings")]
    assert len(set(names)) == len(names)
