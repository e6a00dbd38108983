"""Every registered target keeps the laws of its contract."""

from __future__ import annotations

import pytest

from memaudit import registry
from memaudit.testing import check_target


@pytest.mark.parametrize("name", registry.available("targets"))
def test_the_target_keeps_the_laws(name):
    target = registry.build("targets", name)
    assert target.name == name
    check_target(target)
