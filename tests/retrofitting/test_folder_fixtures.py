"""Reference checkpoints retrofitted, opened again and folded; transformers reads the result."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import memaudit
from memaudit.loading import open_checkpoint
from memaudit.retrofitting.folder import fold_folder, retrofit_source

pytestmark = pytest.mark.shared

FAMILIES = (
    "mamba1_hf/small",
    "rwkv_hf/small",
    "recurrentgemma_hf/small",
    "s4d_standalone/small",
    "s5_pytorch/small/model.pt",
    "lru_jax/small/params.npz",
    "lru_jax/small/params.msgpack",
    "torch_rnn/rnn_uni/model.pt",
    "torch_rnn/gru_uni",
)
#: Blocks memaudit, reads a folder by transformers, and says whether anything was missing.
READER = """
import sys
sys.modules["memaudit"] = None
sys.modules["torchvision"] = None
from transformers import AutoModelForCausalLM
model, told = AutoModelForCausalLM.from_pretrained(sys.argv[1], output_loading_info=True)
print(sorted(told["missing_keys"]), sorted(told["unexpected_keys"]))
print(float(sum(p.double().abs().sum() for n, p in model.named_parameters() if "A_log" in n)))
"""


@pytest.mark.parametrize("family", FAMILIES)
def test_a_fixture_comes_back_bit_by_bit_and_answers_the_same(shared, tmp_path, family):
    source = shared / "fixtures" / family
    done = retrofit_source(source, tmp_path / "out", "best", radius=False)
    before, after = memaudit.load(source), memaudit.load(tmp_path / "out")
    inputs = torch.ones(1, 6, before.input_size or 0, dtype=before.dtype)
    assert torch.equal(after.respond(inputs), before.respond(inputs))
    keys = fold_folder(tmp_path / "out", tmp_path / "back")
    assert len(keys) == len(done.layers)
    one, other = open_checkpoint(source), open_checkpoint(tmp_path / "back")
    assert one.files[0].name == other.files[0].name
    assert (one.container, one.metadata) == (other.container, other.metadata)
    assert set(one.tensors) == set(other.tensors)
    for name, value in one.tensors.items():
        assert value.dtype == other.tensors[name].dtype
        assert torch.equal(value, other.tensors[name]), name


def test_transformers_reads_what_was_folded_without_memaudit(shared, tmp_path):
    source = shared / "fixtures" / "mamba1_hf" / "small"
    retrofit_source(source, tmp_path / "out", "best", radius=False)
    fold_folder(tmp_path / "out", tmp_path / "back")
    said = subprocess.run(
        [sys.executable, "-c", READER, str(tmp_path / "back")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    missing, total = said.stdout.splitlines()
    assert missing == "[] []"
    tensors = open_checkpoint(source).tensors
    wanted = sum(float(v.double().abs().sum()) for n, v in tensors.items() if "A_log" in n)
    assert float(total) == wanted
