"""Models of timm with their weights as an argument."""

from __future__ import annotations

import torch

from tests.module_laws import check_perturbable
from tests.plugins.timm_models import noise, opened, sequencer, vit


def test_recurrent_layers_obey_the_laws() -> None:
    for part in opened(sequencer().double()).parts().values():
        check_perturbable(part)


def test_patches_obey_the_laws() -> None:
    subject = opened(vit(), torch.float64)
    check_perturbable(subject, inputs=noise(2, 16, 32))


def test_shorter_sequences_of_patches_obey_the_laws() -> None:
    subject = opened(vit(), torch.float64)
    check_perturbable(subject, inputs=noise(2, 7, 32))


def test_the_weights_of_a_vision_transformer_are_none_of_a_recurrence() -> None:
    model = opened(vit(), torch.float64).perturbable()
    assert model is not None
    assert {role.group for role in model.roles.values()} == {"other"}
    assert not any(name.startswith(("patch_embed", "head")) for name in model.weights)


def test_a_host_of_several_layers_has_none_of_its_own() -> None:
    assert opened(sequencer().double()).perturbable() is None
