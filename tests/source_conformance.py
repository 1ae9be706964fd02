"""What every kind of source that is indexed keeps; a kind inherits it and says how its documents are put and taken."""

from __future__ import annotations

from citehound.documents import RawDocument
from citehound.sources import SkippedFile, Unreachable

Item = RawDocument | SkippedFile | Unreachable


class SourceConformance:
    """`put` and `take` change what the source has; `items` is what it hands over."""

    name: str
    """Of the source."""

    def put(self, stem: str, text: str) -> None:
        raise NotImplementedError

    def take(self, stem: str) -> None:
        raise NotImplementedError

    def items(self, known: dict[str, str] | None = None) -> list[Item]:
        raise NotImplementedError

    def found(self, known: dict[str, str] | None = None) -> list[RawDocument]:
        return [item for item in self.items(known) if isinstance(item, RawDocument)]

    def test_a_document_has_its_id_from_source_and_path(self) -> None:
        self.put("rules/leave", "Ten days of leave.")
        (document,) = [d for d in self.found() if "leave" in d.id]
        assert document.id == f"{self.name}/rules/leave" and document.source == self.name
        assert document.path.rpartition(".")[0] == "rules/leave" and b"Ten days of leave." in document.data

    def test_the_order_and_the_bytes_are_the_same_every_time(self) -> None:
        for stem in ("c", "a/b", "b", "a/a"):
            self.put(stem, f"Text of {stem}.")
        first = self.found()
        assert first == self.found() and len({d.id for d in first}) == len({d.path for d in first}) == len(first)

    def test_an_id_that_was_given_is_kept(self) -> None:
        self.put("a", "Text of a.")
        (document,) = [d for d in self.found() if d.id == f"{self.name}/a"]
        (again,) = [d for d in self.found({document.path: f"{self.name}/other"}) if d.path == document.path]
        assert again.id == f"{self.name}/other"

    def test_what_changes_and_what_vanishes_is_seen(self) -> None:
        self.put("a", "Text of a.")
        self.put("b", "Text of b.")
        before = {d.path: d.data for d in self.found()}
        self.put("a", "Another text of a.")
        self.take("b")
        after = {d.path: d.data for d in self.found()}
        gone = before.keys() - after.keys()
        assert [path.rpartition(".")[0] for path in gone] == ["b"]
        assert any(b"Another text of a." in data for data in after.values())

    def test_paths_are_composed_unicode_without_anything_that_leads_out(self) -> None:
        self.put("Größe", "Everything has a size.")
        (document,) = [d for d in self.found() if d.id == f"{self.name}/Größe"]
        assert ".." not in document.path.split("/") and not document.path.startswith("/")
