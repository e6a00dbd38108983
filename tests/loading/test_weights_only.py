"""Audits from stored weights alone: what is read, out of files and of a hub, and what it says."""

from __future__ import annotations

import json
import mmap
import os
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save, save_file

import memaudit
from memaudit import MemauditError
from memaudit.cli.app import main
from memaudit.retrofitting.folder import retrofit_source
from tests.loading.hub_server import (
    NOBODY,
    Answer,
    Hub,
    Repository,
    Trouble,
    body,
    dripping,
    first_time,
    point_at,
    stalling,
    status,
)
from tests.loading.hub_visits import hub_home
from tests.plugins.transformers_families import FAMILIES, Family

__all__ = ["hub_home"]

NAME = "org/hybrid"


def spectra(report: memaudit.Report) -> list[np.ndarray]:
    return [np.sort_complex(np.ravel(layer.eigenvalues)) for layer in report.spectrum]


@pytest.mark.shared
def test_the_spectra_of_every_fixture_are_those_of_the_whole_model(shared: Path) -> None:
    folders = sorted({path.parent for path in (shared / "fixtures").rglob("meta.json")})
    assert len(folders) > 30
    for folder in folders:
        alone = memaudit.scan(folder, weights_only=True)
        whole = memaudit.scan(folder, queries=[], probes=["spectrum"], level="quick")
        assert len(alone.spectrum) == len(whole.spectrum), folder
        for one, other in zip(spectra(alone), spectra(whole), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14, err_msg=str(folder))
        assert alone.settings["weights_only"] is True


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_the_spectra_of_every_family_are_those_of_the_whole_model(
    family: Family, tmp_path: Path
) -> None:
    """What a layer makes of its config, such as the least step, is part of its spectrum."""
    model: Any = family.build()
    limits = {"time_step_min": 0.05, "time_step_limit": [0.01, 0.2]}
    changed = {name: value for name, value in limits.items() if hasattr(model.config, name)}
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **changed}))
    alone = memaudit.scan(tmp_path, weights_only=True)
    whole = memaudit.scan(tmp_path, queries=[], probes=["spectrum"], level="quick")
    assert [one.layer for one in alone.spectrum] == [one.layer for one in whole.spectrum]
    for one, other in zip(spectra(alone), spectra(whole), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-12)


# A hybrid of 30 billion parameters, whose files have holes

LAYERS, WIDTH, HEADS, SHARDS = 48, 7168, 112, 12


def hybrid() -> dict[str, dict[str, list[int]]]:
    """The shapes by shard: mixers of Mamba-2, attention, and blocks of projections, in bfloat16."""
    shards: dict[str, dict[str, list[int]]] = {}
    for layer in range(LAYERS):
        name = f"model-{layer * SHARDS // LAYERS + 1:05}-of-{SHARDS:05}.safetensors"
        at, own = f"model.layers.{layer}", shards.setdefault(name, {})
        own[f"{at}.mlp.up_proj.weight"] = [4 * WIDTH, WIDTH]
        own[f"{at}.mlp.down_proj.weight"] = [WIDTH, 4 * WIDTH]
        if layer % 6 == 5:
            own[f"{at}.self_attn.qkv_proj.weight"] = [3 * WIDTH, WIDTH]
            continue
        own |= {f"{at}.mamba.{n}": [HEADS] for n in ("A_log", "D", "dt_bias")}
        own[f"{at}.mamba.in_proj.weight"] = [4 * WIDTH + HEADS, WIDTH]
        own[f"{at}.mamba.out_proj.weight"] = [WIDTH, 2 * WIDTH]
    return shards


def numbers(layer: int) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(layer)
    rates = torch.rand(HEADS, generator=draw).mul(4)
    return {"A_log": rates.bfloat16(), "dt_bias": (rates - 6).bfloat16()}


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files with holes: only headers and the tensors of the modes take room on the disk."""
    folder = tmp_path_factory.mktemp("hybrid")
    places = {}
    for name, shapes in hybrid().items():
        entries, start, written = {}, 0, {}
        for tensor, shape in shapes.items():
            stop = start + 2 * int(np.prod(shape))
            offsets = [start, stop]
            entries[tensor] = {"dtype": "BF16", "shape": shape, "data_offsets": offsets}
            *_, layer, _, own = tensor.split(".") if ".mamba." in tensor else ("", "0", "", "")
            if own in numbers(0):
                written[start] = numbers(int(layer))[own].view(torch.uint8).numpy().tobytes()
            places[tensor], start = name, stop
        header = json.dumps(entries).encode()
        with open(folder / name, "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header)
            file.truncate(8 + len(header) + start)
            for at, data in written.items():
                file.seek(8 + len(header) + at)
                file.write(data)
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": 56}
    heads = {"mamba_n_heads": HEADS, "mamba_d_head": 2 * WIDTH // HEADS}
    attention = {"attn_layer_indices": list(range(5, LAYERS, 6)), "model_type": "bamba"}
    (folder / "config.json").write_text(json.dumps({**sizes, **heads, **attention}))
    assert sum(path.stat().st_size for path in folder.iterdir()) > 50e9
    assert sum(path.stat().st_blocks * 512 for path in folder.iterdir()) < 10e6
    return folder


def check(report: Any) -> None:
    assert len(report.spectrum) == LAYERS - LAYERS // 6
    for one in report.spectrum:
        own = numbers(int(one.layer.split(".")[1]))
        rate = own["A_log"].double().exp() * torch.nn.functional.softplus(own["dt_bias"].double())
        found, known = np.sort(np.abs(one.eigenvalues)), np.sort(torch.exp(-rate).numpy())
        np.testing.assert_allclose(found, known, rtol=1e-12)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc tells the memory")
def test_a_sharded_folder_of_30_billion_parameters_takes_little_memory(
    sharded: Path, tmp_path: Path
) -> None:
    """Mapped pages, of libraries or weights, are not counted: the system takes them back."""
    code = (
        "import sys; from memaudit.cli.app import main\n"
        "done = main(sys.argv[1:])\n"
        "told = dict(l.split(':') for l in open('/proc/self/status') if 'kB' in l)\n"
        "peak, files = (int(told[n].split()[0]) for n in ('VmHWM', 'RssFile'))\n"
        "print((peak - files) // 1024); sys.exit(done)"
    )
    target = str(tmp_path / "report.json")
    command = ["scan", str(sharded), "--weights-only", "--json", target, "-q"]
    run = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    print(run.stdout)
    assert int(run.stdout.split()[-1]) < 1024
    report = memaudit.Report.load(target)
    check(report)
    assert report.subject.parameters > 25e9
    assert "80 of" in report.subject.notes[0]
    assert "as bfloat16" in report.subject.notes[0]


class Stored(Repository):
    """A repository whose files lie on the disk and are too large to be hashed."""

    @property
    def commit(self) -> str:
        return "0" * 40

    def digests(self, content: Any) -> tuple[str, str]:
        return "0" * 64, "0" * 40


@pytest.fixture
def repository(sharded: Path) -> Repository:
    maps: dict[str, Any] = {}
    for path in sharded.iterdir():
        if path.suffix == ".json":
            maps[path.name] = path.read_bytes()
            continue
        handle = os.open(path, os.O_RDONLY)
        maps[path.name] = mmap.mmap(handle, 0, access=mmap.ACCESS_READ)
        os.close(handle)
    large = tuple(name for name in maps if name.endswith(".safetensors"))
    return Stored(NAME, maps, large=large)


@pytest.mark.usefixtures("hub_home")
def test_a_hub_is_asked_for_less_than_a_hundredth_of_the_bytes(repository: Repository) -> None:
    with Hub(repository) as hub:
        report = memaudit.scan(NAME, weights_only=True)
    check(report)
    total = sum(len(content) for content in repository.files.values())
    assert 0 < hub.sent < total / 100
    assert "were fetched" in report.subject.notes[0]


# What cannot be

MIXER = {
    "layers.0.mixer.A_log": torch.zeros(4),
    "layers.0.mixer.dt_bias": torch.zeros(4),
    "layers.0.mixer.D": torch.zeros(4),
    "layers.0.mixer.in_proj.weight": torch.zeros(64, 8),
}


def one_file(tensors: dict[str, torch.Tensor], **more: bytes) -> Repository:
    files = {"model.safetensors": save(tensors), "config.json": b"{}", **more}
    return Repository(NAME, files, large=("model.safetensors",))


@pytest.mark.usefixtures("hub_home")
def test_a_hub_that_serves_no_parts_is_named_unless_a_copy_is_there() -> None:
    large = {**MIXER, "head.weight": torch.zeros(256, 256)}  # more than is asked for first
    whole = body(save(large))
    with Hub(one_file(large), store=whole), pytest.raises(MemauditError) as caught:
        memaudit.scan(NAME, weights_only=True)
    assert caught.value.code == "E_UNSUPPORTED"
    assert "does not serve parts of files" in str(caught.value)
    assert "hf download" in str(caught.value)
    with Hub(one_file(large)) as hub:
        memaudit.loading.parse_source(NAME).fetched  # noqa: B018
        hub.troubles["store"] = whole
        assert len(memaudit.scan(NAME, weights_only=True).spectrum) == 1
    point_at(NOBODY)
    assert len(memaudit.scan(NAME, weights_only=True, offline=True).spectrum) == 1
    assert len(memaudit.scan(NAME, weights_only=True).spectrum) == 1


def other_bytes(answer: Answer) -> None:
    """A part of the right length from another place."""
    answer.send(206, b"x" * 400, {"Content-Range": "bytes 4-403/9999"})


def after_the_header(trouble: Trouble) -> Trouble:
    asked: list[int] = []

    def later(answer: Answer) -> None:
        asked.append(1)
        (answer.hub.honest if len(asked) == 1 else trouble)(answer)

    return later


@pytest.mark.usefixtures("hub_home")
@pytest.mark.parametrize(
    ("trouble", "code"),
    [
        (status(503), "E_NETWORK"),
        (stalling(400, b""), "E_NETWORK"),
        (dripping(10**6, pause=0.05), "E_NETWORK"),
        (other_bytes, "E_UNSUPPORTED"),
    ],
)
@pytest.mark.parametrize("later", [False, True])
def test_a_hub_that_fails_meanwhile_has_its_code(trouble: Any, code: str, later: bool) -> None:
    large = {"head.weight": torch.zeros(256, 256), **MIXER}
    trouble = after_the_header(trouble) if later else trouble
    with Hub(one_file(large), store=trouble), pytest.raises(MemauditError) as caught:
        memaudit.scan(NAME, weights_only=True, timeout=1)
    assert caught.value.code in (code, "E_UNSUPPORTED")
    assert NAME in str(caught.value)


@pytest.mark.usefixtures("hub_home")
def test_a_busy_hub_is_asked_again() -> None:
    with Hub(one_file(MIXER), store=first_time(status(503))):
        assert len(memaudit.scan(NAME, weights_only=True).spectrum) == 1


@pytest.mark.parametrize(
    "tensors",
    [
        {"config": torch.zeros(2), "layers.0.mixer.config.weight": torch.zeros(2, 2), **MIXER},
        {"layers": torch.zeros(1), "a": torch.zeros(1), "a.b": torch.zeros(1), **MIXER},
        {".".join(["deep"] * 800): torch.zeros(1), **MIXER},
    ],
)
def test_odd_names_beside_a_layer_change_nothing(
    tmp_path: Path, tensors: dict[str, torch.Tensor]
) -> None:
    save_file(tensors, tmp_path / "model.safetensors")
    assert len(memaudit.scan(tmp_path, weights_only=True).spectrum) == 1


def mixer(**changed: torch.Tensor) -> dict[str, torch.Tensor]:
    return MIXER | {f"layers.0.mixer.{name}": value for name, value in changed.items()}


@pytest.mark.parametrize(
    ("tensors", "code"),
    [
        (mixer(A_log=torch.zeros(4, dtype=torch.int8)), "E_UNSUPPORTED"),
        (mixer(A_log=torch.zeros(4, dtype=torch.float8_e4m3fn)), "E_UNSUPPORTED"),
        (mixer(A_log=torch.full((4,), 1000.0), dt_bias=torch.full((4,), -1000.0)), "E_WEIGHTS"),
        (mixer(A_log=torch.zeros(0), dt_bias=torch.zeros(0), D=torch.zeros(0)), "E_CORRUPT"),
    ],
)
def test_numbers_that_make_no_modes_are_refused(
    tmp_path: Path, tensors: dict[str, torch.Tensor], code: str
) -> None:
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(MemauditError) as caught:
        memaudit.scan(tmp_path, weights_only=True)
    assert caught.value.code == code


def test_a_layer_with_other_decays_than_its_kind_has_is_not_taken_for_one(tmp_path: Path) -> None:
    own = {"b.A_log": torch.zeros(4, 2), "b.log_dt": torch.full((4,), -7.0)}
    save_file({**own, **MIXER}, tmp_path / "model.safetensors")
    report = memaudit.scan(tmp_path, weights_only=True)
    assert [one.layer for one in report.spectrum] == ["layers.0.mixer"]
    assert any("b.A_log, b.log_dt" in note for note in report.subject.notes)


@pytest.mark.usefixtures("hub_home")
@pytest.mark.parametrize(
    "header",
    [
        b"\xff" * 16,
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 60) + b'{"A_log":{"dtype":"F32","shape":[4],"data_offsets":[-9,7]}}  ',
        struct.pack("<Q", 60) + b'{"A_log":{"dtype":"F32","shape":[9],"data_offsets":[0,36]}}  ',
    ],
)
def test_a_damaged_header_of_a_hub_is_refused_as_that_of_a_file(header: bytes) -> None:
    files = {"model.safetensors": header, "config.json": b"{}"}
    with Hub(Repository(NAME, files)), pytest.raises(MemauditError) as caught:
        memaudit.scan(NAME, weights_only=True)
    assert caught.value.code in ("E_CORRUPT", "E_LIMIT")


@pytest.mark.usefixtures("hub_home")
def test_other_formats_of_a_hub_are_named() -> None:
    files = {"pytorch_model.bin": b"PK", "config.json": b"{}"}
    with Hub(Repository(NAME, files)), pytest.raises(MemauditError, match="no safetensors file"):
        memaudit.scan(NAME, weights_only=True)


def test_numbers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    bad = {**MIXER, "layers.0.mixer.A_log": torch.full((4,), float("nan"))}
    save_file(bad, tmp_path / "model.safetensors")
    with pytest.raises(MemauditError, match=r"layers\.0\.mixer\.A_log"):
        memaudit.scan(tmp_path, weights_only=True)


def test_what_needs_a_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_file(MIXER, tmp_path / "model.safetensors")
    run = {"queries": ["driven"]}, {"probes": ["stability"]}, {"probes": "gradient"}
    for asked in (*run, {"data": np.ones((50, 1))}, {"budget": "5s"}):
        with pytest.raises(MemauditError, match="needs a run of the model"):
            memaudit.scan(tmp_path, weights_only=True, **asked)
    with pytest.raises(MemauditError, match="no file whose weights"):
        memaudit.scan(torch.nn.LSTM(2, 3), weights_only=True)
    subject = memaudit.load(tmp_path, weights_only=True)
    with pytest.raises(MemauditError, match="leave --weights-only out"):
        subject.respond(torch.zeros(1, 2, 3))
    assert main(["scan", str(tmp_path), "--weights-only"]) == 0
    assert "The model was not run" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("demo", ["mamba", "s4d"])
def test_a_retrofitted_folder_has_the_spectra_of_what_it_was_made_of(
    tmp_path: Path, demo: str
) -> None:
    retrofit_source(f"demo:{demo}", tmp_path / "out", "best")
    alone, before = (
        memaudit.scan(source, weights_only=True) for source in (tmp_path / "out", f"demo:{demo}")
    )
    for one, other in zip(spectra(alone), spectra(before), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_a_layer_that_the_config_does_not_describe_says_so(tmp_path: Path) -> None:
    more = {name.replace("layers.0", "extra.7"): value.clone() for name, value in MIXER.items()}
    sizes = {"num_hidden_layers": 1, "num_heads": 4, "head_dim": 4, "hidden_size": 8}
    save_file({**MIXER, **more}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mamba2", **sizes}))
    report = memaudit.scan(tmp_path, weights_only=True)
    assert {one.layer for one in report.spectrum} == {"layers.0.mixer", "extra.7.mixer"}
    assert any(note.startswith("1 of 2 layers stand in no model") for note in report.subject.notes)


def test_the_stored_format_is_told_of_what_is_opened_whole(tmp_path: Path) -> None:
    save_file(torch.nn.LSTM(2, 3).bfloat16().state_dict(), tmp_path / "model.safetensors")
    report = memaudit.scan(tmp_path, weights_only=True)
    assert report.subject.dtype == "bfloat16"
    assert len(report.spectrum) == 1


def test_a_limit_of_the_steps_and_unmatched_names_are_told(tmp_path: Path) -> None:
    odd = {**MIXER, "layers.1.mixer.A_log": torch.zeros(3, 2, 2, 2)}
    save_file(odd, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(
        json.dumps(
            {
                "model_type": "mamba2",
                "time_step_limit": [0.0, 0.25],
                "num_hidden_layers": 1,
                "num_heads": 4,
                "head_dim": 4,
                "hidden_size": 8,
            }
        )
    )
    report = memaudit.scan(tmp_path, weights_only=True)
    (layer,) = report.spectrum
    np.testing.assert_allclose(np.abs(layer.eigenvalues), np.exp(-0.25))
    assert any("layers.1.mixer.A_log" in note for note in report.subject.notes)


def test_a_large_file_without_known_layers_says_so_and_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memaudit.audit.SMALL", 10)
    save_file({"embed.weight": torch.zeros(8, 8)}, tmp_path / "model.safetensors")
    with pytest.raises(MemauditError, match="no recurrent layer is known by its names"):
        memaudit.scan(tmp_path, weights_only=True)


def test_a_file_that_changes_meanwhile_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file(MIXER, path)

    def advance(stage: str, done: int, of: int) -> None:
        if stage == "spectrum" and done == 0:
            save_file({**MIXER, "more": torch.zeros(1)}, path)

    report = memaudit.scan(path, weights_only=True, progress=advance)
    assert [error["code"] for error in report.errors] == ["E_CHANGED"]
    assert load_file(path)["more"].shape == (1,)


# GGUF, as llama.cpp's converters write it


def converted(folder: Path, target: Path, kind: str) -> None:
    """The checkpoint by the names of GGUF: A for A_log, vectors of Mamba-2 with a second axis."""
    from gguf import GGMLQuantizationType, GGUFWriter, quantize

    found = re.compile(r"(?:backbone\.)?layers\.(\d+)\.mixer\.(.+)")
    own = {"A_log": "ssm_a", "D": "ssm_d", "dt_bias": "ssm_dt.bias", "dt_proj.bias": "ssm_dt.bias"}
    own |= {"in_proj.weight": "ssm_in.weight", "out_proj.weight": "ssm_out.weight"}
    writer = GGUFWriter(target, "mamba")
    writer.add_context_length(2048)
    for name, tensor in load_file(folder / "model.safetensors").items():
        match = found.fullmatch(name)
        if match is None or match[2] not in own:
            continue
        values = tensor.float()
        if match[2] == "A_log":
            values = -values.exp()
        if values.ndim == 1 and "dt_proj" not in name and match[2] in ("A_log", "D"):
            values = values[:, None]
        array, label = values.numpy(), f"blk.{match[1]}.{own[match[2]]}"
        if label.endswith(".weight"):
            as_kind = GGMLQuantizationType[kind]
            writer.add_tensor(label, quantize(array, as_kind), raw_dtype=as_kind)
        else:
            writer.add_tensor(label, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.shared
@pytest.mark.parametrize("kind", ["F16", "Q8_0"])
@pytest.mark.parametrize("family", ["mamba1_hf", "mamba2_hf"])
def test_a_gguf_file_has_the_spectra_of_what_it_was_made_of(
    shared: Path, tmp_path: Path, family: str, kind: str
) -> None:
    pytest.importorskip("gguf")
    folder, target = shared / "fixtures" / family / "small", tmp_path / "model.gguf"
    converted(folder, target, kind)
    alone = memaudit.scan(target, weights_only=True)
    for one, other in zip(
        spectra(alone), spectra(memaudit.scan(folder, weights_only=True)), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    assert f"as {kind}" in alone.subject.notes[0]
    assert "as F32" in alone.subject.notes[0]
    assert alone.subject.context == 2048
    with pytest.raises(MemauditError, match="--weights-only"):
        memaudit.scan(target)
    data = target.read_bytes()
    for size in (3, 20, 60, len(data) // 2, len(data) - 40):
        target.write_bytes(data[:size])
        with pytest.raises(MemauditError) as caught:
            memaudit.scan(target, weights_only=True)
        assert caught.value.code == "E_CORRUPT"
