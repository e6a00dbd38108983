"""The names in a pickle: which belong to tensors, and which nobody but an attacker writes."""

from __future__ import annotations

import re
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING

#: Names that belong to tensors and plain containers: what torch.save writes for a state dict.
_PLAIN = re.compile(
    r"collections\.(OrderedDict|defaultdict|Counter)"
    r"|builtins\.(dict|list|tuple|set|frozenset|int|float|str|bool|bytes|bytearray|complex)"
    r"|_codecs\.encode"
    r"|torch\._utils\._rebuild_(tensor|tensor_v2|tensor_v3|parameter|parameter_with_state"
    r"|device_tensor_from_cpu_tensor|sparse_tensor|sparse_csr_tensor|qtensor|nested_tensor"
    r"|meta_tensor_no_storage)"
    r"|torch\._tensor\._rebuild_from_type_v2|torch\.serialization\._get_layout"
    r"|torch\.nn\.parameter\.(Parameter|Buffer)|torch\.(Tensor|Size|device)"
    r"|torch\.(cuda\.|storage\.)?\w*Storage"
    r"|torch\.(float|bfloat|int|uint|qint|quint|complex|bool|per_)\w*"
)

#: Modules that start programs, load code, reach the network or write files. Nothing in a pickle is
#: ever called here, so the list protects nobody; it tells code from an innocent object.
_MODULES = re.compile(
    r"(os|posix|nt|subprocess|_posixsubprocess|popen2|pty|sys|importlib|_imp|imp|pkgutil|runpy"
    r"|zipimport|codeop|bdb|pdb|cProfile|doctest|pydoc|socket|_socket|socketserver|ssl|http|urllib"
    r"|urllib2|httplib|ftplib|smtplib|telnetlib|poplib|imaplib|xmlrpc|webbrowser|requests|httpx"
    r"|aiohttp|paramiko|asyncio|multiprocessing|concurrent|threading|_thread|_winapi|winreg|msvcrt"
    r"|shutil|tempfile|fileinput|linecache|ctypes|_ctypes|cffi|pickle|_pickle|cPickle|dill"
    r"|cloudpickle|marshal|shelve|sqlite3|pip|ensurepip|setuptools|distutils|venv|gc|idlelib)\..*",
    re.DOTALL,
)
#: Single names out of modules that are harmless otherwise, or that share their name with
#: people's own: `code.model.Net` is a network.
_NAMES = re.compile(
    r"builtins\.(eval|exec|execfile|compile|open|file|__import__|reload|apply|input|raw_input"
    r"|breakpoint|globals|locals|vars|setattr|delattr|exit|quit|help)"
    r"|_?io\.(open|open_code|FileIO)|codecs\.open"
    r"|code\.(interact|InteractiveInterpreter|InteractiveConsole|compile_command)(\..*)?"
    r"|profile\.(run|runctx|Profile)(\..*)?|trace\.Trace(\..*)?"
    r"|timeit\.(timeit|repeat|main|Timer)(\..*)?"
    r"|signal\.(signal|alarm|setitimer|raise_signal|pthread_kill)"
    r"|operator\.(attrgetter|methodcaller|call)|functools\.reduce"
    r"|types\.(FunctionType|LambdaType|CodeType|MethodType|ModuleType)"
    r"|copyreg\.(add_extension|pickle|constructor)"
    r"|numpy\.(load|save|fromfile)|numpy\.(f2py|testing|distutils)\..*"
    r"|numpy\.lib\.(npyio|_npyio_impl|_datasource)\..*|pandas\.(read_\w+|eval)|pandas\.io\..*"
    r"|joblib\.load|joblib\.(numpy_pickle|externals)\..*"
    r"|torch\.(load|save)|torch\.(hub|jit|package|fx|multiprocessing|_inductor)\..*"
    r"|torch\.(ops|classes)\.load_library|torch\.serialization\.(load|save|_load|_legacy_load)"
    r"|torch\.utils\.(cpp_extension|model_zoo|bottleneck|collect_env)\..*"
    r"|torch\.distributed\.(rpc|run|launch|elastic)\..*",
    re.DOTALL,
)
#: Modules that other modules import: `torch.serialization.os.system` is os.system.
_REACHED = re.compile(
    r"os|posix|nt|sys|subprocess|builtins|importlib|shutil|ctypes|pickle|socket|runpy|__.*",
    re.DOTALL,
)


def canonical(module: str, name: str) -> str:
    """The dotted name of a class or function, where Python 3 has it."""
    if (module, name) in NAME_MAPPING:
        module, name = NAME_MAPPING[module, name]
    else:
        module = IMPORT_MAPPING.get(module, module)
    return f"{module}.{name}"


def is_plain(name: str) -> bool:
    """Whether a name belongs to tensors and plain containers."""
    return _PLAIN.fullmatch(name) is not None


def is_blocked(name: str) -> bool:
    """Whether only a pickle with code names this: something that runs, imports, sends or writes."""
    if _MODULES.fullmatch(name) or _NAMES.fullmatch(name):
        return True
    # `torch.serialization.os.system`, `builtins.dict.__class__`: ways round the names above.
    first, *between, last = name.split(".")
    hidden = any(_REACHED.fullmatch(part) for part in between)
    return hidden or (first != "copyreg" and last.startswith("__"))


def shown(name: str) -> str:
    """A name as people know it: `posix.system` is os.system."""
    first, _, rest = name.partition(".")
    return f"os.{rest}" if first in ("posix", "nt") else name
