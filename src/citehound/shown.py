"""What a question has shown so far, and whether it may all still be seen; ends nothing itself."""

from __future__ import annotations

from collections.abc import Iterable

from .access import Access, Principal
from .corpus import Corpus
from .events import Event, FactRead, Hits, Read


class Shown:
    """The documents that a question has found and read. Safe under threads.

    Rights are looked at with every event; documents are gone through again only where rights have changed.
    """

    def __init__(self, corpus: Corpus, principal: Principal, *, documents: Iterable[str] = ()) -> None:
        """`documents` were shown before, as in earlier turns of a chat."""
        self._corpus = corpus
        self._principal = principal
        self._documents = set(documents)
        self._allowed: Access = corpus.access
        """As of when all was last looked at: what the index gave out since then fits it."""

    def add(self, event: Event) -> None:
        match event:
            case Hits():
                self._documents |= {reference.document for reference in event.returned}
            case Read() | FactRead():
                self._documents.add(event.document)
            case _:
                pass

    def to_asker(self) -> bool:
        """Whether whoever asked may see all of it now."""
        access = self._corpus.access
        if access is self._allowed:
            return True
        if not self.to(self._principal):
            return False
        self._allowed = access
        return True

    def to(self, principal: Principal) -> bool:
        """Whether somebody, who may be the same in other groups, may see all of it now."""
        return principal.owner or not self._corpus.withheld(tuple(self._documents), principal=principal)
