"""How many bytes may be opened: what the user says, or the memory that is there."""

import pytest

from memaudit.errors import SourceError
from memaudit.loading import access
from memaudit.loading.access import Access, Limits, available_memory, human_size, require_room

GIGABYTE = 1 << 30


def machine(root, files):
    """A system of our own: path → text."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


MEMINFO = "MemTotal:       32000000 kB\nMemAvailable:   20971520 kB\nSwapFree: 0 kB\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 20),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 20),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{4 * GIGABYTE}\n"}, 4),
        ({"sys/fs/cgroup/memory.max": f"{30 * GIGABYTE}\n"}, 20),
        (
            {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": f"{3 * GIGABYTE}\n"},
            3,
        ),
        (
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/job/7\n0::/\n",
                "sys/fs/cgroup/memory/job/7/memory.limit_in_bytes": f"{2 * GIGABYTE}\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            2,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/seen/from/outside\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{GIGABYTE}\n",
            },
            1,
        ),
        ({"sys/fs/cgroup/memory.max": "nonsense"}, 20),
    ],
)
def test_the_smallest_limit_counts(tmp_path, files, expected):
    root = machine(tmp_path, {"proc/meminfo": MEMINFO, **files})
    assert available_memory(system=root) == expected * GIGABYTE


def test_a_system_that_says_nothing_is_asked_for_its_pages(tmp_path):
    assert available_memory(system=tmp_path) > 0
    assert available_memory() > 0


def test_what_fits_passes_and_what_does_not_is_said(monkeypatch):
    monkeypatch.setattr(access, "available_memory", lambda: 4 * GIGABYTE)
    require_room(4 * GIGABYTE, Access())
    require_room(2 * GIGABYTE, Access(), copies=2)
    with pytest.raises(SourceError) as caught:
        require_room(5 * GIGABYTE + 1, Access())
    assert caught.value.code == "E_LIMIT"
    assert "5.0 GB" in caught.value.fact
    assert "4.0 GB" in caught.value.fact
    assert caught.value.hint.endswith("--set max_bytes=6G")
    with pytest.raises(SourceError):
        require_room(2 * GIGABYTE + 1, Access(), copies=2)


def test_what_reading_takes_beside_the_weights_is_kept_free(monkeypatch):
    monkeypatch.setattr(access, "available_memory", lambda: 4 * GIGABYTE)
    require_room(3 * GIGABYTE, Access(), beside=GIGABYTE)
    with pytest.raises(SourceError, match=r"memory for 3.0 GB"):
        require_room(3 * GIGABYTE + 1, Access(), beside=GIGABYTE)
    with pytest.raises(SourceError, match="memory for 0 bytes"):
        require_room(1, Access(), beside=5 * GIGABYTE)


def test_the_user_may_say_more_or_less(monkeypatch):
    monkeypatch.setattr(access, "available_memory", lambda: 4 * GIGABYTE)
    require_room(5 * GIGABYTE, Access(limits=Limits(max_bytes=5 * GIGABYTE)), copies=2)
    with pytest.raises(SourceError, match="limit is 1000 bytes"):
        require_room(1001, Access(limits=Limits(max_bytes=1000)))


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1536, "1.5 KB"),
        (1 << 40, "1.0 TB"),
        (1 << 51, "2048.0 TB"),
    ],
)
def test_sizes_are_said_as_people_say_them(size, expected):
    assert human_size(size) == expected
