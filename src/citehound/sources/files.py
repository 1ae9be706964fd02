"""A folder of files as a source: walks it, names documents, reads the manifest; it does not look into the files."""

from __future__ import annotations

import csv
import io
import os
import stat
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from ..access import glob_pattern
from ..config import FILE_NAME, SourceConfig
from ..documents import RESERVED, Metadata, RawDocument
from ..errors import ConfigError
from . import SkippedFile

MANIFEST = "manifest.csv"
MAX_BYTES = 50 * 1024 * 1024
DOCUMENT_EXTENSIONS = frozenset(
    [
        "md",
        "markdown",
        "mdown",
        "mkd",
        "mdx",
        "txt",
        "text",
        "rst",
        "rest",
        "html",
        "htm",
        "xhtml",
        "adoc",
        "pdf",
        "docx",
        "doc",
        "odt",
        "rtf",
        "xlsx",
        "xls",
        "ods",
        "pptx",
        "ppt",
        "odp",
        "csv",
        "tsv",
        "json",
        "jsonl",
        "ndjson",
        "docm",
        "xlsm",
        "xlsb",
        "pptm",
        "xml",
        "eml",
        "epub",
        "tex",
    ]
)
"""Extensions that come off an id."""


@dataclass(frozen=True, kw_only=True)
class _Found:
    path: str
    """Relative to the source's folder, POSIX, NFC."""
    on_disk: Path


@dataclass(frozen=True, kw_only=True)
class _Manifest:
    rows: Mapping[str, Metadata] = field(default_factory=dict[str, Metadata])
    """By path relative to the source's folder."""
    warnings: tuple[SkippedFile, ...] = ()


def documents(
    source: SourceConfig, config_root: Path, known: Mapping[str, str], *, only: str | None = None
) -> Iterator[RawDocument | SkippedFile]:
    """Every file of the source's folder, sorted by path, as a document or as skipped with its reason.

    `known` maps a path to the id it was given before. With `only`, just the file with this path is read.
    Raises ConfigError when the folder cannot be read.
    """
    root = source.path if source.path.is_absolute() else config_root / source.path
    try:
        root = root.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"source {source.name!r}: folder {str(root)!r} cannot be read; check its `path`") from error
    if not root.is_dir():
        raise ConfigError(f"source {source.name!r}: {str(root)!r} is not a folder; set `path` to a folder")
    found: dict[str, _Found] = {}
    skipped: list[SkippedFile] = []
    for entry in _walk(root):
        if isinstance(entry, SkippedFile):
            skipped.append(entry)
        elif entry.path in found:
            skipped.append(
                SkippedFile(path=entry.path, reason="another file has the same name in another Unicode form")
            )
        else:
            found[entry.path] = entry
    manifest = _manifest(root)
    if manifest is not None:
        skipped.extend(manifest.warnings)
        for path in manifest.rows:
            if path not in found and not any(s.path == path for s in skipped):
                skipped.append(SkippedFile(path=path, reason="listed in manifest but missing"))
    wanted: list[_Found] = []
    for path in sorted(found):
        reason = _unwanted(path, source=source, manifest=manifest)
        if reason is None:
            wanted.append(found[path])
        else:
            skipped.append(SkippedFile(path=path, reason=reason))
    wanted, doubled = _without_doubles(wanted)
    skipped.extend(doubled)
    ids = _ids(source.name, [entry.path for entry in wanted], known)
    yield from sorted(skipped, key=lambda s: s.path)
    for entry in wanted:
        if only is not None and entry.path != only:
            continue
        data = _read(entry.on_disk, root)
        if isinstance(data, str):
            yield SkippedFile(path=entry.path, reason=data)
            continue
        row = manifest.rows.get(entry.path) if manifest is not None else None
        yield RawDocument(
            id=ids[entry.path],
            source=source.name,
            path=entry.path,
            data=data,
            metadata=_named(row or {}, source.metadata),
            names=dict(source.metadata),
            listed=row is not None,
        )


def one(file: Path) -> RawDocument | SkippedFile:
    """One file by itself, outside of any source."""
    data = _read(file, file.parent)
    if isinstance(data, str):
        return SkippedFile(path=file.name, reason=data)
    return RawDocument(id=without_extension(file.name), source="", path=file.name, data=data)


def bytes_of(source: SourceConfig, config_root: Path, path: str) -> bytes | None:
    """What stands in the file of a source now; None where it cannot be read any more.

    `path` is as `documents` gave it; a name that the disk has in another Unicode form is looked for.
    """
    try:
        root = (source.path if source.path.is_absolute() else config_root / source.path).resolve(strict=True)
    except (OSError, RuntimeError):
        return None
    if not (root / path).exists():
        found = next((e for e in _walk(root) if isinstance(e, _Found) and e.path == path), None)
        data = None if found is None else _read(found.on_disk, root)
    else:
        data = _read(root / path, root)
    return data if isinstance(data, bytes) else None


def _named(row: Metadata, names: Mapping[str, str]) -> Metadata:
    """The row under the configured names; empty cells say nothing."""
    values = {key: value for key, value in row.items() if value and key not in RESERVED}
    for name, column in names.items():
        if name not in RESERVED and row.get(column):
            values[name] = row[column]
    return values


def _walk(root: Path) -> Iterator[_Found | SkippedFile]:
    """Depth first, sorted by name, never through a link."""
    pending: list[tuple[Path, str]] = [(root, "")]
    while pending:
        folder, prefix = pending.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda e: e.name)
        except OSError as error:
            yield SkippedFile(path=prefix or ".", reason=f"folder cannot be read: {error.strerror}")
            continue
        below: list[tuple[Path, str]] = []
        for entry in entries:
            path = unicodedata.normalize("NFC", prefix + entry.name)
            try:
                entry.name.encode("utf-8")
            except UnicodeEncodeError:
                printable = path.encode("utf-8", "backslashreplace").decode("utf-8")
                yield SkippedFile(path=printable, reason="file name is not valid Unicode")
                continue
            if any(unicodedata.category(c) in ("Cc", "Cs") for c in entry.name):
                printable = path.encode("unicode_escape").decode("ascii")
                yield SkippedFile(path=printable, reason="file name has control characters")
                continue
            if entry.name.startswith(".") or entry.name == FILE_NAME:
                continue  # nobody expects these to be read, Citehound's own state among them: not worth a line
            try:
                mode = entry.stat(follow_symlinks=False).st_mode
            except OSError as error:
                yield SkippedFile(path=path, reason=f"cannot be read: {error.strerror}")
                continue
            if stat.S_ISLNK(mode):
                reason = _bad_link(Path(entry.path), root)
                yield SkippedFile(path=path, reason=reason) if reason else _Found(path=path, on_disk=Path(entry.path))
            elif stat.S_ISDIR(mode):
                below.append((Path(entry.path), prefix + entry.name + "/"))
            elif stat.S_ISREG(mode):
                yield _Found(path=path, on_disk=Path(entry.path))
            else:
                yield SkippedFile(path=path, reason="not a regular file (pipe, socket or device)")
        pending.extend(reversed(below))


def _bad_link(path: Path, root: Path) -> str | None:
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):
        return "broken link"
    if not target.is_relative_to(root):
        return "link that leaves the source's folder"
    if any(part.startswith(".") for part in target.relative_to(root).parts):
        return "link to a hidden file"
    return None if target.is_file() else "link to something that is not a file"


def _without_doubles(wanted: list[_Found]) -> tuple[list[_Found], list[SkippedFile]]:
    """Leaves out links to a file that is read anyway, under its own name or an earlier link's."""
    links = {entry.path: entry.on_disk.resolve() for entry in wanted if entry.on_disk.is_symlink()}
    read = {entry.on_disk: entry.path for entry in wanted if entry.path not in links}
    doubled: list[SkippedFile] = []
    for path, target in links.items():
        first = read.setdefault(target, path)
        if first != path:
            doubled.append(SkippedFile(path=path, reason=f"link to {first}, which is read already"))
    gone = {skip.path for skip in doubled}
    return [entry for entry in wanted if entry.path not in gone], doubled


def _read(path: Path, root: Path) -> bytes | str:
    """The bytes, or the reason why not. The file may have changed since the walk, so everything is checked again."""
    try:
        real = path.resolve(strict=True)
        if not real.is_relative_to(root):
            return "link that leaves the source's folder"
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        with open(os.open(real, flags), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return "not a regular file (pipe, socket or device)"
            if status.st_size > MAX_BYTES:
                return f"larger than {MAX_BYTES // 1024 // 1024} MB"
            data = file.read(MAX_BYTES + 1)
    except (OSError, RuntimeError) as error:
        return f"cannot be read: {getattr(error, 'strerror', None) or error}"
    return data if len(data) <= MAX_BYTES else f"larger than {MAX_BYTES // 1024 // 1024} MB"


def _unwanted(path: str, *, source: SourceConfig, manifest: _Manifest | None) -> str | None:
    if manifest is not None and path not in manifest.rows:
        return "not listed in manifest"
    if path == MANIFEST:
        return "the manifest itself"
    if source.include and not any(glob_pattern(pattern).fullmatch(path) for pattern in source.include):
        return "not included by the configuration"
    if any(glob_pattern(pattern).fullmatch(path) for pattern in source.exclude):
        return "excluded by the configuration"
    return None


def _ids(source: str, paths: list[str], known: Mapping[str, str]) -> dict[str, str]:
    """An id for each path: the one it had, else the path without its extension, else what does not clash."""
    ids = {path: known[path] for path in paths if path in known}
    taken = set(known.values())
    for path in paths:
        if path in ids:
            continue
        name = f"{source}/{without_extension(path)}"
        if name in taken:
            name = f"{source}/{path}"
        number = 2
        while name in taken:
            name = f"{source}/{path}-{number}"
            number += 1
        ids[path] = name
        taken.add(name)
    return ids


def without_extension(path: str) -> str:
    """A path without its extension, if that is one of documents."""
    suffix = PurePosixPath(path).suffix
    return path.removesuffix(suffix) if suffix[1:].lower() in DOCUMENT_EXTENSIONS else path


def _manifest(root: Path) -> _Manifest | None:
    """The nearest manifest.csv, in the folder or above, that lists a file below the folder."""
    for folder in (root, *root.parents):
        path = folder / MANIFEST
        try:
            status = path.lstat()
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
                continue
            text = path.read_bytes().decode("utf-8-sig", "replace")
        except OSError:
            continue
        manifest = _rows(text, folder=folder, root=root)
        if manifest is not None and (manifest.rows or folder == root):
            return manifest
    return None


def _rows(text: str, *, folder: Path, root: Path) -> _Manifest | None:
    dialect = "excel"
    first = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=first.count)
    reader = csv.DictReader(io.StringIO(text, newline=""), dialect=dialect, delimiter=delimiter)
    try:
        columns = [name.strip().lower() for name in reader.fieldnames or ()]
    except csv.Error:
        return None
    if "path" not in columns:
        return None
    reader.fieldnames = columns
    prefix = root.relative_to(folder).as_posix()
    prefix = "" if prefix == "." else unicodedata.normalize("NFC", prefix) + "/"
    rows: dict[str, Metadata] = {}
    warnings: list[SkippedFile] = []
    try:
        for row in reader:
            cells = {k: v.strip() for k, v in row.items() if isinstance(k, str) and isinstance(v, str)}
            path = unicodedata.normalize("NFC", cells.get("path", "").replace("\\", "/")).removeprefix("./")
            if not path:
                continue
            if path.startswith("/") or ".." in path.split("/"):
                warnings.append(SkippedFile(path=path, reason="listed in manifest with a path that leaves its folder"))
                continue
            if not path.startswith(prefix):
                continue
            path = path[len(prefix) :]
            if path in rows:
                warnings.append(SkippedFile(path=path, reason="listed twice in manifest; the first row counts"))
                continue
            rows[path] = cells
    except csv.Error as error:
        warnings.append(SkippedFile(path=MANIFEST, reason=f"manifest ends early: {error}"))
    return _Manifest(rows=rows, warnings=tuple(warnings))
