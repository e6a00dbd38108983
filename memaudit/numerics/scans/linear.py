"""The gated linear recurrence, one gate for every channel and step."""

from __future__ import annotations

import torch

from memaudit.numerics.scans.chunking import chunk_length, spans, working_dtype


@torch.no_grad()
def linear_scan(
    gate: torch.Tensor, inputs: torch.Tensor, initial: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """All states (B,T,W) of a gated linear recurrence, and the last one (B,W).

    h_t = a_t h_{t-1} + x_t

    with the gate a and the inputs x (B,T,W), and h_{-1} = `initial` (B,W) or zero. The states
    have the dtype of the inputs, the last one the dtype that was worked in. No gradient flows.
    """
    dtype = working_dtype(gate, inputs)
    rows, length, width = inputs.shape
    state = inputs.new_zeros(rows, width, dtype=dtype)
    if initial is not None:
        state.copy_(initial)
    states = torch.empty_like(inputs, memory_format=torch.contiguous_format)
    for span in spans(length, chunk_length(length, rows * width)):
        # Time first: every step then reads and writes one contiguous piece.
        gates = gate[:, span].transpose(0, 1).to(dtype).contiguous()
        chunk = torch.empty_like(gates).copy_(inputs[:, span].transpose(0, 1))
        step = state
        for now, decay in zip(chunk.unbind(0), gates.unbind(0), strict=True):
            step = now.addcmul_(decay, step)
        state.copy_(step)  # the chunk is freed, the state is not
        states[:, span] = chunk.transpose(0, 1)
    return states, state
