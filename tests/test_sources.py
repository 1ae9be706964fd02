"""A folder as a source: which files are documents, how they are called, what is refused."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Mapping
from pathlib import Path

import pytest

from citehound.config import SourceConfig
from citehound.documents import RawDocument
from citehound.errors import ConfigError
from citehound.sources import SkippedFile
from citehound.sources.files import documents
from source_conformance import Item, SourceConformance


def make(root: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def walk(
    folder: Path,
    *,
    known: Mapping[str, str] | None = None,
    metadata: Mapping[str, str] | None = None,
    include: tuple[str, ...] = (),
    exclude: tuple[str, ...] = (),
) -> tuple[list[RawDocument], dict[str, str]]:
    source = SourceConfig(name="s", path=folder, metadata=metadata or {}, include=include, exclude=exclude)
    entries = list(documents(source, folder.parent, known or {}))
    found = [entry for entry in entries if isinstance(entry, RawDocument)]
    return found, {entry.path: entry.reason for entry in entries if isinstance(entry, SkippedFile)}


def test_files_come_sorted_with_ids_from_source_and_path(tmp_path: Path) -> None:
    make(tmp_path / "f", {"b.md": "b", "a/v2.1.md": "x", "a/z.html.md.erb": "e", "LICENSE": "l", "README.md": "r"})
    found, skipped = walk(tmp_path / "f")
    assert [(d.path, d.id) for d in found] == [
        ("LICENSE", "s/LICENSE"),
        ("README.md", "s/README"),
        ("a/v2.1.md", "s/a/v2.1"),
        ("a/z.html.md.erb", "s/a/z.html.md.erb"),
        ("b.md", "s/b"),
    ]
    assert found[-1].data == b"b" and not found[-1].listed and skipped == {}


def test_a_newcomer_that_would_clash_keeps_its_extension_and_ids_are_kept(tmp_path: Path) -> None:
    make(tmp_path / "f", {"a.html": "1", "a.md": "2"})
    assert {d.path: d.id for d in walk(tmp_path / "f")[0]} == {"a.html": "s/a", "a.md": "s/a.md"}
    found, _ = walk(tmp_path / "f", known={"a.md": "s/a"})
    assert {d.path: d.id for d in found} == {"a.html": "s/a.html", "a.md": "s/a"}


def test_paths_are_composed_unicode(tmp_path: Path) -> None:
    name = unicodedata.normalize("NFD", "política (cópia) – v2.md")
    make(tmp_path / "f", {name: "x"})
    (document,), _ = walk(tmp_path / "f")
    assert document.path == unicodedata.normalize("NFC", name)
    assert document.id == "s/" + unicodedata.normalize("NFC", name)[:-3]


def test_two_unicode_forms_of_one_name_do_not_overwrite_each_other(tmp_path: Path) -> None:
    make(tmp_path / "f", {unicodedata.normalize(form, "é.md"): form for form in ("NFC", "NFD")})
    if len(list((tmp_path / "f").iterdir())) < 2:
        pytest.skip("this file system folds Unicode forms")
    found, skipped = walk(tmp_path / "f")
    assert len(found) == 1 and "another Unicode form" in skipped["é.md"]


def test_a_manifest_says_which_files_are_documents_and_gives_metadata(tmp_path: Path) -> None:
    make(
        tmp_path,
        {
            "manifest.csv": "\ufeffpath,source,status,supplier_or_owner,date\n"
            "f/a.md,pub,superseded,Alpha,\nf/odd.md.erb,pub,current,,\nf/gone.md,p,,,\n../x.md,p,,,\nother/x.md,p,,,\n",
            "f/a.md": "a",
            "f/b.md": "b",
            "f/odd.md.erb": "e",
        },
    )
    found, skipped = walk(tmp_path / "f", metadata={"supplier": "supplier_or_owner", "publisher": "source"})
    assert [d.path for d in found] == ["a.md", "odd.md.erb"]
    assert all(d.listed for d in found)
    assert found[0].metadata == {
        "status": "superseded",
        "supplier_or_owner": "Alpha",
        "supplier": "Alpha",
        "publisher": "pub",
    }
    assert skipped["b.md"] == "not listed in manifest"
    assert skipped["gone.md"] == "listed in manifest but missing"
    assert "leaves its folder" in skipped["../x.md"]


def test_metadata_cannot_change_id_source_or_path(tmp_path: Path) -> None:
    make(tmp_path / "f", {"manifest.csv": "path,id,source,acl,trust\na.md,evil,evil,all,high\n", "a.md": "a"})
    (document,), _ = walk(tmp_path / "f", metadata={"id": "acl", "trust": "trust"})
    assert (document.id, document.source, document.path) == ("s/a", "s", "a.md")
    assert document.metadata == {}


def test_a_manifest_about_other_folders_or_without_paths_is_not_used(tmp_path: Path) -> None:
    make(tmp_path, {"manifest.csv": "path,status\nelsewhere/a.md,x\n", "f/manifest.csv": "name\nx\n", "f/a.md": "a"})
    found, _ = walk(tmp_path / "f")
    assert [d.path for d in found] == ["a.md"]


def test_what_is_refused_says_why(tmp_path: Path) -> None:
    make(
        tmp_path,
        {
            "secret.md": "secret",
            "f/citehound.toml": "",
            "f/a.md": "a",
            "f/.hidden.md": "h",
            "f/.git/x.md": "g",
            "f/sub/b.md": "b",
        },
    )
    folder = tmp_path / "f"
    (folder / ".citehound").mkdir()
    (folder / "out.md").symlink_to(tmp_path / "secret.md")
    (folder / "up").symlink_to(tmp_path)
    (folder / "broken.md").symlink_to(folder / "nothing.md")
    (folder / "in.md").symlink_to(folder / "sub" / "b.md")
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe.md")
    make(folder, {"bad\nname.md": "n"})
    found, skipped = walk(folder)
    assert [d.path for d in found] == ["a.md", "sub/b.md"]
    assert all(b"secret" not in d.data for d in found)
    assert skipped == {
        "bad\\nname.md": "file name has control characters",
        "broken.md": "broken link",
        "in.md": "link to sub/b.md, which is read already",
        "loop": "link to something that is not a file",
        "out.md": "link that leaves the source's folder",
        "pipe.md": "not a regular file (pipe, socket or device)",
        "up": "link that leaves the source's folder",
    }


def test_a_link_is_read_where_its_target_is_not(tmp_path: Path) -> None:
    make(tmp_path / "f", {"keep/x.md": "x", "other/y.md": "y"})
    (tmp_path / "f" / "keep" / "one.md").symlink_to("../other/y.md")
    (tmp_path / "f" / "keep" / "two.md").symlink_to("../other/y.md")
    found, skipped = walk(tmp_path / "f", include=("keep/",))
    assert {d.path: d.data for d in found} == {"keep/one.md": b"y", "keep/x.md": b"x"}
    assert skipped["keep/two.md"] == "link to keep/one.md, which is read already"


@pytest.mark.parametrize(
    ("pattern", "left"),
    [
        ("README.md", ["a.md", "x/b.txt", "x/y/c.md"]),
        ("*.md", ["x/b.txt"]),
        ("x/*.txt", ["README.md", "a.md", "x/README.md", "x/y/c.md"]),
        ("x/", ["README.md", "a.md"]),
        ("x/**/*.md", ["README.md", "a.md", "x/b.txt"]),
        ("?.md", ["README.md", "x/README.md", "x/b.txt"]),
        ("[!a].md", ["README.md", "a.md", "x/README.md", "x/b.txt"]),
    ],
)
def test_globs_exclude_what_they_name(tmp_path: Path, pattern: str, left: list[str]) -> None:
    make(tmp_path / "f", {"README.md": "", "a.md": "", "x/README.md": "", "x/b.txt": "", "x/y/c.md": ""})
    found, skipped = walk(tmp_path / "f", exclude=(pattern,))
    assert [d.path for d in found] == left
    assert set(skipped.values()) == {"excluded by the configuration"}


def test_include_keeps_only_what_it_names(tmp_path: Path) -> None:
    make(tmp_path / "f", {"a.md": "", "b.txt": ""})
    found, skipped = walk(tmp_path / "f", include=("*.md",))
    assert [d.path for d in found] == ["a.md"] and skipped == {"b.txt": "not included by the configuration"}


def test_a_source_that_is_not_there_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="check its `path`"):
        walk(tmp_path / "nowhere")
    make(tmp_path, {"file": ""})
    with pytest.raises(ConfigError, match="not a folder"):
        walk(tmp_path / "file")


@pytest.mark.parametrize(("corpus", "count"), [("policies", 425), ("contracts", 88), ("wiki", 111)])
def test_the_manifests_of_the_corpora_list_their_documents(shared_data: Path, corpus: str, count: int) -> None:
    found, skipped = walk(shared_data / "corpora" / corpus)
    assert len(found) == count
    assert set(skipped.values()) == {"not listed in manifest"}


class TestFilesAreASource(SourceConformance):
    name = "s"

    @pytest.fixture(autouse=True)
    def begin(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "f"
        self.folder.mkdir()

    def put(self, stem: str, text: str) -> None:
        make(self.folder, {f"{stem}.md": text})

    def take(self, stem: str) -> None:
        (self.folder / f"{stem}.md").unlink()

    def items(self, known: dict[str, str] | None = None) -> list[Item]:
        return list(documents(SourceConfig(name="s", path=self.folder), self.folder.parent, known or {}))
