"""With allow_pickle foreign objects become inert; what would run code stays refused."""

import argparse
import copy
import datetime
import io
import json
import random

import pytest
import torch

from memaudit.errors import MemauditError, SourceError
from memaudit.loading.access import Access, Limits
from memaudit.loading.pickle_child import describe
from memaudit.loading.pickle_machine import is_blocked, is_plain
from memaudit.loading.torch_file import read_torch, rebuild, torch_parts
from tests.loading import pickle_writing as write

INERT = Access(allow_pickle=True)


def checkpoint(**content):
    buffer = io.BytesIO()
    torch.save({"state_dict": {"w": torch.ones(2)}, **content}, buffer)
    return buffer.getvalue()


def refusal(data, access=INERT):
    with pytest.raises(MemauditError) as caught:
        read_torch(data, access=access)
    return caught.value


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "posix.system",
        "subprocess.Popen",
        "builtins.eval",
        "builtins.__import__",
        "importlib.import_module",
        "runpy.run_path",
        "torch.hub.load",
        "torch.load",
        "torch.serialization.os.system",
        "builtins.dict.__class__",
        "numpy.f2py.crackfortran.myeval",
        "numpy.testing._private.utils.runstring",
        "types.CodeType",
        "operator.methodcaller",
        "code.InteractiveInterpreter.runcode",
        "webbrowser.open",
        "cloudpickle.cloudpickle._make_function",
    ],
)
def test_what_runs_code_is_blocked(name):
    assert is_blocked(name)
    assert not is_plain(name)


@pytest.mark.parametrize(
    "name",
    [
        "argparse.Namespace",
        "pathlib._local.PosixPath",
        "omegaconf.dictconfig.DictConfig",
        "functools.partial",
        "builtins.getattr",
        "copyreg._reconstructor",
        "copyreg.__newobj__",
        "torch.optim.adam.Adam",
        "torch._C._nn.gelu",
        "numpy._core.multiarray._reconstruct",
        "code.model.Net",
        "__main__.Net",
        "project.io.Reader",
        "lightning.pytorch.callbacks.model_checkpoint.ModelCheckpoint",
        "typing.Any",
    ],
)
def test_what_honest_checkpoints_name_is_not_blocked(name):
    assert not is_blocked(name)


def test_python_two_names_do_not_hide_what_they_are():
    for module, name in (("__builtin__", "eval"), ("commands", "getoutput"), ("os", "popen2")):
        value = write.entries(x=f"c{module}\n{name}\n".encode())
        error = refusal(write.zip_file(write.pickled(value)))
        assert error.code == "E_UNSAFE_FORMAT"
        assert "would run" in error.fact


def test_getattr_may_name_a_member_and_nothing_else():
    def file(*arguments):
        weights = write.entries(w=write.tensor(write.storage("0", 1), (1,)))
        value = write.entries(sd=weights, x=write.call("builtins.getattr", *arguments))
        return write.zip_file(write.pickled(value), {"0": write.ONE})

    content, notes = read_torch(file(write.named("my.Colour"), write.text("RED")), access=INERT)
    assert list(content) == ["sd"]
    assert "builtins.getattr (1)" in notes[0]
    for attribute in ("__class__", "_private", "a.b"):
        error = refusal(file(write.named("my.Colour"), write.text(attribute)))
        assert "would run builtins.getattr" in error.fact
    error = refusal(file(write.call("my.thing"), write.text("RED")))
    assert "would run builtins.getattr" in error.fact


def test_the_pickle_of_a_whole_module_is_refused_wherever_it_stands():
    for content in (torch.nn.GRU(2, 3), {"model": torch.nn.GRU(2, 3), "epoch": 3}):
        buffer = io.BytesIO()
        torch.save(content, buffer)
        for access in (Access(), INERT):
            error = refusal(buffer.getvalue(), access)
            assert error.code == "E_UNSAFE_FORMAT"
            assert "whole pickled module" in error.fact
            assert "safetensors" in error.hint


def test_a_module_beside_the_weights_is_left_out():
    data = checkpoint(hyper_parameters={"net": torch.nn.Linear(2, 2), "n": 3})
    assert "--allow-pickle" in refusal(data, Access()).hint
    content, notes = read_torch(data, access=INERT)
    assert content["hyper_parameters"] == {"n": 3}
    assert "torch.nn.modules.linear.Linear (1)" in notes[0]


def test_an_object_instead_of_a_dictionary_is_called_so():
    buffer = io.BytesIO()
    torch.save(datetime.date(2020, 1, 1), buffer)
    error = refusal(buffer.getvalue())
    assert error.code == "E_UNSUPPORTED"
    assert "datetime.date" in error.fact


def described():
    parts = torch_parts(checkpoint(n=argparse.Namespace(a=[1, {"b": None}])), Limits())
    return parts, describe(parts.pickles, inert=True, max_tensors=100)


def test_a_description_survives_its_way_through_json():
    parts, told = described()
    content = rebuild(json.loads(json.dumps(told)), parts, max_tensors=100)
    assert content["n"] == {"a": [1, {"b": None}]}
    assert content["state_dict"]["w"].tolist() == [1.0, 1.0]


def test_whatever_the_child_says_only_an_error_comes_out():
    parts, told = described()
    rng = random.Random(0)
    odd = [None, True, -1, 2**70, 1.5, "0", "float32", "nonsense", [], {}, ["t", 9], ["d", [[]]]]

    def spoil(node):
        """Replace one part at a random depth."""
        places = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not places:
            return
        place = rng.choice(places)
        if isinstance(node[place], list | dict) and rng.random() < 0.8:
            spoil(node[place])
        elif isinstance(node, dict) and rng.random() < 0.3:
            del node[place]
        else:
            node[place] = copy.deepcopy(rng.choice(odd))

    codes = []
    for _ in range(2000):
        lie = json.loads(json.dumps(told))
        for _ in range(rng.choice([1, 1, 3])):
            spoil(lie)
        try:
            rebuild(lie, parts, max_tensors=100)
        except SourceError as error:
            codes.append(error.code)
    assert len(codes) > 500
    assert set(codes) == {"E_CORRUPT"}
