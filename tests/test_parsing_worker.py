"""The worker: limits, crashes and noise end as one file's ParseError, and the next file is read all the same."""

from __future__ import annotations

import dataclasses
import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from citehound.documents import Attachment, Document, RawDocument, Section, Stated
from citehound.errors import CitehoundError, ParseError
from citehound.parsing import Unsupported, parse
from citehound.parsing.worker import Limits, Worker

# Named in a file's bytes, one of these runs in the child instead of a parser.
PARSERS = """
import ctypes, os, signal, subprocess, sys
from dataclasses import replace
from citehound.documents import Attachment, Document, Section, Stated
from citehound.errors import ParseError
from citehound.parsing import Unsupported

files = 0
leak = []

def read(raw, *, language):
    global files
    files += 1
    return globals()[raw.data.decode()](raw, language)

def document(raw, text, **fields):
    return Document(id=raw.id, source=raw.source, path=raw.path, title="T", text=text, **fields)

def well(raw, language):
    return document(raw, f"file {files}")

def loop(raw, language):
    while True:
        pass

def allocate(raw, language):
    parts = []
    while True:
        parts.append(bytearray(1 << 20))

def allocate_wrapped(raw, language):
    try:
        allocate(raw, language)
    except Exception as error:
        raise ParseError("cannot be read as PDF") from error

def leaky(raw, language):
    leak.append(bytearray(25 << 20))
    return document(raw, f"file {files}")

def hoard(raw, language):
    leak.append(bytearray(45 << 20))
    return document(raw, f"file {files}")

def abort(raw, language):
    os.abort()

def segfault(raw, language):
    ctypes.string_at(0)

def leave(raw, language):
    sys.exit(3)

def vanish(raw, language):
    os._exit(0)

def crash_when_used(raw, language):
    if files > 1:
        os.abort()
    return well(raw, language)

def noise(raw, language):
    print("to stdout", flush=True)
    os.write(1, b"\\0" * 100)
    os.write(2, b"x" * 100)
    subprocess.run([sys.executable, "-c", "print('from a grandchild')"])
    assert sys.stdin.read() == ""
    return well(raw, language)

def recurse(raw, language):
    return recurse(raw, language)

def verbose(raw, language):
    return document(raw, "x" * 2001)

def refuse(raw, language):
    raise Unsupported("format not supported yet: 'é' \\u4e2d")

def fail(raw, language):
    raise ParseError("line 3: no such 'thing'")

def surprise(raw, language):
    raise OSError("disk on fire")

def environment(raw, language):
    return document(raw, ",".join(sorted(os.environ)))

def alarm(raw, language):
    return document(raw, str(0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 7))

def echo(raw, language):
    return document(raw, repr((raw, language)))

def full(raw, language):
    return document(
        raw, "a\\ud800é\\U0001f600 b", sections=(Section(id="1", title="One", level=1, start=0, end=6, number="1"),
        Section(id="1.1", title="Two", level=2, start=2, end=6, number="1.1", parent="1")),
        metadata={"status": "draft"}, language="de", pages=(0, 3), warnings=("w",),
        stated=Stated(title="S", metadata={"a": "b"}, language="fr", format="F", tables=2),
        attachments=(Attachment(name="é.txt", data=b"\\x00\\xff", media_type="text/plain"),
        Attachment(name="2", data=b"two")))

def usurp(raw, language):
    return replace(document(raw, "x", metadata={"Access": "all", "tenant": "me", "status": "final"}),
        id="other/one", source="other", path="one.md")

def outside(raw, language):
    return document(raw, "short", sections=(Section(id="1", title="One", level=1, start=0, end=99),))

def backwards(raw, language):
    return document(raw, "short", sections=(Section(id="1", title="One", level=1, start=4, end=1),))

def number_title(raw, language):
    return replace(document(raw, "short"), title=7)
"""

Make = Callable[..., Worker]


def file(name: str, **fields: Any) -> RawDocument:
    return RawDocument(id="s/a", source="s", path="a.md", data=name.encode(), **fields)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "misbehaving.py").write_text(textwrap.dedent(PARSERS), encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    workers: list[Worker] = []

    def build(**limits: Any) -> Worker:
        workers.append(Worker(limits=Limits(**limits), target="misbehaving:read"))
        return workers[-1]

    yield build
    for worker in workers:
        worker.close()


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """One process for the tests that neither set limits nor count files."""
    folder = tmp_path_factory.mktemp("parsers")
    (folder / "misbehaving.py").write_text(textwrap.dedent(PARSERS), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(folder), *sys.path])
        with Worker(target="misbehaving:read") as worker:
            worker.read(file("well"), language=None)
            yield worker


def outcome(worker: Worker, name: str) -> str:
    """The reason of the failure, after which another file must be read."""
    with pytest.raises(ParseError) as caught:
        worker.read(file(name), language=None)
    assert worker.read(file("well"), language=None).text.startswith("file ")
    assert type(caught.value) is ParseError
    return str(caught.value)


def test_a_file_is_read_as_without_the_worker() -> None:
    data = "---\ntitle: Über\nstatus: draft\n---\n# 1 One\n\nText here.\n\n## 1.1 Two\n\nMore text.\n".encode()
    raw = RawDocument(id="s/a", source="s", path="a.md", data=data, metadata={"owner": "X"}, names={"state": "status"})
    with Worker() as worker:
        assert worker.read(raw, language="en") == parse(raw, language="en")


def test_every_field_comes_through(lasting: Worker) -> None:
    document = lasting.read(file("full"), language=None)
    expected = Document(
        id="s/a",
        source="s",
        path="a.md",
        title="T",
        text="a\ud800é\U0001f600 b",
        sections=(
            Section(id="1", title="One", level=1, start=0, end=6, number="1"),
            Section(id="1.1", title="Two", level=2, start=2, end=6, number="1.1", parent="1"),
        ),
        metadata={"status": "draft"},
        language="de",
        pages=(0, 3),
        warnings=("w",),
        stated=Stated(title="S", metadata={"a": "b"}, language="fr", format="F", tables=2),
        attachments=(
            Attachment(name="é.txt", data=b"\x00\xff", media_type="text/plain"),
            Attachment(name="2", data=b"two"),
        ),
    )
    assert document == expected
    assert expected.stated is not None
    for value in (expected, expected.sections[1], expected.stated, expected.attachments[0]):
        for field in dataclasses.fields(value):
            assert getattr(value, field.name), f"{field.name} is new: send it too"


def test_every_field_of_the_file_reaches_the_parser(lasting: Worker) -> None:
    raw = file("echo", metadata={"a": "é"}, names={"b": "c"}, listed=True, unpack=True)
    assert lasting.read(raw, language="fr").text == repr((raw, "fr"))


def test_a_parser_that_loops_is_stopped(make: Make) -> None:
    assert outcome(make(seconds=0.3), "loop") == "took longer than 0.3 s"


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux")
@pytest.mark.parametrize("name", ["allocate", "allocate_wrapped"])
def test_a_parser_that_needs_too_much_memory_is_stopped(make: Make, name: str) -> None:
    assert outcome(make(memory=64 << 20), name) == "needed more than 64 MB of memory"


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux")
def test_a_file_too_big_to_be_taken_in_is_a_failure_of_memory(make: Make) -> None:
    worker = make(memory=16 << 20)
    with pytest.raises(ParseError, match="needed more than 16 MB of memory"):
        worker.read(RawDocument(id="s/a", source="s", path="a", data=bytes(40 << 20)), language=None)
    assert worker.read(file("well"), language=None).text == "file 1"


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux")
def test_memory_that_other_files_left_behind_fails_no_file(make: Make) -> None:
    worker = make(memory=64 << 20)
    texts = [worker.read(file(name), language=None).text for name in ["leaky", "hoard", "well"]]
    assert texts == ["file 1", "file 1", "file 1"]  # each in a fresh process: no room was left, then too much was kept


@pytest.mark.parametrize("name", ["abort", "segfault", "vanish"])
def test_a_crash_fails_one_file(make: Make, name: str) -> None:
    assert outcome(make(), name) == "the parser crashed"


def test_a_crash_that_an_earlier_file_may_have_caused_is_tried_once_more(make: Make) -> None:
    worker = make()
    assert [worker.read(file(n), language=None).text for n in ["well", "crash_when_used"]] == ["file 1", "file 1"]


def test_one_process_reads_many_files(make: Make) -> None:
    worker = make()
    assert [worker.read(file("well"), language=None).text for _ in range(3)] == ["file 1", "file 2", "file 3"]


def test_threads_may_share_a_worker(make: Make) -> None:
    worker = make()
    with ThreadPoolExecutor(4) as pool:
        reads = [pool.submit(worker.read, file("well"), language=None) for _ in range(20)]
        texts = [read.result().text for read in reads]
    assert sorted(texts) == sorted(f"file {n}" for n in range(1, 21))


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_a_process_that_was_killed_between_files_fails_none(make: Make) -> None:
    worker = make()
    worker.read(file("well"), language=None)
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
    assert worker.read(file("well"), language=None).text == "file 1"


def test_an_interrupt_leaves_no_half_reply_behind(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = make()
    worker.read(file("well"), language=None)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("citehound.parsing.worker._receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            worker.read(file("full"), language=None)
    assert worker.pid is None
    assert worker.read(file("well"), language=None).text == "file 1"


def test_what_a_parser_prints_stays_out(make: Make) -> None:
    worker = make()
    assert [worker.read(file("noise"), language=None).text for _ in range(2)] == ["file 1", "file 2"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("recurse", "nested too deeply to be read"),
        ("fail", "line 3: no such 'thing'"),
        ("surprise", "cannot be read: OSError: disk on fire"),
        ("leave", "cannot be read: SystemExit: 3"),
    ],
)
def test_an_error_comes_back_with_its_message_and_the_process_goes_on(make: Make, name: str, reason: str) -> None:
    worker = make()
    assert outcome(worker, name) == reason
    assert worker.read(file("well"), language=None).text == "file 3"


def test_unsupported_stays_unsupported(lasting: Worker) -> None:
    with pytest.raises(Unsupported) as caught:
        lasting.read(file("refuse"), language=None)
    assert str(caught.value) == "format not supported yet: 'é' \u4e2d"


def test_too_much_text_is_a_failure(make: Make) -> None:
    assert outcome(make(characters=2000), "verbose") == "more than 2,000 characters of text"
    assert len(make(characters=2001).read(file("verbose"), language=None).text) == 2001


@pytest.mark.parametrize("name", ["outside", "backwards", "number_title"])
def test_what_is_no_document_is_refused(make: Make, name: str) -> None:
    assert outcome(make(), name) == "the parser gave back what is no document"


def test_the_child_cannot_say_who_a_document_is_or_who_may_see_it(lasting: Worker) -> None:
    document = lasting.read(file("usurp", metadata={"tenant": "you"}), language=None)
    assert (document.id, document.source, document.path) == ("s/a", "s", "a.md")
    assert document.metadata == {"status": "final"}


def test_the_child_sees_no_keys(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    assert "SOME_API_KEY" not in make().read(file("environment"), language=None).text


def test_the_current_folder_is_not_imported_from(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "json.py").write_text("raise SystemExit('hostile')", encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    assert make().read(file("well"), language=None).text == "file 1"


def test_a_parser_that_is_not_there_is_no_fault_of_the_file() -> None:
    with Worker(target="citehound.parsing:nothing") as worker, pytest.raises(CitehoundError) as caught:
        worker.read(file("x"), language=None)
    assert not isinstance(caught.value, ParseError)
    assert "does not start: AttributeError" in str(caught.value)


def test_nothing_is_started_before_the_first_file_and_nothing_is_left_after(make: Make) -> None:
    worker = make()
    assert worker.pid is None
    worker.read(file("well"), language=None)
    pid = worker.pid
    assert pid is not None
    worker.close()
    assert worker.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert worker.read(file("well"), language=None).text == "file 1"


@pytest.mark.skipif(sys.platform == "win32", reason="needs a timer of the system")
def test_a_parser_that_loops_does_not_outlive_a_killed_parent_for_long(make: Make) -> None:
    assert make(seconds=3).read(file("alarm"), language=None).text == "True"


@pytest.mark.skipif(sys.platform != "linux", reason="waits for a process that is not its own child")
def test_the_child_ends_when_its_parent_is_killed(make: Make, tmp_path: Path) -> None:
    make()
    script = (
        "import os, signal, sys; from citehound.documents import RawDocument;"
        "from citehound.parsing.worker import Worker; w = Worker(target='misbehaving:read');"
        "w.read(RawDocument(id='s/a', source='s', path='a', data=b'well'), language=None);"
        "print(w.pid, flush=True); sys.stdin.read(1); os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        pid = int(parent.stdout.readline())
        watch = os.pidfd_open(pid)
        parent.stdin.write(b"x")
        parent.stdin.flush()
        parent.wait()
        ended, _, _ = select.select([watch], [], [], 30)
        os.close(watch)
        assert ended
