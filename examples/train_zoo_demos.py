"""Train the two demo models of the transformers zoo and write them as save_pretrained folders."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from torch import Tensor, nn

from memaudit.data import sample_text
from memaudit.loading import guard_torchvision

DEMO_FOLDER = Path(__file__).resolve().parent.parent / "memaudit" / "demos"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
GOOD = ["good", "great", "lovely", "warm", "clever", "bright"]
BAD = ["bad", "awful", "dull", "cold", "clumsy", "grim"]
PLAIN = [
    *("the", "a", "film", "book", "story", "was", "and", "it", "ends", "with"),
    *("ha", "scene", "actor", "that", "we", "saw", "in", "some", "town"),
]
#: Words of a made-up review; the label says whether more of them are good than bad.
SHORTEST, LONGEST = 6, 40
LETTERS_OF_A_PASSAGE = 64

Batch = Callable[[int, torch.Generator], dict[str, Tensor]]


@dataclass(frozen=True, slots=True)
class Recipe:
    """One demo: the model, its tokenizer, where its batches come from, and how it is trained."""

    name: str
    model: nn.Module
    tokenizer: Tokenizer
    batch: Batch
    steps: int
    rate: float
    size: int


def letters() -> Tokenizer:
    """One token for every letter of the text in the package."""
    known = [*SPECIAL[:2], *sorted(set(sample_text()))]
    vocabulary = {letter: k for k, letter in enumerate(known)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.add_special_tokens(SPECIAL[:2])
    return tokenizer


def words() -> Tokenizer:
    """One token for every word of the reviews, with [CLS] and [SEP] around a text."""
    vocabulary = {word: k for k, word in enumerate([*SPECIAL, *GOOD, *BAD, *PLAIN])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    ids = [("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=ids
    )
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


def mamba() -> Recipe:
    """A language model of letters, trained on the text in the package."""
    from transformers import MambaConfig, MambaForCausalLM

    tokenizer = letters()
    text = torch.tensor(tokenizer.encode(sample_text()).ids)
    config = MambaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=48,
        num_hidden_layers=2,
        state_size=8,
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=0,
    )

    def batch(size: int, generator: torch.Generator) -> dict[str, Tensor]:
        starts = torch.randint(len(text) - LETTERS_OF_A_PASSAGE, (size,), generator=generator)
        ids = torch.stack([text[s : s + LETTERS_OF_A_PASSAGE] for s in starts.tolist()])
        return {"input_ids": ids, "labels": ids}

    return Recipe("mamba", MambaForCausalLM(config), tokenizer, batch, 700, 3e-3, 16)


def bert() -> Recipe:
    """A classifier of made-up reviews: are more of their words good than bad?"""
    from transformers import BertConfig, BertForSequenceClassification

    tokenizer = words()
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=512,
        num_labels=2,
    )
    config.id2label = {0: "bad", 1: "good"}
    config.label2id = {"bad": 0, "good": 1}

    def batch(size: int, generator: torch.Generator) -> dict[str, Tensor]:
        length = int(torch.randint(SHORTEST, LONGEST, (1,), generator=generator))
        first = len(SPECIAL)
        ids = torch.randint(first, tokenizer.get_vocab_size(), (size, length), generator=generator)
        good = ((ids >= first) & (ids < first + len(GOOD))).sum(1)
        past = first + len(GOOD)
        bad = ((ids >= past) & (ids < past + len(BAD))).sum(1)
        edge = torch.tensor([[2, 3]]).expand(size, -1)
        return {
            "input_ids": torch.cat([edge[:, :1], ids, edge[:, 1:]], dim=1),
            "labels": (good > bad).long(),
        }

    return Recipe("bert", BertForSequenceClassification(config), tokenizer, batch, 1500, 1e-3, 64)


def train(recipe: Recipe, steps: int, generator: torch.Generator) -> tuple[float, float]:
    """Train in place; the loss on fresh batches before and after."""
    model: Any = recipe.model
    before = held_out(recipe, generator)
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(steps, 1))
    model.train()
    for _ in range(steps):
        loss = model(**recipe.batch(recipe.size, generator)).loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return before, held_out(recipe, generator)


@torch.no_grad()
def held_out(recipe: Recipe, generator: torch.Generator) -> float:
    """The mean loss over eight fresh batches."""
    model: Any = recipe.model.eval()
    losses = [model(**recipe.batch(recipe.size, generator)).loss for _ in range(8)]
    return float(torch.stack(losses).mean())


def write(recipe: Recipe, folder: Path) -> Path:
    """Save model and tokenizer as users of transformers have them."""
    place = folder / recipe.name
    model: Any = recipe.model
    model.save_pretrained(place)
    recipe.tokenizer.save(str(place / "tokenizer.json"))
    for file in place.iterdir():
        file.chmod(0o644)  # safetensors writes for the owner alone; a package is read by everybody
    return place


def main(argv: list[str] | None = None) -> int:
    """Train every demo and print its losses."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=DEMO_FOLDER, help="folder for the demos")
    parser.add_argument("--steps", type=int, default=None, help="steps instead of the recipe's")
    arguments = parser.parse_args(argv)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        guard_torchvision()
    for number, recipe_of in enumerate((mamba, bert)):
        with torch.random.fork_rng():  # transformers draws its weights from the global generator
            torch.manual_seed(number)
            recipe = recipe_of()
            generator = torch.Generator().manual_seed(number)
            steps = recipe.steps if arguments.steps is None else arguments.steps
            before, after = train(recipe, steps, generator)
        place = write(recipe, arguments.out)
        print(f"{place.name}: loss {before:.4g} before and {after:.4g} after {steps} steps")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
