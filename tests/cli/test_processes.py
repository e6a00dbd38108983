"""Starting, streams and signals, in real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from importlib.metadata import EntryPoint

import pytest

import memaudit
from memaudit import registry
from memaudit.cli import main
from memaudit.cli.signals import Stopping
from tests.processes import FOREGROUND

RUN = "import sys; from memaudit.cli import main; code = main({words!r}); "
LOADED_MODULES = "print(); print(*sorted(sys.modules))"


def python(program: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, **options
    )


def loaded(words: list[str]) -> set[str]:
    """The modules that a command has imported when it is done."""
    return set(python(RUN.format(words=words) + LOADED_MODULES).stdout.splitlines()[-1].split())


HELP = (["--help"], ["--version"], ["scan", "--help"])
TELLING = (["list"], ["list", "adapters", "no*"], ["explain", "MA102"], ["explain", "horizon"])
ZOOS = {"torch", "transformers", "timm", "memaudit_rnn", "memaudit_ssm"}
#: What reads, computes or draws, and takes longer to load than a line of text to print.
HEAVY = {"numpy", "scipy", "pandas", "matplotlib", "jinja2", "huggingface_hub", "safetensors"}
HEAVY |= {"yaml", "msgpack", "asyncio", "pygments", "memaudit.audit", "memaudit.loading"}
#: What measures and what shows it, contracts of plugins, and the files that a scan writes.
ROOMS = ("subjects", "numerics", "writers", "report", "records", "sections", "interfaces", "texts")


@pytest.mark.parametrize("words", [*HELP, *TELLING, ["scan", "x"]])
def test_no_zoo_is_imported_for(words):
    found = loaded(words)
    assert "memaudit.cli" in found
    assert not found & ZOOS


@pytest.mark.parametrize("words", TELLING)
def test_list_and_explain_load_no_numbers_no_page_and_no_other_command(words):
    found = loaded(words)
    assert "memaudit.cli.inventory" in found
    others = {f"memaudit.cli.{name}" for name in ("scan", "family", "diff", "retrofit", "files")}
    assert not found & (HEAVY | others)


@pytest.mark.parametrize("words", HELP)
def test_help_and_version_load_no_numbers_no_page_and_nothing_that_measures(words):
    """Typer and rich take what they take; of memaudit only commands and options are there."""
    drawn_by_typer = {"pygments"}
    assert not loaded(words) & (HEAVY - drawn_by_typer | {f"memaudit.{room}" for room in ROOMS})


def test_the_version_is_the_packages(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"memaudit {memaudit.__version__}\n"


def test_help_names_every_command(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("scan", "list", "explain", "doctor", "MEMAUDIT_"))


def test_no_command_shows_the_help_but_is_no_success(capsys):
    assert main([]) == 2
    assert "Usage" in capsys.readouterr().out


def test_an_unknown_command_is_one_line(capsys):
    assert main(["scna"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.startswith("memaudit: error[E_ARGUMENT] No such command 'scna'")


def test_a_reader_who_leaves_is_no_error():
    program = RUN.format(words=["list"]) + "sys.exit(code)"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 0


# Closed streams, full disks and signals, in real processes; formats that fail.


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a POSIX shell, /dev/full")

#: The command line with an audit that is played, so that no model has to run.
PLAYED = """
import sys, types
from tests.cli.played import Interrupted, Stage
from tests.handmade import of_kind, report
stage = Stage()
stage.answer = report(of_kind("persistent"))
module = types.ModuleType("memaudit.audit")
module.scan, module.Interrupted = stage.scan, Interrupted
import memaudit
memaudit.audit = sys.modules["memaudit.audit"] = module
from memaudit.cli import main
sys.exit(main(sys.argv[1:]))
"""

#: Ctrl-C at the moment when a module is looked for.
STOPPED = """
import sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Finder())
from memaudit.cli import main
sys.exit(main(["scan", "demo:lstm"]))
"""

#: An audit that does not let itself be stopped: it counts the signals that it swallows.
STUBBORN = f"""{FOREGROUND}
import types
from tests.cli.played import Interrupted

def scan(source, **arguments):
    while True:
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            print("swallowed", flush=True)

module = types.ModuleType("memaudit.audit")
module.scan, module.Interrupted = scan, Interrupted
import memaudit
memaudit.audit = sys.modules["memaudit.audit"] = module
from memaudit.cli.app import main
from memaudit.cli.signals import Stopping
Stopping.ECHO = 0.0
sys.exit(main(["scan", "demo:lstm"]))
"""

#: Loaded with the commands, by the command, and by the audit.
LOADED = ["typer", "memaudit.cli.scan", "torch.nn"]


def shell(arguments: str, redirection: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["sh", "-c", f'"$0" -c "$1" {arguments} {redirection}', sys.executable, PLAYED],
        capture_output=True,
        text=True,
    )


def test_an_error_without_stderr_does_not_go_to_stdout():
    done = shell("scan nowhere.pt", "2>&-")
    assert (done.returncode, done.stdout) == (3, "")


def test_a_gate_without_stderr_leaves_stdout_to_the_report():
    done = shell("scan demo:lstm --json - --fail-on warning", "2>&-")
    assert done.returncode == 1
    assert done.stdout.startswith("{")
    assert done.stdout.endswith("}\n")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("scan demo:lstm --json -", 0),
        ("scan demo:lstm --fail-on warning", 1),
        ("--help", 0),
    ],
)
def test_without_stdout_the_exit_code_is_kept(arguments, code):
    done = shell(arguments, ">&-")
    assert done.returncode == code
    assert done.stderr.count("\n") == (code != 0)


def test_without_any_stream_the_exit_code_is_kept():
    assert shell("scan demo:lstm --fail-on warning", "<&- >&- 2>&-").returncode == 1


@pytest.mark.parametrize("arguments", ["scan demo:lstm --json -", "--help"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_stdout_exits_with_five(arguments, unbuffered, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    done = shell(arguments, ">/dev/full")
    assert done.returncode == 5
    assert done.stderr.startswith("memaudit: error[E_DISK] ")
    assert "No space left" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("module", LOADED)
def test_ctrl_c_while_the_program_loads_is_one_line(module):
    done = subprocess.run([sys.executable, "-c", STOPPED, module], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "memaudit: interrupted before anything was measured\n"


def test_the_third_signal_ends_a_run_that_swallows_the_others():
    done = subprocess.run([sys.executable, "-c", STUBBORN], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (143, "swallowed\n" * 2)
    assert done.stderr == ""


def test_signal_handlers_are_given_back():
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    assert main(["--version"]) == 0
    assert [signal.getsignal(number) for number in numbers] == before


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda number, frame: None])
def test_a_handler_of_somebody_else_is_left_alone(handler):
    before = signal.signal(signal.SIGTERM, handler)
    try:
        with Stopping():
            assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_command_line_works_on_another_thread():
    codes = []
    thread = threading.Thread(target=lambda: codes.append(main(["--version"])))
    thread.start()
    thread.join()
    assert codes == [0]


@pytest.mark.parametrize("arguments", ["--help", "scan demo:lstm"])
def test_a_terminal_that_hung_up_is_a_reader_who_has_left(arguments):
    master, slave = os.openpty()
    os.close(master)
    done = subprocess.run(
        [sys.executable, "-c", PLAYED, *arguments.split()],
        stdout=slave,
        stderr=subprocess.PIPE,
    )
    os.close(slave)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.fixture
def strange_format(monkeypatch, tmp_path):
    """Registers a plugin's report format with that body of `render`."""

    def register(body: str) -> None:
        code = f"""
from memaudit.interfaces import AbstractReportFormat

class Strange(AbstractReportFormat):
    name, summary, suffix = "strange", "does what it likes", ".txt"

    def render(self, report):
        {body}
"""
        (tmp_path / "strange_format.py").write_text(code)
        point = EntryPoint("strange", "strange_format:Strange", "memaudit.reports")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "strange_format", raising=False)
        monkeypatch.setattr(registry, "_points", lambda kind: [point] * (kind == "reports"))

    return register


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("raise ZeroDivisionError('never')", "ZeroDivisionError: never"),
        ("raise SystemExit(0)", "SystemExit: 0"),
    ],
)
def test_a_plugins_format_that_fails_keeps_the_other_reports(
    run, strange_format, body, told, tmp_path
):
    strange_format(body)
    words = ("--report", f"strange={tmp_path}/s.txt", "--report", f"terminal={tmp_path}/r.txt")
    code, out, err = run("--json", str(tmp_path / "r.json"), *words)
    assert code == 5
    assert "error[E_PLUGIN]" in err
    assert told in err
    assert err.count("\n") == 1
    assert out.startswith("memaudit demo:lstm")
    made = {p.name for p in tmp_path.iterdir() if p.is_file()} - {"strange_format.py"}
    assert made == {"r.json", "r.txt"}


def test_signs_that_an_encoding_has_not_are_spelled_out():
    program = (
        "from rich.text import Text; from memaudit.cli.output import show, to_stdout; "
        "show(Text('a \\u2192 b\\u2026 R\\u00b2')); to_stdout('a \\u2192 b')"
    )
    told = {}
    for encoding in ("ascii", "utf-8"):
        own = {**os.environ, "PYTHONIOENCODING": encoding}
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, env=own)
        told[encoding] = done.stdout.decode()
    # What other programs read stays data: only words are spelled out.
    assert told == {"ascii": "a -> b... R^2\na \\u2192 b", "utf-8": "a → b… R²\na → b"}


@pytest.mark.parametrize("term", ["dumb", "xterm"])
def test_a_terminal_without_colours_has_its_own_width(term):
    """Rich takes 80 columns for granted where TERM is "dumb"."""
    import fcntl
    import pty
    import struct
    import termios

    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 44, 0, 0))
    unset = ("COLUMNS", "LINES", "FORCE_COLOR", "TTY_COMPATIBLE")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    asked = "from memaudit.cli.output import console; print(*console().size, flush=True)"
    subprocess.run(
        [sys.executable, "-c", asked],
        stdout=child,
        env={**environment, "TERM": term, "NO_COLOR": "1"},
        check=True,
    )
    os.close(child)
    told = os.read(parent, 100).decode().split()
    os.close(parent)
    assert told == ["44", "30"]


# Signals that come while Python is busy in a long native step.


#: The step is a command of the shell: Python handles no signal before it ends.
SCRIPT = f"""{FOREGROUND}
from memaudit.cli import signals

reader, writer = os.pipe()
os.set_inheritable(reader, True)
say = signals.say

def tell(words):
    say(words)
    os.write(writer, b"\\n")

signals.say = tell
signals.Stopping.PATIENCE, signals.Stopping.ECHO = 0.0, -1.0
code = 0
with signals.Stopping() as stopping:
    try:
        os.system(sys.argv[1].format(pid=os.getpid(), until_said=f"read word <&{{reader}}"))
    except KeyboardInterrupt:
        code = stopping.exit_code(130)
        print("kept")
sys.exit(code)
"""
WAITING = "memaudit: stopping after the pass that is under way; once more to stop at once\n"


@pytest.mark.parametrize(
    ("step", "outcome"),
    [
        ("kill -TERM {pid}; {until_said}", (143, "kept\n", WAITING)),
        ("kill -TERM {pid}; {until_said}; kill -HUP {pid}; {until_said}", (143, "", WAITING)),
        ("true", (0, "", "")),
    ],
    ids=["one is answered at once and obeyed later", "a second one ends the process", "none"],
)
def test_signals_in_a_native_step(step, outcome):
    done = subprocess.run([sys.executable, "-c", SCRIPT, step], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == outcome
