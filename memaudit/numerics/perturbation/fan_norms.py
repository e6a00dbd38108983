"""How far the answers of many directions at many sizes are from a reference."""

from __future__ import annotations

import torch

from memaudit.numerics.chunking import shares, side_by_side, spans
from memaudit.numerics.perturbation.errors import error_norm

#: Numbers of a difference that are worked on at a time: they stay in the processor's cache.
AT_A_TIME = 2**17


def fan_norms(
    answers: torch.Tensor, reference: torch.Tensor, norm: str, *, pooled: bool
) -> torch.Tensor:
    """The errors (S,K) of answers (S,K,B,…) against the reference (B,…), in float64.

    Differences in double precision are larger than the answers; so they are made in pieces.
    """
    found = torch.empty(answers.shape[:2], dtype=torch.float64, device=answers.device)
    on_processor = answers.device.type == "cpu"
    pieces = -(-len(answers) * reference.numel() // AT_A_TIME) if on_processor else 1
    count = max(1, -(-len(answers) // max(1, pieces)))

    def work(part: slice) -> None:
        for k in range(part.start, part.stop):
            for span in spans(len(answers), count):
                difference = answers[span, k].double() - reference
                found[span, k] = error_norm(difference, norm, pooled=pooled)

    with torch.no_grad():
        side_by_side(work, shares(answers.shape[1], on_processor=on_processor))
    return found
