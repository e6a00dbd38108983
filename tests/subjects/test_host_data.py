"""What the parts of a host are fed in use: data, what the model hands them, embeddings."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import memaudit
from memaudit.errors import ArgumentError
from memaudit.subjects.hosts import embedding_rows


class Reader(nn.Module):
    """Pictures (B,1,H,T) through a convolution, a GRU and, step by step, an LSTM cell."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Conv2d(1, 8, 3, padding=1)
        self.rnn = nn.GRU(8, 6)
        self.drop = nn.Dropout(0.5)
        self.cell = nn.LSTMCell(6, 4)

    def forward(self, picture):
        columns = self.front(picture).mean(2).permute(2, 0, 1)
        state = None
        for row in self.drop(self.rnn(columns)[0]):
            state = self.cell(row, state)
        return state[0]


@pytest.fixture
def reader() -> Reader:
    torch.manual_seed(0)
    return Reader().double()


def fed(source, **options) -> dict[str, str]:
    """What stood in the sequences of every part."""
    made = memaudit.scan(
        source, horizon=24, probes=[], queries=["driven"], level="quick", **options
    )
    return {part: curves["driven"].fed for part, curves in made.layers.items()}


def test_a_module_hands_its_parts_what_reaches_them(reader):
    pictures = torch.randn(16, 1, 5, 40, generator=torch.Generator().manual_seed(1)).double()
    reached = memaudit.load(reader).recorded(pictures)
    reader.eval()
    columns = reader.front(pictures).mean(2).transpose(1, 2)
    assert torch.equal(reached["rnn"], columns.detach())
    answers = reader.rnn(columns.transpose(0, 1))[0].transpose(0, 1)
    assert torch.equal(reached["cell"], answers.detach())


def test_a_recording_leaves_the_module_as_it_was(reader):
    reader.train()
    memaudit.load(reader).recorded(torch.randn(2, 1, 5, 8))
    assert all(part.training for part in reader.modules())
    assert not any(part._forward_pre_hooks for part in reader.modules())


def test_the_data_of_a_module_are_run_through_it(reader):
    told = fed(reader, data=np.random.default_rng(0).standard_normal((16, 1, 5, 64)))
    assert {words.split(", ")[0] for words in told.values()} == {
        "your data as the model hands them to it"
    }


def test_data_that_fit_one_part_leave_the_others_to_what_else_is_known(reader):
    told = fed(reader, data=np.random.default_rng(0).standard_normal((400, 8)))
    assert told["rnn"].startswith("your data, ")
    assert told["cell"] == (
        "unit noise (the data have 8 columns, and the part cell takes 6 numbers a step), not what "
        "`cell` gets: --data FILE of shape (T, 6); 32 sequences"
    )


def test_data_that_fit_no_part_are_refused_with_the_widths(reader):
    with pytest.raises(ArgumentError, match="no part takes: rnn takes 8, cell takes 6"):
        fed(reader, data=np.ones((16, 24, 3)))


def test_a_file_has_a_sequence_for_every_part(reader, tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "x.npz", rnn=rng.standard_normal((300, 8)), cell=rng.random((2, 200, 6)))
    told = fed(reader, data=tmp_path / "x.npz")
    assert all(words.startswith("x.npz, ") for words in told.values())


def test_an_array_for_a_part_that_is_not_there_is_refused(reader, tmp_path):
    np.savez(tmp_path / "x.npz", rnn=np.ones((300, 8)), lstm=np.ones((300, 8)))
    with pytest.raises(ArgumentError, match=r"'lstm', and no part is called so; .*: rnn, cell"):
        fed(reader, data=tmp_path / "x.npz")


def test_several_arrays_for_one_whole_model_are_refused(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.ones((300, 1)), b=np.ones((300, 1)))
    with pytest.raises(ArgumentError, match=r"2 arrays are in x.npz \(a, b\)"):
        memaudit.scan("demo:lstm", data=tmp_path / "x.npz")


def test_pictures_for_a_whole_model_are_refused():
    with pytest.raises(ArgumentError, match=r"the data have the shape \(2, 3, 4, 5\)"):
        memaudit.scan("demo:lstm", data=np.ones((2, 3, 4, 5)))


def test_the_table_with_the_words_of_a_part_feeds_it(tmp_path):
    torch.manual_seed(0)
    weights = {f"{part}_emb": torch.randn(30, 8) for part in ("enc", "dec")}
    for part in ("enc", "dec"):
        cell = nn.GRUCell(8, 8).state_dict()
        weights |= {
            f"{part}_{k.replace('weight', 'w').replace('bias', 'b')}": t for k, t in cell.items()
        }
    torch.save(weights, tmp_path / "g2p.pt")
    parts = memaudit.load(tmp_path / "g2p.pt", dtype="float32").parts()
    for name, part in parts.items():
        rows = part.natural_inputs(30, torch.Generator().manual_seed(0))
        assert torch.equal(rows.sort(0).values, weights[f"{name}_emb"].sort(0).values)
    told = fed(tmp_path / "g2p.pt")
    assert set(told.values()) == {"its embeddings in random order, 32 sequences"}


TABLE = torch.zeros(20, 8)


@pytest.mark.parametrize(
    ("part", "parts", "names"),
    [
        ("layers.1.rnn", ("layers.0.rnn", "layers.1.rnn"), ["layers.embed"]),  # inner layers
        ("enc", ("enc", "dec"), ["enc.emb_a", "enc.emb_b"]),  # which one?
        ("rnn", ("rnn",), ["pos_embed"]),
        ("rnn", ("rnn",), ["out.weight"]),
    ],
)
def test_a_table_that_is_not_certain_feeds_nothing(part, parts, names):
    assert embedding_rows(part, 8, parts, dict.fromkeys(names, TABLE)) is None


def test_the_only_table_feeds_the_only_part():
    assert embedding_rows("rnn", 8, ["rnn"], {"embed.weight": TABLE}) is TABLE
    assert embedding_rows("rnn", 9, ["rnn"], {"embed.weight": TABLE}) is None


def test_the_headline_names_the_part_and_the_summary_those_that_were_not_reached(reader):
    data = np.random.default_rng(0).standard_normal((16, 1, 5, 64))
    made = memaudit.scan(
        reader, horizon=24, probes=[], queries=["driven"], level="quick", data=data
    )
    longest = max(made.layers, key=lambda part: made.layers[part]["driven"].extent)
    assert f"`{longest}` remember" in made.document().headlines[0]
    parts = made.sections()[0].tables[0]
    assert [row[0] for row in parts.rows] == ["rnn", "cell"]
    assert not [s for s in made.document().sections if s.title == "Not reached"]
    alone = memaudit.scan(reader, horizon=24, probes=[], queries=["driven"], layers="cell")
    (left,) = (s.line for s in alone.document().sections if s.title == "Not reached")
    assert left == "rnn (--set layers=all runs them)"
