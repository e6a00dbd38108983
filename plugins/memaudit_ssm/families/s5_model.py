"""Blocks of s5-pytorch rebuilt from their names: one, or several in a row."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from memaudit.errors import clean
from memaudit_ssm.families.agreement import MODEL_PLACES, require_stated, said_in
from memaudit_ssm.families.family import Group, Whole, shape_of, weights_error
from memaudit_ssm.families.pooled import every_step_unless_said
from memaudit_ssm.models.s5_blocks import S5Block, S5Stack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from memaudit_ssm.facts import Facts
    from memaudit_ssm.layers.core import Core

    Build = Callable[[Group], Core]

#: The blocks of a list, of whatever name, or one block alone.
_PLACE = re.compile(r"^(?P<front>(?:.*\.)?(?P<number>[0-9]{1,6})\.|)s5\.seq\.\Z")
_AROUND = ("attn_norm.weight", "attn_norm.bias", "ff_norm.weight", "ff_norm.bias")
_FEED = ("ff_enc.weight", "ff_dec.weight")
_ORDER = "the blocks are taken to follow each other in the order of their numbers"


def whole_blocks(
    groups: list[Group], tensors: Mapping[str, Tensor], facts: Facts, *, build: Build
) -> Whole | str:
    """The blocks in a row between encoder and decoder, if there are such, or why not."""
    fronts = _fronts(groups)
    if fronts is None:
        return "the layers are not those of blocks: N.s5.seq"
    wanted = [front + end for front in fronts for end in (*_AROUND, *_FEED)]
    if not set(wanted) <= set(tensors):
        return "a block lacks attn_norm, ff_norm, ff_enc or ff_dec"
    coded = [name for name in ("encoder.weight", "decoder.weight") if name in tensors]
    if len(coded) == 1:
        return f"there is {coded[0]} alone, without its counterpart"
    blocks = [_block(build(group), front, tensors, facts) for front, group in fronts.items()]
    net = S5Stack(
        blocks,
        ends=_sizes(tensors, facts) if coded else None,
        biases=(_biased(tensors, facts, "encoder"), _biased(tensors, facts, "decoder"))
        if coded
        else (False, False),
        pooling=every_step_unless_said(facts, also=("pooling",), ask=False) if coded else "none",
    )
    _require_stated(facts, blocks)
    names = {
        name: f"layers.{i}.{name.removeprefix(front)}"
        for i, front in enumerate(fronts)
        for name in tensors
        if name.startswith(front) and not (coded and name in _ends(tensors))
    }
    return Whole(net, notes=(_ORDER,) if len(blocks) > 1 or coded else (), names=names)


def _fronts(groups: list[Group]) -> dict[str, Group] | None:
    """What stands before s5.seq of every layer, by number; None when they are no list."""
    matches = [(_PLACE.match(group.prefix), group) for group in groups]
    found = [(match, group) for match, group in matches if match is not None]
    if len(found) < len(groups):
        return None
    if len(groups) == 1 and not found[0][0]["front"]:
        return {"": groups[0]}
    numbered = {int(m["number"] or -1): (m["front"], group) for m, group in found}
    lists = {front.removesuffix(f"{number}.") for number, (front, _) in numbered.items()}
    if sorted(numbered) != list(range(len(groups))) or len(lists) != 1:
        return None
    return dict(numbered[i] for i in range(len(groups)))


def _block(seq: Core, front: str, tensors: Mapping[str, Tensor], facts: Facts) -> S5Block:
    into, out = f"{front}ff_enc.weight", f"{front}ff_dec.weight"
    rows, hidden = shape_of(tensors, into, 2)[0], shape_of(tensors, out, 2)[1]
    shown = f"{clean(into)} gives {rows} features, and {clean(out)} takes {hidden}"
    if rows not in (hidden, 2 * hidden):
        raise weights_error(shown)
    gated = rows == 2 * hidden
    said = said_in(facts, MODEL_PLACES, "glu")
    # The code's own default is the gate.
    if gated != (True if said is None else bool(said)):
        if facts.stated:
            raise weights_error(f"{shown}, but the config does not say glu: {str(gated).lower()}")
        facts.assumed["glu"] = f"false ({shown})"
    return S5Block(seq, hidden=hidden, gated=gated)


def _sizes(tensors: Mapping[str, Tensor], facts: Facts) -> tuple[int, int]:
    """Inputs of the encoder and outputs of the decoder, as the config has them too."""
    inputs = shape_of(tensors, "encoder.weight", 2)[1]
    outputs = shape_of(tensors, "decoder.weight", 2)[0]
    require_stated(facts, MODEL_PLACES, "d_input", inputs, "the inputs of encoder.weight are")
    require_stated(facts, MODEL_PLACES, "d_output", outputs, "the outputs of decoder.weight are")
    return inputs, outputs


def _biased(tensors: Mapping[str, Tensor], facts: Facts, name: str) -> bool:
    """Whether a linear layer has a bias: it must, unless the config says that it has none."""
    if f"{name}.bias" in tensors:
        return True
    if said_in(facts, MODEL_PLACES, "bias") is not False:
        raise weights_error(f"{name}.bias is not there, and no config says bias: false")
    return False


def _require_stated(facts: Facts, blocks: list[S5Block]) -> None:
    widths = {block.s5.seq.width for block in blocks}
    if len(widths) > 1:
        raise weights_error(f"the blocks have {sorted(widths)} features, and no common width")
    for name in ("dim", "d_model"):
        require_stated(facts, MODEL_PLACES, name, max(widths), "the features of the blocks are")
    require_stated(facts, MODEL_PLACES, "n_layers", len(blocks), "the blocks in the file are")


def _ends(tensors: Mapping[str, Tensor]) -> list[str]:
    return [name for name in tensors if name.startswith(("encoder.", "decoder."))]
