"""What a hub says, taken apart without a network: listings, statuses, and which files to take."""

from __future__ import annotations

import json

import pytest

from memaudit.errors import MachineError, MemauditError, SourceError
from memaudit.loading.files import choose_weight_file
from memaudit.loading.hub import (
    MOST_FILES,
    Listing,
    choose_weights,
    read_listing,
    refused,
    shards_of,
)

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def entry(name: object, size: object = 3, **more: object) -> dict[str, object]:
    return {"rfilename": name, "size": size, **more}


def listing(*entries: object) -> Listing:
    said = {"id": "org/name", "sha": COMMIT, "siblings": entries}
    return read_listing(json.dumps(said).encode(), host="hub")


@pytest.mark.parametrize(
    "answer",
    [
        b"<html><body>Sign in to the guest network</body></html>",
        b"",
        b"[]",
        b"null",
        b'{"sha": "main", "siblings": []}',
        b'{"sha": "../../../../../../../../../../tmp/xxxxxx", "siblings": []}',
        b'{"sha": 5, "siblings": []}',
        json.dumps({"sha": COMMIT}).encode(),
        json.dumps({"sha": COMMIT, "siblings": {"a": 1}}).encode(),
        json.dumps({"sha": COMMIT + "\n", "siblings": []}).encode(),
        b"[" * 200_000,
        b'{"sha": ' + b"9" * 5000 + b"}",
        b"\xff\xfe",
    ],
)
def test_an_answer_that_is_no_listing(answer: bytes):
    with pytest.raises(MachineError, match="is not a hub") as caught:
        read_listing(answer, host="hub")
    assert caught.value.code == "E_NETWORK"
    assert "HF_ENDPOINT" in caught.value.hint


@pytest.mark.parametrize(
    "name",
    [
        "../model.safetensors",
        "/model.safetensors",
        "sub/model.safetensors",
        "a\0.safetensors",
        "a\x1b[2J.pt",
        "a\n.pt",
        "..",
        "",
        None,
        7,
        ["x"],
        "x" * 300 + ".pt",
        "\u00fc" * 200 + ".pt",
        "a\\b.pt",
        "C:x.pt",
        "\u202emodel.pt",
        ".hidden.pt",
    ],
)
def test_a_name_that_is_not_plain_is_passed_over(name: object):
    assert set(listing(entry(name), 5, None, entry("model.safetensors")).files) == {
        "model.safetensors"
    }


@pytest.mark.parametrize("name", ["model (1).pt", "Gewicht-ü.pt", "a+b=c.pt", "x" * 250 + ".pt"])
def test_an_honest_name_is_kept(name: str):
    assert set(listing(entry(name)).files) == {name}


@pytest.mark.parametrize("size", [-1, 1.5, "7", True, 1 << 61, [3]])
def test_a_size_that_is_none_is_refused(size: object):
    with pytest.raises(SourceError, match="E_CORRUPT"):
        listing(entry("model.safetensors", size))
    with pytest.raises(SourceError, match="E_CORRUPT"):
        listing(entry("model.safetensors", lfs={"size": size}))


def test_the_digests_are_taken_when_they_are_digests():
    files = listing(
        entry("a", blobId=COMMIT),
        entry("b", lfs={"sha256": "ab" * 32, "size": 9}),
        entry("c", blobId="../x"),
        entry("d", lfs={"sha256": "../x", "size": 9}),
    ).files
    assert (files["a"].git, files["b"].sha256, files["b"].size) == (COMMIT, "ab" * 32, 9)
    assert (files["c"].git, files["d"].sha256) == ("", "")


def test_more_files_than_any_repository_has():
    with pytest.raises(SourceError, match="E_LIMIT"):
        listing(*[entry(f"{i}.txt") for i in range(MOST_FILES + 1)])


def test_a_listing_of_many_files_is_read():
    assert len(listing(*[entry(f"{i}.txt") for i in range(10_000)]).files) == 10_000


@pytest.mark.parametrize(
    ("status", "headers", "code", "says"),
    [
        (401, {"x-error-code": "RepoNotFound"}, "E_NOT_FOUND", "no such repository"),
        (404, {"x-error-code": "RevisionNotFound"}, "E_NOT_FOUND", "no such revision"),
        (404, {"x-error-code": "EntryNotFound"}, "E_NOT_FOUND", "lists a file"),
        (404, {}, "E_NOT_FOUND", "no such repository"),
        (401, {}, "E_GATED", "asks for a login"),
        (401, {"x-error-code": "GatedRepo"}, "E_GATED", "gated"),
        (403, {"x-error-code": "GatedRepo"}, "E_GATED", "gated"),
        (403, {}, "E_GATED", "does not let you"),
        (403, {"x-error-message": "Access to this resource is disabled."}, "E_GATED", "disabled"),
        (429, {"retry-after": "7"}, "E_NETWORK", "left alone for 7 s"),
        (429, {"retry-after": "9" * 50}, "E_NETWORK", "too many requests"),
        (429, {"retry-after": "\u0663"}, "E_NETWORK", "too many requests"),
        (429, {}, "E_NETWORK", "429"),
        (408, {}, "E_NETWORK", "408"),
        (500, {}, "E_NETWORK", "500"),
        (418, {}, "E_NETWORK", "418"),
    ],
)
def test_a_status_becomes_a_sentence(status: int, headers: dict, code: str, says: str):
    error = refused(status, headers, host="hub", token=False).error
    assert error.code == code
    assert says in error.fact
    assert error.hint


@pytest.mark.parametrize(
    "headers", [{}, {"x-error-message": "Invalid credentials in Authorization header"}]
)
def test_a_refused_token_is_said_to_be_refused(headers: dict):
    error = refused(401, headers, host="hub", token=True).error
    assert error.code == "E_GATED"
    assert "refused the token" in error.fact


def test_the_words_of_a_hub_are_not_repeated():
    for status in (400, 401, 403, 404, 418, 429, 500):
        failure = refused(
            status, {"x-error-message": "EVIL", "x-error-code": "EVIL"}, host="hub", token=True
        )
        assert "EVIL" not in str(failure.error) + failure.unanswered


CHOICES = [
    (["model.safetensors", "pytorch_model.bin", "config.json"], "model.safetensors"),
    (["model.safetensors", "other.safetensors", "last.ckpt"], "model.safetensors"),
    (["pytorch_model.bin", "training_args.bin", "optimizer.pt"], "pytorch_model.bin"),
    (["weights.pt", "extra.pt"], "weights.pt"),
    (["lstm.pth", "scheduler.pt", "README.md"], "lstm.pth"),
    (["lstm.safetensors", "lstm.pth"], "lstm.safetensors"),
    (["Model.PT", "readme.txt"], "Model.PT"),
    (["lstm.npz"], "lstm.npz"),
]


@pytest.mark.parametrize(("names", "expected"), CHOICES)
def test_the_weights_are_those_that_a_folder_of_these_files_would_open(names, expected, tmp_path):
    for name in names:
        (tmp_path / name).touch()
    assert choose_weights(names).weights == expected
    assert choose_weight_file(tmp_path)[0].name == expected


@pytest.mark.parametrize(
    "names",
    [
        ["a.pt", "b.pt"],
        ["model.pt", "model.pth"],
        ["a.safetensors", "b.safetensors", "c.pt"],
        [],
        ["README.md"],
        ["training_args.bin"],
    ],
)
def test_what_a_folder_would_refuse_is_refused_before_it_is_fetched(names, tmp_path):
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(MemauditError) as remote:
        choose_weights(names)
    with pytest.raises(MemauditError) as local:
        choose_weight_file(tmp_path)
    assert remote.value.code == local.value.code


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["model.safetensors.index.json", "pytorch_model.bin"], "model.safetensors.index.json"),
        (["model.safetensors", "model.safetensors.index.json"], "model.safetensors"),
        (["pytorch_model.bin.index.json", "tf_model.h5"], "pytorch_model.bin.index.json"),
    ],
)
def test_safetensors_come_first_and_whole_files_before_shards(names, expected):
    assert choose_weights(names).weights == expected


@pytest.mark.parametrize(
    "index",
    [
        b"",
        b"[]",
        b"{}",
        b'{"weight_map": []}',
        b'{"weight_map": {"a": 5}}',
        b"[" * 10**6,
        b'{"weight_map": {"a": "modeling.py", "b": "config.json"}}',
    ],
)
def test_an_index_that_names_no_weights_asks_for_nothing(index: bytes):
    assert shards_of(index) == ()
