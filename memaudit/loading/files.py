"""Files and folders on disk: what may be opened, read in one pass, and compared afterwards."""

from __future__ import annotations

import errno
import hashlib
import io
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

# -- A regular file, opened without waiting and read by position, never mapped into memory.

NOT_FOUND_HINT = "check the path; for the hub write org/name, for timm write timm:NAME"
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


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
        found = self._some(offset, length)
        while 0 < len(found) < length:  # the system hands out at most 2 GB at once
            more = self._some(offset + len(found), length - len(found))
            if not more:
                break
            found += more
        if len(found) < length:
            raise changed_while_read()
        return found

    def require_unchanged(self) -> None:
        """Raise E_CHANGED when somebody wrote to the file since it was opened."""
        if _marks(os.fstat(self.handle)) != self.marks:
            raise changed_while_read()

    def _some(self, offset: int, length: int) -> bytes:
        try:
            if hasattr(os, "pread"):
                return os.pread(self.handle, length, offset)
            os.lseek(self.handle, offset, os.SEEK_SET)
            return os.read(self.handle, length)
        except OSError as error:
            raise reading_failed(error) from None
        except MemoryError:
            raise out_of_memory() from None


def kind_of(path: Path) -> str:
    """`file` or `folder`; everything else that a path may lead to is refused."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise reading_failed(error) from None
    if stat.S_ISDIR(mode):
        return "folder"
    require_regular(mode)
    return "file"


@contextmanager
def open_regular(path: Path) -> Iterator[RegularFile]:
    """Open a regular file for reading.

    A FIFO that took its place must not hang the audit, so nothing here waits; what was opened is
    judged, not what had that name before.
    """
    try:
        handle = os.open(path, _FLAGS)
    except (OSError, ValueError) as error:
        raise reading_failed(error) from None
    try:
        found = os.fstat(handle)
        require_regular(found.st_mode)
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


def require_regular(mode: int, *, name: str = "this") -> None:
    """Refuse FIFOs, sockets, devices and folders by their kind."""
    if stat.S_ISREG(mode):
        return
    tests = (
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
        (stat.S_ISDIR, "a folder"),
    )
    what = next((kind for test, kind in tests if test(mode)), "something else")
    raise SourceError(
        "E_PATH",
        f"{clean(name)} is {what}, not a regular file",
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
#: …/models--org--name/snapshots/<revision>, the folder that the hub's client hands out.
_SNAPSHOT = re.compile(r"(?P<cache>.*)/(?P<repo>models--[^/]+)/snapshots/[^/]+(?:/.*)?", re.DOTALL)
#: Where that client puts what several repositories share, beneath a folder with this marker.
_SHARED_BLOB = re.compile(r"(?P<start>[0-9a-f]{2})/(?P=start)[0-9a-f]{62}")
_SHARED_MARKER = ".huggingface-shared-blobs"
#: Where Linux shows what a process has open.
_HANDLES = "/proc/self/fd"
_OWN_HINT = "give the file itself instead of the folder, or put a copy in its place"


def within(folder: Path, name: str) -> Path:
    """The path of a regular file that lies in a folder, from its plain name.

    Raises E_PATH when the name is no plain name, when a symbolic or hard link leads out of the
    folder, or when this is no regular file; E_NOT_FOUND when nothing is there. The links by which
    the hub's client stores a repository's files are followed.
    """
    path = folder / plain_name(name)
    _contained(folder, path)
    return path


@contextmanager
def open_within(folder: Path, name: str, *, below: str = "") -> Iterator[RegularFile]:
    """Open what `within` allows; `below` is the plain name of a folder in between.

    What was opened is compared with what was allowed, not the name that leads there: a file that
    is exchanged for a link in between is seen. Where the system tells the place of an open file,
    that is judged as well, whatever was exchanged on the way and put back again.
    """
    path = (folder / plain_name(below) if below else folder) / plain_name(name)
    _contained(folder, path)
    root = _opened_folder(folder)
    with open_regular(path) as file:
        if not os.path.samestat(file.stat, _contained(folder, path)):
            raise SourceError(
                "E_CHANGED",
                f"{clean(name)} was exchanged while it was opened",
                hint="let nobody write into the folder, and open it again",
                stage="open",
            )
        if root:
            real = _opened_place(file.handle)
            _require_inside(path.name, root=root, real=real, found=file.stat)
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


def _contained(folder: Path, path: Path) -> os.stat_result:
    """What the path really leads to, once it is known to lie in the folder."""
    try:
        root, real = (os.path.realpath(p, strict=True) for p in (folder, path))
        found = os.lstat(real)
    except FileNotFoundError:
        link = path.is_symlink()
        fact = "is a link to a file that is not there" if link else "is not in the folder"
        raise SourceError(
            "E_NOT_FOUND",
            f"{clean(path.name)} {fact}",
            hint="if it was downloaded, the download is not complete: fetch it again",
            stage="open",
        ) from None
    except (OSError, ValueError) as error:
        raise reading_failed(error) from None
    require_regular(found.st_mode, name=path.name)
    _require_inside(path.name, root=root, real=real, found=found)
    return found


def _opened_folder(folder: Path) -> str:
    """Where a folder is, by the system's own word; empty on a system that does not say."""
    if not os.path.isdir(_HANDLES):
        return ""
    try:
        handle = os.open(folder, getattr(os, "O_PATH", os.O_RDONLY))
    except OSError as error:
        raise reading_failed(error) from None
    try:
        return _opened_place(handle)
    finally:
        os.close(handle)


def _opened_place(handle: int) -> str:
    """The path of what is open, by the system's own word; empty where it does not say."""
    try:
        return os.readlink(f"{_HANDLES}/{handle}")
    except OSError:
        return ""


def _require_inside(name: str, *, root: str, real: str, found: os.stat_result) -> None:
    snapshot = _SNAPSHOT.fullmatch(Path(root).as_posix())
    if not _beneath(real, root) and not (snapshot and _is_blob(Path(real), snapshot)):
        raise _outside(name, "leads outside the folder")
    if found.st_nlink > 1 and not snapshot:
        raise _outside(name, "has a second hard link, which may lie outside the folder")


def _beneath(real: str, root: str) -> bool:
    try:
        return os.path.commonpath([real, root]) == root
    except ValueError:  # two drives
        return False


def _is_blob(real: Path, snapshot: re.Match[str]) -> bool:
    """Whether a file is where the hub's client stores the contents of a snapshot."""
    own = Path(snapshot["cache"] or "/", snapshot["repo"], "blobs")
    if real.parent == own:
        return True
    shared = Path(snapshot["cache"] or "/", "blobs")
    inside = real.relative_to(shared).as_posix() if real.is_relative_to(shared) else ""
    return bool(_SHARED_BLOB.fullmatch(inside)) and (shared / _SHARED_MARKER).is_file()


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


# -- One pass over a file from its first byte to its last, hashed on the way.

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


class OnePass:
    """The bytes of a file in their order: what is loaded is what is hashed."""

    def __init__(self, file: RegularFile, meter: Meter) -> None:
        self._file, self._meter = file, meter
        self._at = 0
        self._sum = hashlib.sha256()

    @property
    def left(self) -> int:
        """The bytes that have not been read."""
        return self._file.size - self._at

    def expect(self, known: bytes) -> None:
        """The next bytes, which were looked at before and must still be the same."""
        if self._next(len(known)) != known:
            raise changed_while_read()

    def fill(self, target: memoryview) -> None:
        """The next bytes, as many as the target takes."""
        done = 0
        while done < len(target):
            chunk = self._next(min(_CHUNK, len(target) - done))
            target[done : done + len(chunk)] = chunk
            done += len(chunk)

    def rest(self) -> bytes:
        """Everything that is left."""
        try:
            whole = io.BytesIO()  # gives its bytes away without a copy
            while self.left:
                whole.write(self._next(min(_CHUNK, self.left)))
            return whole.getvalue()
        except MemoryError:
            raise out_of_memory() from None

    def finish(self) -> str:
        """The SHA-256 of the whole file, which nobody changed meanwhile."""
        if self.left:
            fact = f"{self.left} bytes at the end of the file belong to nothing"
            hint = "copy or download the file again"
            raise SourceError("E_CORRUPT", fact, hint=hint, stage="open")
        self._file.require_unchanged()
        return self._sum.hexdigest()

    def _next(self, length: int) -> bytes:
        chunk = self._file.read(self._at, length)
        self._at += length
        self._sum.update(chunk)
        self._meter.add(length)
        return chunk


# -- What a file was when it was read, to be compared with what it is after the audit.

#: Larger files are not read a second time when the system says that nobody touched them.
LARGEST_READ_AGAIN = 2 << 30


@dataclass(frozen=True, slots=True)
class Stamp:
    """A file, the marks that the system keeps of it, and the SHA-256 of its bytes."""

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
                if file.marks == self.marks and file.size > LARGEST_READ_AGAIN:
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


def digest(file: RegularFile) -> str:
    """The SHA-256 of all its bytes, which nobody wrote to meanwhile."""
    total = hashlib.sha256()
    for start in range(0, file.size, _CHUNK):
        total.update(file.read(start, min(_CHUNK, file.size - start)))
    file.require_unchanged()
    return total.hexdigest()


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
#: What Orbax writes into every checkpoint.
_ORBAX = ("_METADATA", "_CHECKPOINT_METADATA", "manifest.ocdbt")
_EXPORT = "save the weights as model.safetensors"


def choose_weight_file(folder: Path) -> tuple[Path, list[str]]:
    """The weight file of a folder or the index of its shards, and a note on what was passed over.

    Safetensors win, and whole files win over shards. What is chosen is opened, or nothing is:
    a damaged file is never replaced by another one beside it.
    """
    files, folders = _names_in(folder)
    names = [*files, *(name for name in folders if name.lower() == _THE_MODEL)]
    found, every = rank_weights(names)
    if not found:
        raise _no_weights(folder, files, folders)
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


def _no_weights(folder: Path, names: Sequence[str], folders: Sequence[str]) -> SourceError:
    code, fact, hint = _why_none(folder, names, folders)
    return SourceError(code, fact, hint=hint, stage="open")


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
        return "E_UNSUPPORTED", fact, elsewhere
    inside = [name for name in folders if name.lower().endswith(SUFFIXES)]
    if inside:
        fact = f"{clean(inside[0])} is a folder, not a weight file"
        return "E_PATH", fact, "give the file itself, or the folder that holds it"
    fact = f"the folder {clean(folder.name)} holds no weights"
    return "E_NOT_FOUND", fact, f"expected one file ending in {', '.join(SUFFIXES)}"
