"""Every answer of the hub passes here: headers are judged, bytes are counted, tokens stay home."""

from __future__ import annotations

import errno
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urljoin, urlsplit

from huggingface_hub import constants, hf_hub_download, set_client_factory
from huggingface_hub.errors import FileMetadataError, HfHubHTTPError
from huggingface_hub.utils import build_hf_headers, get_session

from memaudit import __version__
from memaudit.loading.hub import (
    LARGEST_LISTING,
    WAIT,
    Failure,
    causes,
    disk,
    host_of,
    no_answer,
    not_a_hub,
    overlong,
    refused,
    torn,
    unconnected,
)
from memaudit.loading.hub_child import FileProgress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memaudit.loading.hub import Listed

#: httpx or httpx2, whichever huggingface_hub was built upon.
http: Any = sys.modules[HfHubHTTPError.__bases__[0].__module__.partition(".")[0]]
LIBRARY = "memaudit"
#: huggingface_hub makes a path of the tag: no slash, nothing that begins with a dot.
_TAG = re.compile(r'(W/)?"?\w[\w.+=:-]{0,127}"?', re.ASCII)
#: Nobody reads what comes with a redirection.
_REDIRECTION = 1 << 16
_MOST_TRIES = 2


class Rejected(Exception):  # noqa: N818
    """An answer that ends the work; huggingface_hub does not know it and so does not retry."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.unanswered)
        self.failure = failure


class Counted(http.SyncByteStream):
    """The body of an answer, cut off when it is longer than announced."""

    def __init__(self, stream: Any, wire: Wire, *, offset: int, most: int) -> None:
        self._stream, self._wire, self._most = stream, wire, most
        self._at = offset

    def __iter__(self) -> Iterator[bytes]:
        """Pass the bytes on."""
        meter = self._wire.meter
        began = meter.furthest
        try:
            for piece in self._stream:
                self._at += len(piece)
                if self._at > self._most:
                    raise Rejected(Failure(overlong(self._wire.host, meter.name)))
                meter.done, meter.furthest = self._at, max(self._at, meter.furthest)
                yield piece
        except (http.RemoteProtocolError, http.ReadError):
            meter.torn = 1 if meter.furthest > began else meter.torn + 1
            if meter.torn >= _MOST_TRIES:
                raise Rejected(torn(self._wire.host, meter.name)) from None
            raise  # huggingface_hub asks for the rest

    def close(self) -> None:
        """Give the connection back."""
        self._wire.meter.asking = False
        self._stream.close()


class Wire:
    """The connection to the hub; `commit` is what every answer must be about, once it is known."""

    def __init__(self, meter: FileProgress) -> None:
        self.meter = meter
        self.commit = ""
        self.host = host_of(constants.ENDPOINT)
        self.headers = build_hf_headers(library_name=LIBRARY, library_version=__version__)
        own = get_session().event_hooks["request"]
        hooks = {"request": [*own, self._request_sent], "response": [self._response_came]}
        # The parent's patience ends what hangs; a second clock would only blur the message.
        set_client_factory(
            lambda: http.Client(event_hooks=hooks, follow_redirects=True, timeout=None)
        )

    @property
    def token(self) -> str:
        """What is sent as a password; empty if nothing is."""
        return self.headers.get("authorization", "").removeprefix("Bearer ")

    def listing(self, name: str, revision: str) -> bytes:
        """The hub's description of a repository at a revision."""
        self.meter.begin("the listing", total=None, most=LARGEST_LISTING)
        url = f"{constants.ENDPOINT}/api/models/{name}/revision/{quote(revision, safe='')}"
        found = bytearray()
        with get_session().stream(
            "GET", url, params={"blobs": "true"}, headers=self.headers
        ) as response:
            for piece in response.iter_bytes():
                found += piece
                if len(found) > LARGEST_LISTING:  # it was compressed
                    raise Rejected(Failure(overlong(self.host, "the listing")))
        return bytes(found)

    def fetch(self, name: str, file: Listed, *, most: int) -> Path:
        """One file of the commit, from the cache or from the hub.

        huggingface_hub goes on after some interruptions, not after a connection that was reset.
        """
        self.meter.begin(file.name, total=file.size, most=most)
        try:
            return self._download(name, file.name)
        except (http.RemoteProtocolError, http.ReadError):
            return self._download(name, file.name)

    def _download(self, name: str, file: str) -> Path:
        found = hf_hub_download(
            name, file, revision=self.commit, library_name=LIBRARY, library_version=__version__
        )
        return Path(found)

    def _request_sent(self, request: Any) -> None:
        # What is counted is then what is stored, and nothing unpacks to a thousand times its size.
        request.headers["accept-encoding"] = "identity"
        self.meter.asking = True

    def _response_came(self, response: Any) -> None:
        status, headers = response.status_code, response.headers
        if status >= 400:
            host = host_of(str(response.request.url))
            if host != self.host:  # where the large files are stored, which knows no users
                raise Rejected(no_answer(host, f"answered {status}"))
            known = bool(response.request.headers.get("authorization"))
            raise Rejected(refused(status, headers, host=host, token=known))
        turned = "location" in headers
        if turned:
            self._judge_redirection(str(response.request.url), headers["location"])
        if response.request.method == "HEAD":
            self.meter.asking = False
            self._judge_headers(headers, turned=turned)
            return
        offset = _start(response.request) if status == 206 else 0
        most = _REDIRECTION if turned else self.meter.most
        response.stream = Counted(response.stream, self, offset=offset, most=most)

    def _judge_redirection(self, here: str, location: str) -> None:
        old, new = urlsplit(here).scheme, urlsplit(urljoin(here, location)).scheme
        if new not in ("http", "https"):
            raise self._no_hub("it redirects to something that is no web address")
        if (old, new) == ("https", "http"):
            raise self._no_hub("it redirects to an unprotected connection")

    def _judge_headers(self, headers: Any, *, turned: bool) -> None:
        """What huggingface_hub makes paths of must be plain.

        A redirection may have a tag of its own, which is not that of the file: it is taken away.
        """
        headers.pop("x-xet-hash", None)  # a second way to the same bytes, past this one
        if headers.get("x-repo-commit", self.commit) != self.commit:
            raise self._no_hub("it answers for another commit than it was asked for")
        for name in ("etag", "x-linked-etag"):
            if name not in headers or _TAG.fullmatch(headers[name]):
                continue
            if turned:
                del headers[name]
            else:
                raise self._no_hub("it labels a file with something that is no label")

    def _no_hub(self, why: str) -> Rejected:
        return Rejected(Failure(not_a_hub(self.host, why)))


def _start(request: Any) -> int:
    """The first byte that was asked for."""
    span = re.fullmatch(r"bytes=(\d{1,18})-\d*", request.headers.get("range", ""))
    return int(span[1]) if span else 0


def explained(error: BaseException, wire: Wire, cache: Path) -> Failure:
    """What happened, from the classes of an error and its causes; their texts may hold anything."""
    host, name = wire.host, wire.meter.name
    for cause in causes(error):
        if isinstance(cause, Rejected):
            return cause.failure
        if isinstance(cause, http.TimeoutException):
            return no_answer(host, "did not answer in time", hint=WAIT)
        if isinstance(cause, http.ProxyError):
            return no_answer(host, "cannot be reached through the proxy")
        if isinstance(cause, http.ConnectError):
            return unconnected(cause, host)
        if isinstance(cause, http.NetworkError | http.RemoteProtocolError):
            if wire.meter.furthest:
                return torn(host, name)
            return no_answer(host, "ended the connection without an answer")
        if isinstance(cause, OSError) and cause.errno == errno.EFBIG:
            return Failure(overlong(host, name))
        if isinstance(cause, OSError) and cause.errno is not None:
            return Failure(disk(cause, cache))
        if type(cause) is OSError:  # its consistency check
            return torn(host, name)
        if isinstance(cause, FileMetadataError):
            return Failure(not_a_hub(host, "it says nothing about its files"))
    return Failure(not_a_hub(host, "its answers make no sense"))
