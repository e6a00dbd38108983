"""A report in a model card: a section in the README, and the hub's evaluation results.

Nothing leaves this machine, and nothing in the card says where on it anything lies.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import yaml

from memaudit import __version__
from memaudit.errors import MachineError, MemauditError, SourceError, clean
from memaudit.loading.files import SUFFIXES, digest, open_within
from memaudit.loading.source import FILE_SUFFIXES
from memaudit.report import PREFIX, Report
from memaudit.report_files import write_texts, writing
from memaudit.writers.markdown import Markdown

if TYPE_CHECKING:
    from pathlib import Path

README, RESULTS = "README.md", ".eval_results/memaudit.yaml"
#: Results belong to a dataset of the hub, which makes a leaderboard of them once it is registered
#: there as a benchmark; until then they are numbers beside the model.
DATASET = "memaudit/memory"
#: The numbers that say something without the others, of the model and of every query.
NUMBERS = ("horizon", "half_life", "rate", "exponent", "margin", "radius", "capacity")
HEAD = "# Written by `memaudit card`; see https://huggingface.co/docs/hub/eval-results\n"
BEGIN = "<!-- memaudit begin: written by `memaudit card`, which replaces what stands here -->"
END = "<!-- memaudit end -->"
#: Markers stand on lines of their own, and the words behind the colon may be anybody's; the other
#: lines begin and end blocks of code.
_MARKER_OR_FENCE = re.compile(
    r"(?:^|(?<=\ufeff)) {0,3}<!--[ \t]*memaudit (begin|end)\b[^\r\n]*?-->[ \t]*(?=\r?$)"
    r"|^[ \t]*(`{3,}|~{3,})(.*)$",
    re.M,
)


def write_card(report: Report, folder: Path, *, dataset: str = DATASET) -> bool:
    """Put the report into `folder/README.md`, and its numbers into `folder/.eval_results`.

    Both are written or none. False where they said so already.
    """
    report = presentable(report, folder)
    readme, results = folder / README, folder / RESULTS
    old = check_card(folder)
    texts = {
        readme: with_section(old, Markdown().render(report)),
        results: eval_results(report, dataset=dataset),
    }
    known = {readme: old, results: _read(results)}
    changed = {path: text for path, text in texts.items() if text != known[path]}
    if changed:
        with writing(results.parent):
            results.parent.mkdir(exist_ok=True)
        write_texts(changed)
    return bool(changed)


def check_card(folder: Path) -> str:
    """The README as it is; an error when a card could not be written, before any work for it."""
    readme, results = folder / README, folder / RESULTS
    for path in (folder, readme, results.parent, results):
        if path != folder and path.is_symlink():
            # A stranger's folder may hold links to files of ours; the hub's cache is all links.
            fact = "this is a link, which is not followed"
            hint = "work in a copy of the folder that has the file itself"
            raise SourceError("E_PATH", fact, hint=hint, source=path)
        if path.exists() and not os.access(path, os.R_OK | os.W_OK):
            what = "folder" if path.is_dir() else "file"
            fact, hint = f"the {what} is write-protected", "see its rights"
            raise MachineError("E_DISK", fact, hint=hint, source=path)
    if results.parent.exists() and not results.parent.is_dir():
        hint = "rename it, the results go into a folder of that name"
        raise SourceError("E_PATH", "this is no folder", hint=hint, source=results.parent)
    _read(results)
    text = _read(readme)
    try:
        with_section(text, "")
    except SourceError as error:
        raise error.at(readme) from error
    return text


def _read(path: Path) -> str:
    """The text as it is, line ends included; "" when there is none yet."""
    if not path.exists():
        return ""
    if not path.is_file():
        raise SourceError("E_UNSUPPORTED", "this is no text to put a section into", source=path)
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        hint = "save it as UTF-8"
        raise SourceError("E_CORRUPT", "not UTF-8 text", hint=hint, source=path) from error


def eval_results(report: Report, *, dataset: str = DATASET) -> str:
    """The hub's evaluation results: an entry per number, of the model and of every query.

    A note has the settings, and the query or layer that a number comes from.
    """
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    queries = {clean(name) for result in report.results.values() for name in result.measured()}
    metrics, entries = report.metrics(), []
    for metric in report.numbers():
        parts = metric.key.split("/")
        known = len(parts) == 1 or (len(parts) == 2 and parts[0] in queries)
        value = metrics.get(PREFIX + metric.key)
        if metric.layer or value is None or not known or parts[-1] not in NUMBERS:
            continue
        number = int(value) if value.is_integer() else value
        note = _note(report, metric.holder if metric.holder in queries else "")
        entries.append(EvalResultEntry(dataset, "_".join(parts), number, notes=note))
    data = eval_result_entries_to_yaml(entries)
    return HEAD + yaml.safe_dump(data, sort_keys=False, allow_unicode=False, width=100)


def _note(report: Report, query: str) -> str:
    keys = ("horizon", "seed", "level")
    settings = [f"{key} {clean(report.settings[key])}" for key in keys if key in report.settings]
    settings += [f"query {clean(query)}"] if query else []
    partial = [] if report.complete else ["partial"]
    version = clean(report.environment.get("memaudit", __version__))
    return ", ".join([f"memaudit {version}", *settings, *partial])


def with_section(text: str, section: str) -> str:
    """The text with that section between the markers, which are put at its end if there are none.

    Law: doing it twice is doing it once, and what stands outside of the markers is kept to the
    letter, the metadata at the top included.
    """
    block = "\n".join([BEGIN, section.strip("\n"), END])
    found = _markers(text)
    if not found:
        breaks = "\r\n" if "\r\n" in text else "\n"
        tail = text.replace("\r\n", "\n")
        gap = "" if not tail or tail.endswith("\n\n") else "\n" if tail.endswith("\n") else "\n\n"
        return text + (gap + block + "\n").replace("\n", breaks)
    if [marker[1] for marker in found] != ["begin", "end"]:
        lines = (f"{text.count(chr(10), 0, m.start()) + 1} ({m[1]})" for m in found)
        raise SourceError(
            "E_UNSUPPORTED",
            f"the markers of memaudit do not pair up: lines {', '.join(lines)}",
            hint="keep one begin and, below it, one end, or remove them all",
            stage="card",
        )
    begin, end = found
    breaks = "\r\n" if text.startswith("\r\n", begin.end()) else "\n"
    return text[: begin.start()] + block.replace("\n", breaks) + text[end.end() :]


def _markers(text: str) -> list[re.Match[str]]:
    """The markers in the text of the card; those in its metadata and in code are an example.

    Code that is never closed is none: a section that was put behind it must be found again.
    """
    found: list[re.Match[str]] = []
    fence, before = "", 0
    for line in _MARKER_OR_FENCE.finditer(text, len(text) - len(_without_metadata(text))):
        if line[1]:
            found.append(line)
        elif not fence:
            fence, before = line[2], len(found)
        elif line[2].startswith(fence) and not line[3].strip():
            fence, found = "", found[:before]
    return found


def _without_metadata(text: str) -> str:
    """The text behind the metadata of the card, as the hub's own class divides it."""
    if not text.startswith("---") or "\n---" not in text:
        return text
    from huggingface_hub import ModelCard

    try:
        return ModelCard(text, ignore_metadata_errors=True).text
    except (ValueError, yaml.YAMLError):  # two rules, with a text between them
        return text


#: Sources that lie nowhere: a hub id, a model of the package or of another zoo.
_ELSEWHERE = re.compile(
    r"(?!\.{1,2}(?:/|\Z))[\w.-]+(?:/[\w.-]+)?(?:@[\w./-]+)?"
    r"|(?:demo|timm|hf-hub|hf_hub):(?![~./\\]).*"
)
#: Where a path begins: a root, a home, a folder above, a drive, a share, a file: address.
_START = (
    r"(?:file:/*|(?<![\w.~/\\<])(?:~[\w.-]*[/\\]|\.{1,2}[/\\]|/(?!/)(?=[\w.~@+-]{2})|[A-Za-z]:[/\\]"
    r"|\\\\(?=\w)))"
)
#: Inside of quotation marks a path may have blanks; elsewhere marks end it before a blank only.
_QUOTED = re.compile(rf"(?<=(['\"`])){_START}[^\r\n]*?(?=\1)")
_BARE = re.compile(rf"{_START}(?:[^\s'\"`,;:()<>\[\]|]|[,;:](?=\S))*")
#: Tensors of a checkpoint, which is published, are called as they like.
NAMES = ("layer", "state", "weights")
HIDDEN = "…"
#: The last part of a home is somebody's name.
_HOMES = ("home", "users", "root")


def presentable(report: Report, folder: Path) -> Report:
    """The report by the name of the model's folder, and of every path no more than its end."""
    source, name = report.subject.source, folder.resolve().name or "."
    known = {str(folder), str(folder.resolve()), source, os.path.abspath(source)}
    # Without a separator it is a word that sentences may have; the longest holds the others.
    own = [place for place in known if re.search(r"[/\\]", place) and _lies_here(place)]
    own.sort(key=len, reverse=True)

    def hidden(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: one if key in NAMES else hidden(one) for key, one in value.items()}
        if isinstance(value, list):
            return [hidden(one) for one in value]
        if not isinstance(value, str):
            return value
        for place in own:
            value = value.replace(place, name)
        return without_paths(value)

    data = hidden(report.to_dict())
    if _lies_here(source):
        data["subject"]["source"] = name
    return Report.from_dict(data)


def without_paths(text: str) -> str:
    """The text with the last part of every path in the place of the path."""
    return _BARE.sub(_end, _QUOTED.sub(_end, text))


def _lies_here(source: str) -> bool:
    """Whether a source is a file or folder, on this machine or where the report was made."""
    file = source.lower().endswith(FILE_SUFFIXES)
    return file or os.path.exists(source) or not _ELSEWHERE.fullmatch(source)


def _end(match: re.Match[str]) -> str:
    parts = [part for part in re.split(r"[/\\]+", match[0]) if part]
    if not parts or parts[-1] in ("~", ".", "..") or parts[-1].endswith(":"):
        return HIDDEN
    private = len(parts) > 1 and parts[-2].lower() in _HOMES and len(parts) <= 3
    return HIDDEN if private or parts[-1].startswith("~") else parts[-1]


def matches(report: Report, folder: Path) -> bool | None:
    """Whether one weight file of the folder, or all of a kind, are those of the report.

    None where nobody can say: the report does not name its weights, or the folder has none.
    """
    wanted, found = report.subject.sha256, {}
    for name in sorted(os.listdir(folder)) if wanted else ():
        if name.lower().endswith(SUFFIXES):
            # One that is no file, or leads out of the folder, is none of its weights.
            with suppress(MemauditError), open_within(folder, name) as file:
                found[name] = digest(file)
    if not found:
        return None
    for suffix in SUFFIXES:
        lines = [f"{n} {sha256}\n" for n, sha256 in found.items() if n.lower().endswith(suffix)]
        if hashlib.sha256("".join(lines).encode()).hexdigest() == wanted:
            return True
    return wanted in found.values()
