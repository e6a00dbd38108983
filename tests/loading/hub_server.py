"""A hub on this machine: it lists, redirects and serves repositories, and fails in every way."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from huggingface_hub import constants

#: An address where nobody listens.
NOBODY = "http://127.0.0.1:9"
#: Longer than any test; a stalled answer ends when the hub is closed.
FOREVER = 600.0
#: How long the hub is waited for: where it says nothing, and where its answer must come.
IMPATIENT, PATIENT = 1.0, 60.0


@dataclass
class Repository:
    """Files at one commit; those in `large` are served by the store, as the real hub does it."""

    name: str
    files: dict[str, bytes]
    large: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    #: Changes to the listing: fields that replace those that it would have.
    listing: dict[str, Any] = field(default_factory=dict)

    @property
    def commit(self) -> str:
        digest = hashlib.sha1(self.name.encode())
        for name, content in sorted(self.files.items()):
            digest.update(name.encode() + content)
        return digest.hexdigest()

    def listed(self) -> dict[str, Any]:
        siblings = [self._sibling(name, content) for name, content in self.files.items()]
        return {"id": self.name, "sha": self.commit, "siblings": siblings, **self.listing}

    def digests(self, content: bytes) -> tuple[str, str]:
        """The SHA-256 of a file and its name as an object of git."""
        return hashlib.sha256(content).hexdigest(), git_object(content)

    def _sibling(self, name: str, content: bytes) -> dict[str, Any]:
        digest, blob = self.digests(content)
        entry = {"rfilename": name, "size": len(content), "blobId": blob}
        if name in self.large:
            entry["lfs"] = {"sha256": digest, "size": len(content), "pointerSize": 134}
        return entry


def git_object(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass(frozen=True)
class Asked:
    """One request that arrived."""

    method: str
    path: str
    token: str
    at_store: bool


class Answer(BaseHTTPRequestHandler):
    """One request, its hub, and simple ways to answer."""

    protocol_version = "HTTP/1.1"
    hub: Hub
    at_store: bool

    def do_GET(self) -> None:
        self.hub.serve(self)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *words: object) -> None:  # type: ignore[override]
        del words

    def send(
        self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> None:
        """A whole answer."""
        self.begin(status, {"Content-Length": str(len(body)), **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(body)

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Status and headers; a body may follow."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


#: Answers a request in place of the hub.
Trouble = Callable[[Answer], None]


def point_at(url: str) -> None:
    """Set HF_ENDPOINT; huggingface_hub reads its environment once, and is made to read it again."""
    os.environ["HF_ENDPOINT"] = url
    importlib.reload(constants)


class Hub:
    """Serves repositories from one port, and their large files from another.

    `listing`, `head`, `body` and `store` take the place of the honest answer to these questions.
    """

    def __init__(self, *repositories: Repository, **troubles: Trouble) -> None:
        self.repositories = {r.name: r for r in repositories}
        self.troubles = troubles
        self.asked: list[Asked] = []
        #: Bytes that were sent of files asked for in parts.
        self.sent = 0
        self.over = threading.Event()
        self._servers = [self._server(at_store=False), self._server(at_store=True)]
        self.url, self.store_url = (
            f"http://127.0.0.1:{server.server_address[1]}" for server in self._servers
        )

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc

    def __enter__(self) -> Hub:
        point_at(self.url)
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        point_at(NOBODY)
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def _server(self, *, at_store: bool) -> ThreadingHTTPServer:
        handler = type("Bound", (Answer,), {"hub": self, "at_store": at_store})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        server.block_on_close = False
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
        return server

    def serve(self, answer: Answer) -> None:
        token = answer.headers.get("Authorization", "").removeprefix("Bearer ")
        self.asked.append(Asked(answer.command, answer.path, token, answer.at_store))
        self.troubles.get(self._stage(answer), self.honest)(answer)

    def honest(self, answer: Answer) -> None:
        """The answer that the real hub would give."""
        honest = {"store": self._stored, "listing": self._listing}
        honest.get(self._stage(answer), self._file)(answer)

    def _stage(self, answer: Answer) -> str:
        if answer.at_store:
            return "store"
        if answer.path.startswith("/api/models/"):
            return "listing"
        return "head" if answer.command == "HEAD" else "body"

    def _listing(self, answer: Answer) -> None:
        path = unquote(urlsplit(answer.path).path).removeprefix("/api/models/")
        name, _, revision = path.partition("/revision/")
        repository = self.repositories.get(name)
        if repository is None:
            answer.send(401, headers={"X-Error-Code": "RepoNotFound"})
        elif revision not in ("", "main", repository.commit, *repository.tags):
            answer.send(404, headers={"X-Error-Code": "RevisionNotFound"})
        else:
            answer.send(200, json.dumps(repository.listed()).encode())

    def _file(self, answer: Answer) -> None:
        name, _, rest = unquote(answer.path)[1:].partition("/resolve/")
        repository = self.repositories[name]
        file = rest.partition("/")[2]
        content = repository.files[file]
        digest, blob = repository.digests(content)
        headers = {"X-Repo-Commit": repository.commit, "ETag": f'"{blob}"'}
        if file not in repository.large:
            self._part(answer, content, headers)
            return
        linked = {"X-Linked-ETag": f'"{digest}"', "X-Linked-Size": str(len(content))}
        location = f"{self.store_url}/{name}/{file}"
        answer.send(302, headers={**headers, **linked, "Location": location})

    def _stored(self, answer: Answer) -> None:
        organisation, name, file = answer.path[1:].split("/")
        self._part(answer, self.repositories[f"{organisation}/{name}"].files[unquote(file)])

    def _part(self, answer: Answer, content: bytes, headers: Mapping[str, str] = {}) -> None:
        """The bytes that a Range header asks for, or all."""
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", answer.headers.get("Range", ""))
        if found is None:
            answer.send(200, content, headers)
            return
        start, last = int(found[1]), min(int(found[2]), len(content) - 1)
        place = {"Content-Range": f"bytes {start}-{last}/{len(content)}"}
        part = content[start : last + 1]
        self.sent += len(part)
        answer.send(206, part, {**headers, **place})


def no_answer(answer: Answer) -> None:
    """Take the request and answer nothing."""
    answer.hub.over.wait(FOREVER)


def status(code: int, **headers: str) -> Trouble:
    """Answer with a status, and headers written with underscores."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda answer: answer.send(code, b"no", named)


def body(content: bytes, **headers: str) -> Trouble:
    """Answer with these bytes, whatever was asked."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda answer: answer.send(200, content, named)


def broken_off(announced: int, sent: bytes) -> Trouble:
    """Announce more than is sent, then hang up."""

    def trouble(answer: Answer) -> None:
        answer.begin(200, {"Content-Length": str(announced), "Connection": "close"})
        answer.wfile.write(sent)
        answer.close_connection = True

    return trouble


def stalling(announced: int, sent: bytes) -> Trouble:
    """Announce more than is sent, then say nothing."""

    def trouble(answer: Answer) -> None:
        answer.begin(200, {"Content-Length": str(announced)})
        answer.wfile.write(sent)
        answer.hub.over.wait(FOREVER)

    return trouble


def dripping(announced: int, *, pause: float) -> Trouble:
    """Send a byte now and then."""

    def trouble(answer: Answer) -> None:
        answer.begin(200, {"Content-Length": str(announced)})
        for _ in range(announced):
            if answer.hub.over.wait(pause):
                return
            answer.wfile.write(b" ")
            answer.wfile.flush()

    return trouble


def first_time(trouble: Trouble) -> Trouble:
    """Trouble once; after that the hub answers as it should."""
    had: list[bool] = []

    def once(answer: Answer) -> None:
        if had:
            answer.hub.honest(answer)
        else:
            had.append(True)
            trouble(answer)

    return once
