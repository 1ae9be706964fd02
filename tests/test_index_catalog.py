"""The catalog after changes is the same as one made anew."""

from __future__ import annotations

from datetime import date

import numpy as np

from citehound.index.catalog import Catalog, Head

TODAY = date(2026, 6, 1)
EMPTY = Catalog.empty(today=TODAY, language="en")


def head(row: int, name: str, *, source: str = "docs", language: str | None = None, **metadata: str) -> Head:
    return Head(
        row=row,
        id=f"{source}/{name}",
        source=source,
        path=f"{name}.md",
        title=name,
        language=language,
        metadata=metadata,
        chars=10,
        passages=2,
    )


def told(catalog: Catalog) -> dict[str, object]:
    """All that can be asked of a catalog."""
    return {
        "heads": list(catalog.heads.items()),
        "rows": sorted(catalog.by_row),
        "passages": catalog.passages,
        "documents": dict(catalog.documents),
        "languages": catalog.languages,
        "currencies": dict(catalog.currencies),
        "hidden": catalog.hidden,
        "keys": {source: dict(keys) for source, keys in catalog.keys.items()},
        "values": {at: (catalog.values(*at), catalog.whole_values(*at)) for at in sorted(catalog.counts)},
        "names": {name: catalog.names.find(name) for name in ("a", "b", "c", "docs/a", "docs/b.md", "other/a", "d")},
        "tables": {
            (source, value, only): np.flatnonzero(
                catalog.rows(source=source, wanted=[("supplier", value)] if value else [], only_current=only)
            ).tolist()
            for source in (None, "docs", "other")
            for value in (None, "alpha", "beta")
            for only in (False, True)
        },
    }


A = head(1, "a", supplier="Alpha, Beta", status="current")
B = head(2, "b", supplier="Beta", supersedes="a")
C = head(3, "c", language="de", supplier="beta")
OTHER = head(4, "a", source="other", supplier="Alpha")


def test_a_catalog_after_changes_is_the_one_of_all_documents_at_once() -> None:
    catalog = EMPTY.after(added=[C, A], gone=(), today=TODAY)
    told(catalog)  # what was asked before must not be what is told after
    catalog = catalog.after(added=[OTHER, B], gone=(), today=TODAY)
    assert told(catalog) == told(EMPTY.after(added=[A, B, C, OTHER], gone=(), today=TODAY))
    assert catalog.hidden == {"docs/a"}
    without = catalog.after(added=(), gone=[2, 3], today=TODAY)
    assert told(without) == told(EMPTY.after(added=[A, OTHER], gone=(), today=TODAY))
    assert not without.hidden
    changed = head(9, "a", supplier="Gamma")
    replaced = catalog.after(added=[changed], gone=[1], today=TODAY)
    assert told(replaced) == told(EMPTY.after(added=[changed, B, C, OTHER], gone=(), today=TODAY))


def test_a_change_leaves_the_catalog_before_as_it_was() -> None:
    before = EMPTY.after(added=[A, C, OTHER], gone=(), today=TODAY)
    then = told(before)
    before.after(added=[B], gone=[1, 3], today=TODAY)
    assert told(before) == then


def test_a_new_day_alone_changes_what_holds() -> None:
    soon = head(5, "d", effective="2026-06-02")
    catalog = EMPTY.after(added=[soon], gone=(), today=TODAY)
    assert catalog.hidden == {"docs/d"}
    assert not catalog.after(added=(), gone=(), today=date(2026, 6, 2)).hidden
    assert catalog.after(added=(), gone=(), today=TODAY) is catalog


def test_a_document_that_says_nothing_of_versions_is_hidden_by_one_that_replaces_it() -> None:
    old = head(1, "a")
    catalog = EMPTY.after(added=[old, B], gone=(), today=TODAY)
    assert not catalog.currency("docs/a").current
    assert catalog.after(added=(), gone=[2], today=TODAY).currency("docs/a").current


def test_many_new_documents_come_in_the_order_of_ids() -> None:
    catalog = EMPTY.after(added=[head(n, f"d{n}") for n in range(1, 200, 2)], gone=(), today=TODAY)
    catalog = catalog.after(added=[head(n, f"d{n}") for n in range(2, 200, 2)], gone=(), today=TODAY)
    catalog = catalog.after(added=[head(500, "d5x")], gone=(), today=TODAY)
    assert list(catalog.heads) == sorted(catalog.heads)
    assert len(catalog.heads) == 200
