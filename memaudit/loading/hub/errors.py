"""What goes wrong between memaudit and a hub, in sentences that never quote the hub."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from memaudit.errors import MachineError, MemauditError, SourceError, clean

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AGAIN = "try again later, or use --offline if a copy is in the cache"
WAIT = "try again, wait longer with --timeout SECONDS, or use --offline if a copy is in the cache"
LOG_IN = "log in with `hf auth login` or set HF_TOKEN"
#: Words that a hub puts into its answers.
_INVALID_TOKEN = "Invalid credentials in Authorization header"
_DISABLED = "Access to this resource is disabled."
_LONGEST_WAIT = 10**6


@dataclass(frozen=True, slots=True)
class Failure:
    """An error, and in a few words why the hub gave no answer, if that is what happened."""

    error: MemauditError
    unanswered: str = ""


def not_a_hub(host: str, why: str) -> MachineError:
    """The answer came from something that is no hub: a proxy, a login page, a wrong address."""
    return MachineError(
        "E_NETWORK",
        f"what answers at {clean(host)} is not a hub: {why}",
        hint="check HF_ENDPOINT and the proxy, and try again",
        stage="fetch",
    )


def host_of(url: str) -> str:
    """Host and port of a web address, without the password that may stand before them."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:  # a port that is no number
        return ""
    known = parts.scheme in ("http", "https") and parts.hostname
    return f"{parts.hostname}{port}" if known else ""


def no_address() -> MachineError:
    """The address of the hub, which may hold a password, cannot be one."""
    hint = "unset HF_ENDPOINT, or give the address of a hub, such as https://huggingface.co"
    return MachineError("E_NETWORK", "HF_ENDPOINT is no web address", hint=hint, stage="fetch")


def no_answer(host: str, why: str, *, hint: str = AGAIN) -> Failure:
    """The hub could not be asked; a copy in the cache may stand in."""
    fact = f"the hub at {clean(host)} {why}"
    return Failure(MachineError("E_NETWORK", fact, hint=hint, stage="fetch"), why)


def stalled(host: str, seconds: float) -> Failure:
    """Nothing came within the user's patience."""
    return no_answer(host, f"gave no answer for {seconds:g} s", hint=WAIT)


def occupied(name: str, seconds: float) -> Failure:
    """Somebody else on this machine holds the lock of a file, and does not get on with it."""
    fact = f"another process is fetching {clean(name)} and got no further for {seconds:g} s"
    hint = "wait for it or end it, and try again"
    return Failure(MachineError("E_NETWORK", fact, hint=hint, stage="fetch"))


def torn(host: str, name: str) -> Failure:
    """The connection ended early; nothing of it is kept."""
    fact = f"{clean(host)} sent fewer bytes of {clean(name)} than announced"
    error = MachineError("E_NETWORK", fact, hint="try again", stage="fetch")
    return Failure(error)


def overlong(host: str, name: str) -> MachineError:
    """More came than the listing says."""
    fact = f"{clean(host)} sent more bytes of {clean(name)} than announced"
    return MachineError("E_NETWORK", fact, hint="check HF_ENDPOINT, and try again", stage="fetch")


def differs(path: Path, what: str) -> SourceError:
    """A file of the cache is not the one that the hub lists; whose fault it is remains open."""
    return SourceError(
        "E_CORRUPT",
        f"{clean(path.name)} is not what the hub announces: {what}",
        hint=f"remove {clean(path)} and the file that it links to, and try again",
        stage="fetch",
    )


def refused(status: int, headers: Mapping[str, str], *, host: str, token: bool) -> Failure:
    """What an HTTP status means; of the hub's own words only known ones are looked at."""
    code, message = headers.get("x-error-code"), headers.get("x-error-message")
    if status == 429 or status >= 500 or status == 408:
        return no_answer(host, f"answered {status}{_retry(status, headers)}")
    if code == "GatedRepo":
        fact = "the repository is gated, and you are not on its list"
        hint = f"accept the terms on its page, then {LOG_IN}"
    elif status == 401 and (message == _INVALID_TOKEN or (token and code != "RepoNotFound")):
        fact, hint = "the hub refused the token that it was sent", f"{LOG_IN} anew"
    elif status == 404 or code == "RepoNotFound":
        return Failure(_not_found(code))
    elif status == 401:
        fact, hint = "the hub asks for a login", LOG_IN
    elif message == _DISABLED:
        fact, hint = "the hub has disabled access to it", "its page on the hub may say why"
    elif status == 403:
        fact = "the hub does not let you read it"
        hint = f"accept the terms on its page, if there are any, and {LOG_IN}"
    else:
        return Failure(not_a_hub(host, f"it answered {status}"))
    return Failure(SourceError("E_GATED", fact, hint=hint, stage="fetch"))


def _not_found(code: str | None) -> SourceError:
    if code == "EntryNotFound":
        fact, hint = "the hub lists a file that it does not have", "try again"
    elif code == "RevisionNotFound":
        fact, hint = "the repository has no such revision", "give a branch, a tag or a commit"
    else:
        fact = "the hub has no such repository or revision"
        hint = "check the name; a private one needs HF_TOKEN"
    return SourceError("E_NOT_FOUND", fact, hint=hint, stage="fetch")


def _retry(status: int, headers: Mapping[str, str]) -> str:
    """The seconds after which the hub wants to be asked again, if it says so."""
    wait = headers.get("retry-after", "").strip()
    words = " (too many requests)" if status == 429 else ""
    if wait.isascii() and wait.isdecimal() and len(wait) < 8 and int(wait) <= _LONGEST_WAIT:
        return f"{words} and wants to be left alone for {int(wait)} s"
    return words


def unconnected(error: BaseException, host: str) -> Failure:
    """Why there is no connection, from the system's error beneath the client's."""
    for cause in causes(error):
        if isinstance(cause, ConnectionRefusedError):
            return no_answer(host, "refused the connection", hint=f"check HF_ENDPOINT; {AGAIN}")
        if isinstance(cause, socket.gaierror):
            why = "cannot be found: its name has no address"
            return no_answer(host, why, hint=f"check the network and HF_ENDPOINT; {AGAIN}")
        if isinstance(cause, ssl.SSLError):
            why = "could not prove who it is (TLS)"
            return no_answer(
                host, why, hint=f"check the clock, the certificates and the proxy; {AGAIN}"
            )
    return no_answer(host, "cannot be reached", hint=f"check the network; {AGAIN}")


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what led to it; chains are short, a ring would not end."""
    following: BaseException | None = error
    for _ in range(20):
        if following is None:
            return
        yield following
        following = following.__cause__ or following.__context__


def disk(error: OSError, cache: Path) -> MachineError:
    """Writing into the cache failed."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        fact = f"the disk that holds {clean(cache)} is full"
        hint = "free some space, or choose another folder with HF_HOME"
    else:
        why = error.strerror or type(error).__name__
        fact = f"the cache {clean(cache)} cannot be used: {clean(why)}"
        hint = "check its permissions, or choose another folder with HF_HOME"
    return MachineError("E_DISK", fact, hint=hint, stage="fetch")
