"""Nothing in a card tells where on this machine anything lies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memaudit.memory.result import Assumption
from memaudit.report import Finding
from memaudit.testing import sample_reports
from memaudit.testing.samples import having
from memaudit.writers.card import eval_results, presentable, without_paths
from memaudit.writers.markdown import Markdown
from tests.handmade import curve, identity, report


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/home/ann/runs/model.pt", "model.pt"),
        ("cannot read /home/ann/runs/model.pt: no such file", "cannot read model.pt: no such file"),
        ("text from ~/corpora/war.txt.", "text from war.txt."),
        ("~ann/corpora/war.txt", "war.txt"),
        ("file:///srv/models/x.safetensors, 2 tensors", "x.safetensors, 2 tensors"),
        ("file://host/models/x.bin", "x.bin"),
        (r"opened C:\Users\Ann\model.pt; fine", "opened model.pt; fine"),
        (r"C:/Users/Ann/model.pt", "model.pt"),
        (r"\\server\share\model.pt", "model.pt"),
        ("see '/home/ann/My Models/a b.pt' there", "see 'a b.pt' there"),
        ('path="/data/x.pt"', 'path="x.pt"'),
        ("(/data/models/x.pt)", "(x.pt)"),
        ("text=../private/notes.txt", "text=notes.txt"),
        ("./runs/7/model.pt", "model.pt"),
        ("in:/srv/x/a,b/c.pt, d", "in:c.pt, d"),
        ("/model.pt", "model.pt"),
        ("/home/ann", "…"),
        ("/root", "root"),
        ("~/", "…"),
        (r"C:\Users\Ann", "…"),
        ("/home/ann/", "…"),
        ("/home/ann/models/", "models"),
    ],
)
def test_of_a_path_its_end_is_left(text, told):
    assert without_paths(text) == told


@pytest.mark.parametrize(
    "text",
    [
        *("org/name", "org/name@refs/pr/1", "demo:lstm", "hf-hub:timm/vit", "timm:resnet/2"),
        *(
            "https://huggingface.co/org/name",
            "and/or",
            "a / b",
            "10 m /s",
            "1/2",
            "encoder/layer.0",
        ),
        *("5 % of the answers; rate 0.05 ~ 0.06", "x: y", "...", "|y| / |x|", "<b>x</b>", ""),
        *("step t/T", "R² ~1", "ratio a:b", "</pre>", "log E/E0", "C: a mode", "\\alpha\\beta"),
    ],
)
def test_other_texts_stay(text):
    assert without_paths(text) == text


@pytest.mark.parametrize(
    "source",
    [
        *("/srv/private/m.pt", "~/private/m.pt", r"C:\private\m.pt", "file:///srv/private/m.pt"),
        *("runs/private/m.pt", "./private", "../private", "local-dir:/srv/private/m"),
        *("hf-hub:/srv/private", "/srv/private/My Models/m.pt", r"private\m.pt", "private/m.pt"),
    ],
)
def test_a_source_on_some_machine_is_called_like_the_folder(source, tmp_path):
    folder = tmp_path / "model"
    notes = (f"opened as {source}", f"{source}/config.json is missing")
    errors = ({"code": "E_X", "stage": "load", "message": f"no {source}", "hint": ""},)
    made = report(curve(), subject=identity(source=source, notes=notes))
    made = replace(made, errors=errors, complete=False)
    text = Markdown().render(presentable(made, folder))
    assert "private" not in text
    assert "**model**" in text
    assert "opened as model" in text


@pytest.mark.parametrize("source", ["org/name", "org/name@v1", "demo:lstm", "timm:vit", "gru"])
def test_a_source_of_everybody_keeps_its_name(source, tmp_path):
    made = report(curve(), subject=identity(source=source, notes=(f"{source} is fine",)))
    assert presentable(made, tmp_path / "model") == made


def test_a_folder_given_from_here_is_shown_by_its_name(tmp_path, monkeypatch):
    (tmp_path / "private" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    folder = (tmp_path / "private" / "model").relative_to(tmp_path)
    notes = ("private/model/config.json says so", f"{tmp_path}/private/model is there")
    made = report(curve(), subject=identity(source="private/model", notes=notes))
    assert presentable(made, folder).subject.notes == (
        "model/config.json says so",
        "model is there",
    )


def test_paths_leave_every_sentence_and_numbers_stay(tmp_path):
    secret = "/srv/private/x.pt"
    made = sample_reports()["moved"]
    finding = Finding("MA999", "sample", "note", f"see {secret}", f"move {secret}", secret)
    held = Assumption("causal", None, None, None, f"not with {secret}", secret)
    settings = {**made.settings, "probe_options": {"text": secret, "list": [secret, 1]}}
    environment = {**made.environment, "cache": secret}
    moved = replace(
        having(made, assumptions=(held,)),
        **{"findings": (finding,), "settings": settings},
        environment=environment,
    )
    shown = presentable(moved, tmp_path)
    assert "private" not in str(shown.to_dict())
    assert shown.metrics() == moved.metrics()
    assert eval_results(shown) == eval_results(moved)
    assert presentable(shown, tmp_path) == shown
