"""Measures reading of documents in all formats: speed, memory, fidelity, beside other readers if installed.

    python benchmarks/ingest.py [--data DIR]... [--cases FILE]... [--suffix .pdf]... [--reader R]... [--json]

Each reader runs in a process of its own over the same files: `make bench-ingest` installs the others. Fidelity is the
share of the evidence patterns of the cases that stand in the text, and the shares of the words and of the characters of
`pdftotext -layout` (or pandoc) that are found, where these programs are on the path. A second table is per format.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import importlib.util
import json
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).resolve().parents[1]
READERS = ("citehound", "markitdown", "kreuzberg")
SUFFIXES = (
    *(".pdf", ".docx", ".xlsx", ".pptx", ".odt", ".csv", ".eml", ".json", ".jsonl"),
    *(".html", ".md", ".txt", ".rst"),
)


def main() -> None:
    """Runs every reader that is installed and prints one line for each."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    options.add_argument(
        "--data", type=Path, action="append", default=[], help="folders; default: corpora and awkward files"
    )
    options.add_argument("--reader", choices=READERS, action="append", default=[], help="only this one; repeatable")
    options.add_argument("--cases", type=Path, action="append", default=[], help="files of evidence patterns")
    options.add_argument("--suffix", action="append", default=[], help="only files of this kind, as .pdf; repeatable")
    options.add_argument("--json", action="store_true")
    options.add_argument("--worker", choices=READERS, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    shared = ROOT.parent / "shared" / "data"
    data: list[Path] = chosen.data or [shared / "corpora", shared / "awkward"]
    cases: list[Path] = chosen.cases or [
        path for folder in data for path in sorted(folder.rglob("cases.evidence.jsonl"))
    ]
    if chosen.worker:
        print(json.dumps(_measure(chosen.worker, data, cases, tuple(chosen.suffix) or SUFFIXES)))
        return
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="citehound-ingest-") as scratch:
        _generate(data, Path(scratch))
        for reader in chosen.reader or READERS:
            if importlib.util.find_spec(reader) is None:
                print(f"{reader}: not installed, left out", file=sys.stderr)
                continue
            command = [sys.executable, __file__, "--worker", reader]
            for folder in (*data, Path(scratch)):
                command += ["--data", str(folder)]
            for case in cases:
                command += ["--cases", str(case)]
            for suffix in chosen.suffix:
                command += ["--suffix", suffix]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
            if done.returncode or not lines:
                print(f"{reader}: failed: {done.stderr.strip()[-300:]}", file=sys.stderr)
                continue
            results.append(json.loads(lines[-1]))
    if chosen.json:
        print(json.dumps(results, indent=2))
        return
    print(f"{'reader':<12}{'files':>6}{'failed':>7}{'pages':>7}{'files/s':>9}{'pages/s':>9}{'CPU s':>8}{'MB peak':>9}"
          f"{'evidence':>10}{'words':>8}{'characters':>12}")  # fmt: skip
    for r in results:
        words, characters = ("-" if r[key] is None else f"{r[key]:.1%}" for key in ("words", "characters"))
        print(
            f"{r['reader']:<12}{r['files']:>6}{r['failed']:>7}{r['pages']:>7}{r['files_per_second']:>9.1f}"
            f"{r['pages_per_second']:>9.1f}{r['cpu_seconds']:>8.1f}{r['peak_mb']:>9.0f}{r['evidence_found']:>5}/{r['evidence']:<4}{words:>8}{characters:>12}"
        )
    print(
        f"\n{'format':<8}{'reader':<12}{'files':>6}{'failed':>7}{'files/s':>9}{'evidence':>10}{'words':>8}{'characters':>12}"
    )
    for suffix in sorted({suffix for r in results for suffix in r["formats"]}):
        for r in results:
            if (f := r["formats"].get(suffix)) is not None:
                shares = ["-" if f[key] is None else f"{f[key]:.1%}" for key in ("words", "characters")]
                print(
                    f"{suffix:<8}{r['reader']:<12}{f['files']:>6}{f['failed']:>7}{f['files_per_second']:>9.1f}"
                    f"{f['evidence_found']:>5}/{f['evidence']:<4}{shares[0]:>8}{shares[1]:>12}"
                )
    for r in results:
        for note in r["notes"]:
            print(f"{r['reader']}: {note}", file=sys.stderr)


def _generate(data: list[Path], folder: Path) -> None:
    """Files of the kinds that corpora lack, made of the first Markdown files; what must be found stands beside each."""
    sources = [path for root in data for path in sorted(root.rglob("*.md")) if 2_000 < path.stat().st_size < 60_000][:8]
    for number, source in enumerate(sources):
        if shutil.which("pandoc") is None:
            print("pandoc is not installed: no files are made for formats that the data lacks", file=sys.stderr)
            return
        place = folder / f"{number}"
        plain = _run(["pandoc", "-f", "gfm", "-t", "plain", "--wrap=none", str(source)])
        for kind in ("docx", "odt", "pptx", "rst", "html"):
            made = place.with_suffix(f".{kind}")
            _run(["pandoc", "-f", "gfm", "-s", "--metadata", "title=x", "-t", kind, "-o", str(made), str(source)])
        mail = EmailMessage()
        mail["From"], mail["Subject"], mail["Date"] = "a@b.example", source.stem, "Mon, 03 Mar 2025 10:00:00 +0100"
        mail.set_content(plain)
        place.with_suffix(".eml").write_bytes(mail.as_bytes())
        records = [{"number": n, "text": text} for n, text in enumerate(plain.split("\n\n")) if text.strip()]
        place.with_suffix(".json").write_text(json.dumps(records), "utf-8")
        place.with_suffix(".jsonl").write_text("".join(json.dumps(r) + "\n" for r in records), "utf-8")
        with place.with_suffix(".csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([["number", "text"], *([r["number"], r["text"]] for r in records)])
        place.with_suffix(".plain").write_text(plain, "utf-8")


def _run(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _measure(reader: str, data: list[Path], cases: list[Path], suffixes: tuple[str, ...]) -> dict[str, Any]:
    files = sorted(p for root in data for p in root.rglob("*") if p.suffix.lower() in suffixes)
    read = _reader(reader)
    texts: dict[Path, str] = {}
    notes: list[str] = []
    pages = 0
    took: defaultdict[str, float] = defaultdict(float)
    before = time.process_time()
    for path in files:
        start = time.perf_counter()
        try:
            texts[path] = read(path)
        except Exception as error:
            notes.append(f"{path.name}: {type(error).__name__}: {str(error)[:100]}")
        took[path.suffix.lower()] += time.perf_counter() - start
    seconds = sum(took.values())
    cpu = time.process_time() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for path in files:
        if path.suffix.lower() == ".pdf":
            pages += _page_count(path)
    total: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for case in cases:
        for line in case.read_text("utf-8").splitlines():
            for name, patterns in json.loads(line)["evidence_regex"].items():
                path = case.parent / name
                if path.suffix.lower() not in suffixes:
                    continue
                text = re.sub(r"\s+", " ", texts.get(path, ""))
                for pattern in patterns:
                    total[path.suffix.lower()] += 1
                    if re.search(pattern, text):
                        found[path.suffix.lower()] += 1
                    else:
                        notes.append(f"evidence not found in {path.name}: {pattern}")
    yardsticks = {path: _yardstick(path) for path in texts}

    def shares(kinds: tuple[str, ...]) -> tuple[float | None, float | None]:
        """Of the yardstick's words and characters, those that are found, by count; running heads count too."""
        got = [0, 0]
        wanted = [0, 0]
        for path, yardstick in yardsticks.items():
            if yardstick is None or path.suffix.lower() not in kinds:
                continue
            for at, pattern in enumerate((r"\w{2,}", r"\S")):
                theirs = Counter(re.findall(pattern, yardstick.casefold()))
                mine = Counter(re.findall(pattern, texts[path].casefold()))
                wanted[at] += theirs.total()
                got[at] += (theirs & mine).total()
        words, characters = (g / w if w else None for g, w in zip(got, wanted, strict=True))
        return words, characters

    return {
        "reader": reader,
        "files": len(files),
        "failed": len(files) - len(texts),
        "pages": pages,
        "files_per_second": len(files) / seconds if seconds else 0.0,
        "pages_per_second": pages / seconds if seconds else 0.0,
        "cpu_seconds": cpu,
        "peak_mb": peak,
        "evidence": total.total(),
        "evidence_found": found.total(),
        "words": shares(tuple(suffixes))[0],
        "characters": shares(tuple(suffixes))[1],
        "formats": {
            suffix: {
                "files": sum(p.suffix.lower() == suffix for p in files),
                "failed": sum(p.suffix.lower() == suffix and p not in texts for p in files),
                "files_per_second": sum(p.suffix.lower() == suffix for p in files) / seconds,
                "evidence": total[suffix],
                "evidence_found": found[suffix],
                "words": shares((suffix,))[0],
                "characters": shares((suffix,))[1],
            }
            for suffix, seconds in took.items()
            if seconds
        },
        "notes": notes,
    }


def _page_count(path: Path) -> int:
    pdfium: Any = importlib.import_module("pypdfium2")
    try:
        return len(pdfium.PdfDocument(path))
    except pdfium.PdfiumError:
        return 0


def _yardstick(path: Path) -> str | None:
    """What pdftotext or pandoc reads of a file."""
    kind = path.suffix.lower()
    if (beside := path.with_suffix(".plain")).exists():
        return beside.read_text("utf-8")
    if kind == ".pdf" and shutil.which("pdftotext"):
        command = ["pdftotext", "-layout", str(path), "-"]
    elif kind in (".docx", ".odt") and shutil.which("pandoc"):
        command = ["pandoc", "--track-changes=accept", "-t", "plain", str(path)]
    else:
        return None
    return _run(command)


def _reader(name: str) -> Callable[[Path], str]:
    """A function from a path to its text."""
    if name == "markitdown":
        converter: Any = cast(Any, importlib.import_module("markitdown")).MarkItDown()

        def read_markitdown(path: Path) -> str:
            return str(converter.convert(str(path)).text_content)

        return read_markitdown
    if name == "kreuzberg":
        kreuzberg: Any = importlib.import_module("kreuzberg")

        def read_kreuzberg(path: Path) -> str:
            return str(kreuzberg.extract_file_sync(str(path)).content)

        return read_kreuzberg
    return _own


def _own(path: Path) -> str:
    from citehound.documents import RawDocument
    from citehound.parsing import parse

    document = parse(RawDocument(id="b/x", source="b", path=path.name, data=path.read_bytes()))
    about = "\n".join(f"{key}: {value}" for key, value in document.metadata.items())  # others leave it in the text
    return f"{about}\n{document.text}"


if __name__ == "__main__":
    main()
