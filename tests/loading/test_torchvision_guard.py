"""torchvision without its operators neither stops timm nor hides that it is incomplete."""

import subprocess
import sys

import pytest


def run(code, *, path=None):
    script = f"import sys; sys.path[:0] = {[str(path)] if path else []!r}\n{code}"
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr


CALL = """
from memaudit.loading.torchvision_guard import guard_torchvision, torchvision_state
print(torchvision_state().replace(" ", "-"), guard_torchvision(), guard_torchvision(),
      torchvision_state())
"""


def fake(folder, body):
    package = folder / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text(body)
    (package / "half.py").write_text("")
    return folder


def test_a_whole_torchvision_is_native(tmp_path):
    out, err = run(CALL, path=fake(tmp_path, "import torchvision.half"))
    assert out == ["not-loaded", "native", "native", "native"]
    assert "UserWarning" not in err


def test_missing_operators_are_declared_and_said_once(tmp_path):
    body = (
        "import torch, torchvision.half\n"
        "if not hasattr(torch.ops.torchvision, 'nms'):\n"
        "    raise RuntimeError('operator torchvision::nms does not exist')\n"
        "@torch.library.register_fake('torchvision::nms')\n"
        "def shape(dets, scores, iou_threshold):\n"
        "    return dets.new_empty(0)\n"
    )
    out, err = run(CALL, path=fake(tmp_path, body))
    assert out == ["not-loaded", "schema-only", "schema-only", "schema-only"]
    assert err.count("compiled operators of torchvision are unavailable") == 1


def test_without_torchvision_the_answer_is_absent():
    out, _ = run("import sys\nsys.modules['torchvision'] = None\n" + CALL.partition("print")[0]
                 + "print(guard_torchvision(), torchvision_state())")  # fmt: skip
    assert out == ["absent", "absent"]


@pytest.mark.parametrize("error", ["RuntimeError('other')", "ImportError('libx.so')"])
def test_another_failure_is_an_error_with_a_next_step(tmp_path, error):
    code = (
        "from memaudit.errors import MachineError\n"
        "from memaudit.loading.torchvision_guard import guard_torchvision\n"
        "try:\n    guard_torchvision()\n"
        "except MachineError as error:\n    print(error.code)\n"
    )
    out, _ = run(code, path=fake(tmp_path, f"raise {error}"))
    assert out == ["E_PLUGIN"]


def test_a_warning_made_an_error_does_not_change_the_answer(tmp_path):
    body = (
        "import torch\n"
        "if not hasattr(torch.ops.torchvision, 'nms'):\n"
        "    raise RuntimeError('operator torchvision::nms does not exist')\n"
    )
    code = (
        "import warnings\nwarnings.simplefilter('error', UserWarning)\n"
        "from memaudit.loading.torchvision_guard import guard_torchvision\n"
        "try:\n    guard_torchvision()\nexcept UserWarning:\n    print(guard_torchvision())\n"
    )
    out, _ = run(code, path=fake(tmp_path, body))
    assert out == ["schema-only"]


def test_parsing_a_source_does_not_load_torch():
    out, _ = run(
        "import sys, memaudit.loading, memaudit.loading.source\nprint('torch' in sys.modules)"
    )
    assert out == ["False"]
