"""Nothing but memaudit/loading opens a checkpoint: the sources are read for calls that would."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
#: Calls that read weights or run what is in a file, as they are written in code.
READERS = {
    "torch": {"load", "jit.load", "hub.load", "export.load", "package.PackageImporter"},
    "np": {"load", "fromfile", "memmap", "loadtxt", "genfromtxt"},
    "numpy": {"load", "fromfile", "memmap", "loadtxt", "genfromtxt"},
    "pickle": {"load", "loads", "Unpickler"},
    "safetensors": {"safe_open", "deserialize", "torch.load", "torch.load_file"},
    "zipfile": {"ZipFile"},
    "os": {"open", "fdopen"},
    "io": {"open", "FileIO"},
    "mmap": {"mmap"},
    "shutil": {"unpack_archive"},
    "tarfile": {"open"},
}
#: Names that mean the same when they were imported by themselves, and methods of any object.
NAMES = {"open", "safe_open", "load_file", "Unpickler", "ZipFile", "hf_hub_download"}
METHODS = {
    *("from_pretrained", "load_state_dict_from_url", "snapshot_download", "hf_hub_download"),
    *("read_bytes", "read_text", "open", "load_pretrained"),
}
#: file → what it may call, and why.
ALLOWED = {
    "memaudit/report_files.py": {"read_text", "os.fdopen", "os.open"},  # reports, not checkpoints
    "memaudit/texts.py": {"text.open"},  # a text for queries in token space
    "memaudit/writers/html.py": {"read_text"},  # style and scripts of the page
    "memaudit/writers/card.py": {"read_bytes"},  # the README beside a model
    "memaudit/data/__init__.py": {"read_text"},  # the text in the package
    "plugins/memaudit_transformers/building.py": {"from_pretrained"},  # no path: tensors are given
    "plugins/memaudit_transformers/tokenizer.py": {"from_pretrained"},  # local files, looked at
    "memaudit/cli/inventory.py": {"read_text"},  # the summary in a plugin's source
    "memaudit/cli/signals.py": {"os.fdopen"},  # a pipe that signals are written to
    "memaudit/cli/output.py": {"os.open", "os.fdopen"},  # the null device behind closed streams
}


def calls(path: Path) -> list[tuple[int, str]]:
    """Every call in a file that opens something, with its line."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        owner, _, rest = name.partition(".")
        last = name.rpartition(".")[2]
        if rest in READERS.get(owner, ()) or name in NAMES or ("." in name and last in METHODS):
            found.append((node.lineno, name))
    return found


def sources() -> list[Path]:
    rooms = [*(ROOT / "memaudit").rglob("*.py"), *(ROOT / "plugins").rglob("*.py")]
    return sorted(p for p in rooms if ROOT / "memaudit" / "loading" not in p.parents)


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_only_the_loading_room_opens_files(path: Path) -> None:
    name = path.relative_to(ROOT).as_posix()
    allowed = ALLOWED.get(name, set())
    strange = [
        f"line {line}: {call}"
        for line, call in calls(path)
        if call not in allowed and call.rpartition(".")[2] not in allowed
    ]
    assert strange == []


def test_the_allowance_names_files_that_are_there_and_need_it() -> None:
    for name, allowed in ALLOWED.items():
        used = {call for _, call in calls(ROOT / name)}
        assert used & allowed or {c.rpartition(".")[2] for c in used} & allowed


@pytest.mark.parametrize(
    "line",
    [
        "torch.load(path)",
        "np.load(path)",
        "AutoModel.from_pretrained(name)",
        "open(path, 'rb')",
        "Path(path).open()",
        "Path(path).read_bytes()",
        "safe_open(path, 'pt')",
        "safetensors.torch.load_file(path)",
        "pickle.loads(data)",
        "os.open(path, 0)",
        "timm.create_model(name).load_pretrained(path)",
    ],
)
def test_a_bare_call_would_be_found(line: str, tmp_path: Path) -> None:
    file = tmp_path / "plugin.py"
    file.write_text(f"def f():\n    return {line}\n")
    assert [number for number, _ in calls(file)] == [2]


def test_not_even_the_loading_room_unpickles() -> None:
    """Pickles are read by instructions of our own: nothing in them is imported or called."""
    unpicklers = {"torch.load", "pickle.load", "pickle.loads", "pickle.Unpickler", "Unpickler"}
    unpicklers |= {"np.load", "numpy.load", "importlib.import_module", "__import__", "eval", "exec"}
    guard = ROOT / "memaudit" / "loading" / "torchvision_guard.py"  # imports torchvision by name
    for path in sorted((ROOT / "memaudit" / "loading").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and path != guard:
                assert ast.unparse(node.func) not in unpicklers, path


def test_nothing_switches_the_safe_defaults_off() -> None:
    """No file of the package calls with weights_only=False, allow_pickle=True or trusts code."""
    for path in [*(ROOT / "memaudit").rglob("*.py"), *(ROOT / "plugins").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                given = {k.arg: ast.unparse(k.value) for k in node.keywords}
                assert given.get("weights_only") != "False", path
                assert given.get("allow_pickle") != "True", path
                assert given.get("trust_remote_code") != "True", path
