"""What commands share: streams, the console, a spinner, and how an audit is started."""

from __future__ import annotations

import errno
import importlib
import os
import shutil
import stat
import sys
import warnings
from contextlib import contextmanager
from threading import Timer
from typing import IO, TYPE_CHECKING, Any, cast

from memaudit import registry
from memaudit.errors import ArgumentError, MachineError, clean, nearest
from memaudit.options import LARGEST_SEED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import Console, RenderableType

    from memaudit.sections import Document

#: An error line names a source, a fact and a step; each is cut before, this cuts a chain of them.
LONGEST_LINE = 3000
#: The width of text that is not read on a terminal.
PLAIN_WIDTH = 80
#: A table in fewer columns is a letter a line; a terminal that is narrower folds the lines itself.
LEAST_WIDTH = 40
INTERRUPTED = 130
#: How our own signs are written where an encoding has none of them.
SPELLED = str.maketrans({"→": "->", "…": "...", "²": "^2", "±": "+-", "·": "*", "β": "beta"})
UNMEASURED = "interrupted before anything was measured"
CLEAN, GATE, INCOMPLETE = 0, 1, 4
DEVICES = ("auto", "cpu", "cuda", "mps", "xpu")
DTYPES = ("auto", "float64", "float32", "bfloat16", "float16", "fp64", "fp32", "bf16", "fp16")
#: Seconds before the spinner shows.
SPINNER_DELAY = 1.0


def open_closed_streams() -> None:
    """Give a stream that was closed before the start (`2>&-`) a place to write to.

    Otherwise its descriptor would go to the next file that is opened, and prints would follow it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(nowhere, mode, encoding="utf-8", closefd=False))


def say(text: str) -> None:
    """One line on stderr, whatever it holds; never on stdout, even where there is no stderr."""
    if sys.stderr is None:
        return
    try:
        print(f"memaudit: {clean(text, limit=LONGEST_LINE)}", file=sys.stderr, flush=True)
    except OSError:  # nobody reads it, and there is nobody else to tell
        _discard_rest(sys.stderr)


def to_stdout(text: str) -> None:
    """Text on stdout; a reader who has left is no error, a full disk is one."""
    encoding = sys.stdout.encoding or "utf-8"
    safe = text.encode(encoding, errors="backslashreplace").decode(encoding)
    try:
        sys.stdout.write(safe)
        sys.stdout.flush()
    except OSError as error:
        if not reader_left(error):
            raise unwritable(error) from error


def readable(text: str) -> str:
    """Words for stdout, whose few signs beyond ASCII are spelled out where it cannot hold them.

    Not for files that other programs read: there a sign is data.
    """
    encoding = sys.stdout.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(SPELLED)
    return text


def reader_left(error: OSError) -> bool:
    """Whether nobody reads stdout any more: a closed pipe, or a terminal that hung up.

    What is left for stdout is dropped then.
    """
    gone = isinstance(error, BrokenPipeError) or (error.errno == errno.EIO and _is_device())
    if gone:
        _discard_rest(sys.stdout)
    return gone


def unwritable(error: OSError, *, source: str = "stdout") -> MachineError:
    """The error for output that finds no room; what is left for stdout is dropped."""
    _discard_rest(sys.stdout)
    return MachineError(
        "E_DISK",
        f"cannot write: {clean(error.strerror or error)}",
        hint="make room, or choose another output",
        source=source,
        stage="write",
    )


def console() -> Console:
    """A console for stdout: as wide as the terminal, or 80 columns of plain text."""
    from rich.console import Console, ConsoleDimensions

    terminal = sys.stdout.isatty()
    page = Console(
        file=sys.stdout,
        width=None if terminal else PLAIN_WIDTH,
        highlight=False,
        soft_wrap=False,
    )
    if page.is_dumb_terminal:  # rich takes 80 columns for granted where TERM is "dumb"
        columns, lines = shutil.get_terminal_size()
        page.size = ConsoleDimensions(columns if terminal else PLAIN_WIDTH, lines)
    page.width = max(page.width, LEAST_WIDTH)
    return page


def show(*renderables: RenderableType) -> None:
    """Render for stdout and write it in one go."""
    page = console()
    try:
        with page.capture() as captured:
            for item in renderables:
                page.print(item)
    except OSError as error:  # rich flushes the file at the end of a capture
        if not reader_left(error):
            raise unwritable(error) from error
        return
    text = readable(captured.get())
    if not page.is_terminal:
        text = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    to_stdout(text)


def print_document(document: Document, *, verbose: bool = False) -> None:
    """A document on stdout: a summary of one screen, or all of it."""
    from memaudit.writers.terminal import show

    page = console()
    screen = page.height if sys.stdout.isatty() else None  # FORCE_COLOR makes no screen
    to_stdout(readable(show(document, page, verbose=verbose, screen=screen)))


def _is_device() -> bool:
    try:
        return stat.S_ISCHR(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError, AttributeError):  # a stream without a descriptor
        return False


def _discard_rest(stream: object) -> None:
    """Send what is left in the buffers nowhere, so that the interpreter can end in peace."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())  # type: ignore[attr-defined]
        finally:
            os.close(nowhere)
    except (OSError, ValueError, AttributeError):  # a stream without a descriptor
        return


def imported(module: str) -> Any:
    """A module of memaudit that loads torch; what is missing on the machine is its own error."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if (error.name or "").startswith("memaudit"):
            raise
        fact = f"a required package does not import: {clean(error)}"
        short = any(words in str(error) for words in ("failed to map", "Cannot allocate memory"))
        code, hint = ("E_MEMORY", "allow it more memory") if short else ("E_PLUGIN", "")
        hint = hint or "see memaudit doctor"
        raise MachineError(code, fact, hint=hint, stage="import") from error


@contextmanager
def quieted(*, debug: bool) -> Iterator[None]:
    """Keep the warnings and bars of other libraries off the terminal, unless debugging."""
    with warnings.catch_warnings():
        if not debug:
            warnings.simplefilter("ignore")
            os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
            os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        yield


def check_common(given: Mapping[str, Any]) -> None:
    """Refuse a device, dtype, seed or adapter that does not exist, before any work starts."""
    device, dtype = given["device"], given["dtype"]
    kind, _, number = device.partition(":")
    known = kind in DEVICES
    if not known:  # another package may have brought an accelerator of this name to torch
        from memaudit.devices import present_devices

        known = kind in present_devices()
    if not known or (number and not number.isdecimal()) or device.endswith(":"):
        raise ArgumentError(f"unknown device {clean(device)!r}", hint=nearest(kind, DEVICES))
    if dtype not in DTYPES:
        raise ArgumentError(f"unknown dtype {clean(dtype)!r}", hint=nearest(dtype, DTYPES))
    if given.get("seed", 0) > LARGEST_SEED:
        raise ArgumentError(f"--seed is at most {LARGEST_SEED}")
    if given["adapter"] is not None:
        registry.find("adapters", given["adapter"])


@contextmanager
def waiting(words: str) -> Iterator[None]:
    """A spinner on stderr after a second, where it is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    from memaudit.writers.progress import IgnoringErrors

    status = Console(file=cast("IO[str]", IgnoringErrors(sys.stderr))).status(words)
    timer = Timer(SPINNER_DELAY, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def one_of(words: Mapping[str, bool]) -> str | None:
    """The one option of several that is given; two of them contradict each other."""
    given = [f"--{name}" for name, wanted in words.items() if wanted]
    if len(given) > 1:
        fact = f"{' and '.join(given)} contradict each other"
        raise ArgumentError(fact, hint="give one of them")
    return given[0].removeprefix("--") if given else None


def offline() -> None:
    """Forbid the network; huggingface_hub reads that when it is imported."""
    os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"


def say_gates(results: Any) -> bool:
    """A line for every gate that has something to say; whether one of them was hit."""
    hit = False
    for result in results:
        hit = hit or result.hit
        if result.hit:
            say(f"gate --fail-on {result.word} was hit by {result.reason}")
        elif result.reason:
            say(f"gate --fail-on {result.word} was not hit: {result.reason}")
    return hit
