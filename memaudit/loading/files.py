"""Files and folders on disk: what may be opened, and whether it changed meanwhile."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import unicodedata
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memaudit.errors import MachineError, MemauditError, SourceError, clean, listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from memaudit.loading.access import Access

# -- A regular file, opened without waiting and read by position.

NOT_FOUND_HINT = "check the path; for the hub write org/name, for timm write timm:NAME"
_FLAGS = os.O_RDONLY | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class RegularFile:
    """An open file, and what it was like when it was opened."""

    path: Path
    handle: int
    stat: os.stat_result

    @property
    def size(self) -> int:
        """Its length in bytes."""
        return self.stat.st_size

    @property
    def marks(self) -> tuple[int, ...]:
        """Size, times, inode and device: what differs when somebody wrote to it."""
        return _marks(self.stat)

    def read(self, offset: int, length: int) -> bytes:
        """Exactly so many bytes from a position; a file that ends before that was changed."""
        found = bytearray()
        try:
            while len(found) < length:  # the system hands out at most 2 GB at once
                more = os.pread(self.handle, length - len(found), offset + len(found))
                if not more:
                    raise changed_while_read()
                found += more
        except OSError as error:
            raise reading_failed(error) from None
        except MemoryError:
            raise out_of_memory() from None
        return bytes(found)

    def require_unchanged(self) -> None:
        """Raise E_CHANGED when somebody wrote to the file since it was opened."""
        if _marks(os.fstat(self.handle)) != self.marks:
            raise changed_while_read()


def kind_of(path: Path) -> str:
    """`file` or `folder`; everything else that a path may lead to is refused."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise reading_failed(error) from None
    if stat.S_ISDIR(mode):
        return "folder"
    _require_regular(mode, "this")
    return "file"


@contextmanager
def open_regular(path: Path, *, real: Path | None = None) -> Iterator[RegularFile]:
    """Open a regular file for reading; `real` is where its links lead, if that is known.

    A FIFO that took its place must not hang the audit, so nothing here waits; what was opened is
    judged, not what had that name before.
    """
    try:
        handle = os.open(path, _FLAGS) if real is None else os.open(real, _FLAGS | os.O_NOFOLLOW)
    except (OSError, ValueError) as error:
        raise reading_failed(error) from None
    try:
        found = os.fstat(handle)
        _require_regular(found.st_mode, path.name)
        yield RegularFile(path, handle, found)
    finally:
        os.close(handle)


def read_regular(path: Path, *, most: int | None = None) -> bytes:
    """Every byte of a small regular file; E_LIMIT when it has more than `most`."""
    with open_regular(path) as file:
        return read_whole(file, most=most)


def read_whole(file: RegularFile, *, most: int | None = None) -> bytes:
    """Every byte of a small file that is open; E_LIMIT when it has more than `most`."""
    if most is not None and file.size > most:
        raise SourceError(
            "E_LIMIT",
            f"{clean(file.path.name)} has {file.size} bytes, more than {most}",
            hint="a real one is far smaller; look into it",
            stage="open",
        )
    found = file.read(0, file.size)
    file.require_unchanged()
    return found


def _require_regular(mode: int, name: str) -> None:
    """Refuse FIFOs, sockets, devices and folders by their kind."""
    if stat.S_ISREG(mode):
        return
    kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a folder"}
    raise SourceError(
        "E_PATH",
        f"{clean(name)} is {kinds.get(stat.S_IFMT(mode), 'a device')}, not a regular file",
        hint="give the checkpoint itself: a file, or the folder that holds it",
        stage="open",
    )


def reading_failed(error: OSError | ValueError) -> MemauditError:
    """The error in our words."""
    if isinstance(error, ValueError):
        return SourceError(
            "E_PATH", "the path holds a NUL byte", hint="check the path", stage="open"
        )
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return SourceError(
            "E_NOT_FOUND", "no such file or folder", hint=NOT_FOUND_HINT, stage="open"
        )
    if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
        return SourceError(
            "E_PATH", f"the path leads nowhere: {error.strerror}", hint="check it", stage="open"
        )
    if error.errno in (errno.ENXIO, errno.ENODEV):  # a socket, or a device without a driver
        hint = "give the checkpoint itself: a file, or the folder that holds it"
        return SourceError("E_PATH", "this is not a regular file", hint=hint, stage="open")
    if isinstance(error, PermissionError):
        return MachineError(
            "E_DISK",
            "reading is not permitted",
            hint="make the file readable, e.g. with chmod u+r",
            stage="open",
        )
    return MachineError(
        "E_DISK",
        f"reading failed: {error.strerror or type(error).__name__}",
        hint="check the path and the disk",
        stage="open",
    )


def changed_while_read() -> SourceError:
    """E_CHANGED, for bytes that were not those of one moment."""
    return SourceError(
        "E_CHANGED",
        "the file changed while it was read",
        hint="wait until whoever writes it is done, and open it again",
        stage="open",
    )


def out_of_memory() -> MachineError:
    """E_MEMORY, for a file that was not known to be too large."""
    return MachineError(
        "E_MEMORY",
        "the file does not fit into memory",
        hint="use a machine with more memory",
        stage="open",
    )


def _marks(found: os.stat_result) -> tuple[int, ...]:
    return (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev)


# -- Files that a folder offers must lie in that folder, whatever links lead to them.

LONGEST_NAME = 255
_DRIVE = re.compile(r"[A-Za-z]:")
#: Control characters, invisible formatting (bidi overrides), and bytes that are no text.
_UNPRINTABLE = ("Cc", "Cf", "Cs")
#: Marks the folder where the hub's client puts what several repositories share.
_SHARED_MARKER = ".huggingface-shared-blobs"
_OWN_HINT = "give the file itself instead of the folder, or put a copy in its place"


@contextmanager
def open_within(folder: Path, name: str, *, below: str = "") -> Iterator[RegularFile]:
    """Open a regular file of a folder by its plain name; `below` names a folder in between.

    Raises E_PATH when the name is no plain name, when a symbolic or hard link leads out of the
    folder, or when this is no regular file; E_NOT_FOUND when nothing is there. The links by which
    the hub's client stores a repository's files are followed.
    """
    path = (folder / plain_name(below) if below else folder) / plain_name(name)
    try:
        root, real = folder.resolve(strict=True), path.resolve(strict=True)
    except FileNotFoundError:
        fact = "is a link to a file that is not there" if path.is_symlink() else "is not there"
        raise SourceError(
            "E_NOT_FOUND",
            f"{clean(path.name)} {fact}",
            hint="if it was downloaded, the download is not complete: fetch it again",
            stage="open",
        ) from None
    except RuntimeError:  # links that lead in a circle
        raise reading_failed(OSError(errno.ELOOP, os.strerror(errno.ELOOP))) from None
    except (OSError, ValueError) as error:
        raise reading_failed(error) from None
    blobs = _blobs(root)
    if not any(real.is_relative_to(place) for place in (root, *blobs)):
        raise _outside(path.name, "leads outside the folder")
    with open_regular(path, real=real) as file:
        if file.stat.st_nlink > 1 and not blobs:
            raise _outside(path.name, "has a second hard link, which may lie outside the folder")
        yield file


def plain_name(name: str) -> str:
    """The name, unless it could mean anything but one entry of a folder, on any system."""
    odd = [c for c in name if unicodedata.category(c) in _UNPRINTABLE]
    bad = odd or "/" in name or "\\" in name or _DRIVE.match(name) or name in ("", ".", "..")
    if bad or len(os.fsencode(name)) > LONGEST_NAME:
        raise SourceError(
            "E_PATH",
            f"{clean(name, limit=120)!r} is not the plain name of a file in the folder",
            hint="files must lie in the folder itself; give the weight file by its path",
            stage="open",
        )
    return name


def _blobs(root: Path) -> tuple[Path, ...]:
    """Where the hub's client stores the contents of …/models--org--name/snapshots/REVISION."""
    for place in (root, *root.parents):
        repository = place.parent.parent
        if place.parent.name == "snapshots" and repository.name.startswith("models--"):
            shared = repository.parent / "blobs"
            own = (repository / "blobs",)
            return (*own, shared) if (shared / _SHARED_MARKER).is_file() else own
    return ()


def _outside(name: str, fact: str) -> SourceError:
    return SourceError("E_PATH", f"{clean(name)} {fact}", hint=_OWN_HINT, stage="open")


# -- Small files beside the weights of a folder, such as a tokenizer: read whole, or not at all.


def read_beside(folder: Path, name: str, *, most: int) -> bytes | None:
    """The bytes of a file that lies in the folder itself; None when it is not there.

    Links that lead out of the folder are refused (E_PATH), files of more than `most` bytes too.
    """
    if not os.path.lexists(folder / name):
        return None
    with open_within(folder, name) as file:
        return read_whole(file, most=most)


def require_beside(folder: Path, names: Iterable[str], *, most: int) -> tuple[str, ...]:
    """Which of the files are there; each must lie in the folder itself and be small enough."""
    found = tuple(name for name in names if os.path.lexists(folder / name))
    for name in found:
        with open_within(folder, name) as file:
            if file.size > most:
                fact = f"{clean(name)} has {file.size} bytes, more than {most}"
                raise SourceError("E_LIMIT", fact, hint="look into it", stage="open")
    return found


# -- The SHA-256 of a file, read in pieces: what is mapped into memory is not read for this.

_CHUNK = 1 << 22
#: Progress is reported after every so many bytes, and for smaller sources not at all.
_REPORT_EVERY = 1 << 26


class Meter:
    """Reports how much of a source has been read."""

    def __init__(self, access: Access, total: int) -> None:
        self._access, self._total = access, total
        self._done = self._reported = 0

    def add(self, length: int) -> None:
        """So many bytes more."""
        self._done = min(self._done + length, self._total)
        last = self._done == self._total and self._reported > 0
        if self._done - self._reported >= _REPORT_EVERY or last:
            self._reported = self._done
            self._access.advance("reading", self._done, self._total)


def digest(file: RegularFile, meter: Meter | None = None) -> str:
    """The SHA-256 of all its bytes, which nobody wrote to meanwhile."""
    total = hashlib.sha256()
    for start in range(0, file.size, _CHUNK):
        length = min(_CHUNK, file.size - start)
        total.update(file.read(start, length))
        if meter is not None:
            meter.add(length)
    file.require_unchanged()
    return total.hexdigest()


# -- What a file was when it was read, to be compared with what it is after the audit.

#: Larger files are not read a second time when the system says that nobody touched them.
LARGEST_READ_AGAIN = 2 << 30


@dataclass(frozen=True, slots=True)
class Stamp:
    """A file, the marks that the system keeps of it, and the SHA-256 of its bytes; "" if unread."""

    path: Path
    marks: tuple[int, ...]
    sha256: str

    @classmethod
    def of(cls, file: RegularFile, sha256: str) -> Stamp:
        """The stamp of a file that was read from end to end."""
        return cls(file.path, file.marks, sha256)

    def change(self) -> MemauditError | None:
        """E_CHANGED when the bytes are no longer those that were read; a new date is no change."""
        try:
            with open_regular(self.path) as file:
                unread = not self.sha256 or file.size > LARGEST_READ_AGAIN
                if file.marks == self.marks and unread:
                    return None
                if file.size == self.marks[0] and digest(file) == self.sha256:
                    return None
            verb = "changed"
        except MachineError as error:
            return error.at(self.path)
        except SourceError as error:
            verb = "removed" if error.code == "E_NOT_FOUND" else "changed"
        return SourceError(
            "E_CHANGED",
            f"{clean(self.path.name)} was {verb} during the audit; "
            f"the report is about the bytes with sha256 {self.sha256}",
            hint="audit a copy that nobody writes to",
            source=self.path,
            stage="after",
        )


# -- Which file of a folder holds the model's weights, or the index of its shards.

SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".npz", ".msgpack")
#: Opened when nothing else is there: flax models are often saved beside the same in torch.
_LAST = ".msgpack"
#: The formats that are split into shards, safest first.
SPLIT = (".safetensors", ".bin")
INDEX = ".index.json"
SHARD = re.compile(r"-\d{5}-of-\d{5}$")
#: A folder of this name takes the model's place: it is refused, nothing else is opened instead.
_THE_MODEL = "model.safetensors"
#: File names (without suffix) that mean "the model", in groups; an earlier group wins.
_MODEL_STEMS = (
    frozenset({"model", "pytorch_model"}),
    frozenset({"checkpoint", "ckpt", "last", "params", "state_dict", "weights"}),
)
_BESIDE_THE_MODEL = re.compile(
    r"optim|sched|scaler|rng_state|training_args|(^|_)opt(_|$)|^adapter_|^sampler(_\d+)?\."
    r"|^retrofit\.safetensors$"
)
#: Where a Trainer of transformers saves the model, by the step.
_STEP = re.compile(r"checkpoint-([0-9]{1,12})")
#: What Orbax writes into every checkpoint.
_ORBAX = ("_METADATA", "_CHECKPOINT_METADATA", "manifest.ocdbt")
_EXPORT = "save the weights as model.safetensors"
#: Files of other libraries lay recurrent weights out in other ways than torch.
_AS_ARRAYS = "write the arrays of its layers by numpy.savez(FILE.npz) under torch's names"
KERAS_HINT = (
    f"such files can carry code and are not opened; load it in Keras and {_AS_ARRAYS}: "
    "weight_ih_l0 = kernel.T, weight_hh_l0 = recurrent_kernel.T, bias_ih_l0 = bias, bias_hh_l0 = "
    "zeros. An LSTM has torch's order of gates, i f c o; a GRU has z r h where torch has r z n, "
    "its bias has the rows bias_ih_l0 and bias_hh_l0, and only reset_after=True is torch's GRU. "
    "Kernels of CuDNNLSTM and CuDNNGRU are transposed gate by gate and have both biases: load them "
    "into LSTM or GRU layers, which converts them"
)
ONNX_HINT = (
    "such files can carry code and are not opened; give the checkpoint that it was exported from, "
    f"or {_AS_ARRAYS}: weight_ih_l0 = W[0], weight_hh_l0 = R[0], bias_ih_l0 and bias_hh_l0 = the "
    "halves of B[0]. The gates of an LSTM are i o f c where torch has i f g o, those of a GRU z r "
    "h where torch has r z n, and only linear_before_reset=1 is torch's GRU"
)


def choose_weight_file(folder: Path) -> tuple[Path, list[str]]:
    """The weight file of a folder or the index of its shards, and a note on what was passed over.

    Safetensors win, and whole files win over shards. What is chosen is opened, or nothing is:
    a damaged file is never replaced by another one beside it.
    """
    files, folders = _names_in(folder)
    names = [*files, *(name for name in folders if name.lower() == _THE_MODEL)]
    found, every = rank_weights(names)
    if not found:
        code, fact, hint = _why_none(folder, files, folders)
        raise SourceError(code, fact, hint=hint, stage="open")
    if len(found) > 1:
        raise SourceError(
            "E_PATH",
            f"the folder holds {len(found)} checkpoints: {_shown(found)}",
            hint="give one of these files instead of the folder",
            stage="open",
        )
    others = [name for name in every if name != found[0]]
    note = f"{clean(found[0])} was opened; not {_shown(others)}"
    return folder / found[0], [note] if others else []


def rank_weights(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """The names that win (one, or several that are a question), and all whole weight files."""
    names = sorted(names)
    weights = [name for name in names if stem_and_suffix(name)[1] in SUFFIXES]
    candidates = [name for name in weights if not _BESIDE_THE_MODEL.search(name.lower())]
    whole = [name for name in candidates if not SHARD.search(stem_and_suffix(name)[0])]
    last = [name for name in whole if stem_and_suffix(name)[1] == _LAST]
    best = _best([name for name in whole if name not in last], names) or _best(last, ())
    return _safe(best) or best, whole


def _best(whole: Sequence[str], names: Sequence[str]) -> list[str]:
    """The first rank that is not empty, among whole files and the indices in `names`."""
    first, second = ([n for n in whole if stem_and_suffix(n)[0] in s] for s in _MODEL_STEMS)
    safe, binary = ([n for n in names if n.lower().endswith(s + INDEX)] for s in SPLIT)
    ranks = (
        _safe(first),
        [n for n in safe if n.lower().split(".")[0] in _MODEL_STEMS[0]],
        first,
        [n for n in binary if n.lower().split(".")[0] in _MODEL_STEMS[0]],
        second,
        _safe(whole),
        safe,
        list(whole),
        binary,
    )
    return next((rank for rank in ranks if rank), [])


def stem_and_suffix(name: str) -> tuple[str, str]:
    """A name in small letters without its last suffix, and that suffix."""
    stem, dot, suffix = name.lower().rpartition(".")
    return stem, dot + suffix


def _safe(names: Sequence[str]) -> list[str]:
    return [name for name in names if name.lower().endswith(".safetensors")]


def _names_in(folder: Path) -> tuple[list[str], list[str]]:
    try:
        with os.scandir(folder) as entries:
            kinds = {entry.name: _is_folder(entry) for entry in entries}
    except OSError as error:
        raise MachineError(
            "E_DISK",
            f"the folder cannot be listed: {error.strerror}",
            hint="check its permissions",
            stage="open",
        ) from None
    names = sorted(kinds)
    return [n for n in names if not kinds[n]], [n for n in names if kinds[n]]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads in a circle
        return False


def _shown(names: Sequence[str]) -> str:
    return listed(names, limit=60)


def _why_none(folder: Path, names: Sequence[str], folders: Sequence[str]) -> tuple[str, str, str]:
    """The code, the fact and the next step for a folder without weights."""
    elsewhere = f"load it where it was made and {_EXPORT}"
    if "saved_model.pb" in names:
        return "E_UNSAFE_FORMAT", "this is a TensorFlow SavedModel, which carries code", elsewhere
    if any(name in _ORBAX for name in names):
        hint = "restore it where it was made and save the parameters as .npz or .msgpack"
        return "E_UNSUPPORTED", "this is an Orbax checkpoint, which memaudit does not open", hint
    shards = [n for n in names if SHARD.search(stem_and_suffix(n)[0]) and n.endswith(SPLIT)]
    if shards:
        whole = SHARD.sub("", shards[0].rpartition(".")[0]) + "." + shards[0].rpartition(".")[2]
        fact = f"the folder holds {len(shards)} shards but not their index, {clean(whole)}{INDEX}"
        hint = "fetch the index as well, or give one shard as a file to audit it alone"
        return "E_NOT_FOUND", fact, hint
    foreign = [n for n in names if n.endswith((".h5", ".keras", ".onnx", ".gguf"))]
    if foreign:
        fact = f"the folder holds no weights that memaudit opens, only {_shown(foreign)}"
        hints = {".h5": KERAS_HINT, ".keras": KERAS_HINT, ".onnx": ONNX_HINT}
        return "E_UNSUPPORTED", fact, hints.get(stem_and_suffix(foreign[0])[1], elsewhere)
    trained = {int(match[1]): name for name in folders if (match := _STEP.fullmatch(name))}
    if trained:
        newest = clean(folder / trained[max(trained)])
        fact = f"the folder {clean(folder.name)} holds {len(trained)} checkpoints of a training"
        return "E_NOT_FOUND", fact, f"give the newest, {newest}, or another one"
    inside = [name for name in folders if name.lower().endswith(SUFFIXES)]
    if inside:
        fact = f"{clean(inside[0])} is a folder, not a weight file"
        return "E_PATH", fact, "give the file itself, or the folder that holds it"
    fact = f"the folder {clean(folder.name)} holds no weights"
    return "E_NOT_FOUND", fact, f"expected one file ending in {', '.join(SUFFIXES)}"
