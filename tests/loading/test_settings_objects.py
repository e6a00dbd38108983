"""OmegaConf's and Lightning's settings become plain by default, and only while they are data."""

from __future__ import annotations

import json
import struct

import pytest
import torch

from memaudit.errors import SourceError
from memaudit.loading import torch_file
from memaudit.loading.access import Access
from memaudit.loading.checkpoint import open_checkpoint
from memaudit.loading.pickle_machine import is_blocked
from memaudit.loading.pickle_objects import SETTINGS
from tests.loading import pickle_writing as write

DICT, LIST = "omegaconf.dictconfig.DictConfig", "omegaconf.listconfig.ListConfig"
NODE = "omegaconf.nodes.AnyNode"
ATTRIBUTES = "pytorch_lightning.utilities.parsing.AttributeDict"
WEIGHTS = write.entries(w=write.tensor(write.storage("0", 1), (1,)))


def bare(name: str) -> bytes:
    """An object without anything in it, as pickles make them since protocol 2."""
    return write.named(name) + b")\x81"


def made(name: str, **state: bytes) -> bytes:
    return bare(name) + write.entries(**state) + b"b"


def node(value: bytes) -> bytes:
    metadata = made("omegaconf.base.Metadata", ref_type=write.named("typing.Any"))
    return made(NODE, _metadata=metadata, _parent=b"N", _val=value)


def config(name: str, content: bytes) -> bytes:
    types = {"ref_type": write.named("typing.Any"), "object_type": write.named("builtins.dict")}
    kept = made("omegaconf.base.ContainerMetadata", **types)
    return made(name, _metadata=kept, _parent=b"N", _content=content)


def saved(folder, **beside: bytes):
    value = write.entries(state_dict=WEIGHTS, **beside)
    path = folder / "last.ckpt"
    path.write_bytes(write.zip_file(write.pickled(value), {"0": write.ONE}))
    return path


def refusal(path, access: Access | None = None) -> SourceError:
    with pytest.raises(SourceError) as caught:
        open_checkpoint(path, access or Access())
    return caught.value


def test_omegaconf_becomes_plain_without_being_allowed(tmp_path):
    sizes = config(LIST, write.listed(node(b"K\x08"), node(b"N")))
    inner = config(DICT, write.entries(mode=node(write.text("nplr")), same=node(b"\x88")))
    rate = made("omegaconf.nodes.FloatNode", _val=b"G" + struct.pack(">d", 0.5))
    linked = {"size": node(write.text("${model.d_model}")), "missing": node(write.text("???"))}
    settings = write.entries(layer=inner, sizes=sizes, rate=rate, **linked)
    path = saved(
        tmp_path,
        hyper_parameters=config(DICT, settings),
        hparams_type=write.named(DICT),
    )
    found = open_checkpoint(path)
    assert found.tensors["w"].tolist() == [1.0]
    assert json.loads(found.metadata["hyper_parameters"]) == {
        "layer": {"mode": "nplr", "same": True},
        "sizes": [8, None],
        "rate": 0.5,
        "size": "${model.d_model}",
        "missing": "???",
    }
    (note,) = [n for n in found.notes if n.startswith("settings: ")]
    assert "kinds of objects were made plain" in note
    assert all(f"{name} (" in note for name in (DICT, LIST, NODE))
    assert "typing.Any" in note


@pytest.mark.parametrize("content", [b"N", write.text("${other}"), write.text("???")])
def test_a_container_without_content_says_what_stands_there(tmp_path, content):
    settings = config(DICT, write.entries(pool=config(DICT, content)))
    said = json.loads(open_checkpoint(saved(tmp_path, hp=settings)).metadata["hp"])
    assert said == {"pool": None if content == b"N" else content[5:].decode()}


def test_the_dictionary_of_lightning_becomes_plain(tmp_path):
    filled = bare(ATTRIBUTES) + b"(" + write.text("hidden") + b"K\x03u"
    keys = write.named("pytorch_lightning.callbacks.model_checkpoint.ModelCheckpoint")
    callbacks = b"}(" + keys + write.entries(best=b"K\x01") + b"u"
    found = open_checkpoint(saved(tmp_path, hyper_parameters=filled, callbacks=callbacks))
    assert json.loads(found.metadata["hyper_parameters"]) == {"hidden": 3}


def test_a_process_of_its_own_reads_the_settings(tmp_path, monkeypatch):
    asked = []
    read = torch_file.describe_in_child

    def counting(pickles, access):
        asked.append(len(pickles))
        return read(pickles, access)

    monkeypatch.setattr(torch_file, "describe_in_child", counting)
    open_checkpoint(saved(tmp_path))
    assert asked == []
    open_checkpoint(saved(tmp_path, hp=config(DICT, write.entries(a=node(b"K\x01")))))
    assert asked == [1]


#: What is put beside the weights, and the name that the refusal must have.
ODD = {
    "a container that is called with content": (write.call(DICT, write.entries(a=b"K\x01")), DICT),
    "a container that is called with a class": (write.call(DICT, write.named("my.Net")), "my.Net"),
    "a container without a state": (bare(DICT), DICT),
    "a container with a list as its state": (bare(DICT) + b"]b", DICT),
    "a container with numbers for names": (bare(DICT) + b"}(K\x01K\x02ub", DICT),
    "a container that is filled as a list": (made(DICT) + b"(K\x01e", DICT),
    "a container that is filled as a dictionary": (made(DICT) + b"(K\x01K\x02u", DICT),
    "a container with keywords": (write.named(DICT) + b")}\x92", DICT),
    "a container that is called itself": (made(DICT) + b")R", DICT),
    "metadata that is called": (write.call("omegaconf.base.Metadata", b"K\x01"), "Metadata"),
    "a type that is called": (write.call("typing.Any", b"K\x01"), "typing.Any"),
    "a type that is made": (made("typing.Any"), "typing.Any"),
    "a callback that is made": (
        made("pytorch_lightning.callbacks.model_checkpoint.ModelCheckpoint"),
        "ModelCheckpoint",
    ),
    "a dictionary that is called": (write.call(ATTRIBUTES, write.entries(a=b"N")), "AttributeDict"),
    "a dictionary with a state": (made(ATTRIBUTES, a=b"N"), "AttributeDict"),
    "a function of omegaconf": (write.named("omegaconf.omegaconf.OmegaConf"), "OmegaConf"),
    "a method of a container": (write.named(f"{DICT}.merge_with"), "merge_with"),
    "a resolver": (
        write.call("omegaconf.omegaconf.register_default_resolvers"),
        "register_default_resolvers",
    ),
    "a name in omegaconf that nobody knows": (write.named("omegaconf.nodes.EvilNode"), "EvilNode"),
    "another dictionary with attributes": (bare("my.AttributeDict"), "my.AttributeDict"),
    "settings of somebody's own class": (
        config(DICT, write.entries(a=node(write.named("my.Settings")))),
        "my.Settings",
    ),
}


@pytest.mark.parametrize("what", ODD)
def test_what_is_not_data_stays_refused(tmp_path, what):
    value, name = ODD[what]
    error = refusal(saved(tmp_path, good=config(DICT, write.entries(a=node(b"N"))), odd=value))
    assert error.code == "E_UNSAFE_FORMAT"
    assert name in error.fact
    assert "--allow-pickle" in error.hint


@pytest.mark.parametrize("what", ODD)
def test_what_was_made_and_thrown_away_counts_as_well(tmp_path, what):
    value, _ = ODD[what]
    assert refusal(saved(tmp_path, odd=value + b"0N")).code == "E_UNSAFE_FORMAT"


@pytest.mark.parametrize("gadget", ["os.system", "builtins.eval", f"{DICT}.__init__"])
@pytest.mark.parametrize("access", [Access(), Access(allow_pickle=True)], ids=["safe", "inert"])
def test_a_gadget_inside_settings_stays_refused(tmp_path, gadget, access):
    evil = write.call(gadget, write.text("touch canary"))
    error = refusal(saved(tmp_path, hp=config(DICT, write.entries(a=node(evil)))), access)
    assert error.code == "E_UNSAFE_FORMAT"
    assert "would run" in error.fact


def test_no_name_of_a_setting_is_one_that_code_needs():
    assert not any(map(is_blocked, SETTINGS))
    assert all(name.isascii() and "*" not in name for name in SETTINGS)


def test_other_objects_still_have_to_be_allowed(tmp_path):
    path = saved(tmp_path, hp=write.call("argparse.Namespace"), place=write.call("pathlib.Path"))
    assert "argparse.Namespace, pathlib.Path" in refusal(path).fact


@pytest.mark.shared
def test_the_omegaconf_reference_opens_with_the_settings_beside_it(shared):
    folder = shared / "fixtures/s4_v4_lightning/nplr_omegaconf"
    found = open_checkpoint(folder / "last.ckpt")
    stated = json.loads((folder / "meta.json").read_text())["config"]
    assert json.loads(found.metadata["hyper_parameters"]) == stated
    assert all(isinstance(tensor, torch.Tensor) for tensor in found.tensors.values())
