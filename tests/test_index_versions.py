"""Which documents hold today, and which names mean which."""

from __future__ import annotations

from datetime import date

import pytest

from citehound.index.versions import Currency, Named, Names, currencies, parse_date, state_of

TODAY = date(2025, 6, 1)


def holds(**documents: dict[str, str]) -> dict[str, Currency]:
    """Documents 'p/<name>' with their metadata; names are written with _ for -."""
    named = [Named(id=f"p/{n}", path=f"p/{n}.md", metadata=m) for n, m in documents.items()]
    found = currencies(named, today=TODAY)
    return {d.id.removeprefix("p/"): found.get(d.id, Currency()) for d in named}


@pytest.mark.parametrize(
    "status",
    ["", "current", "in force", "aktuell", "In Kraft", "vigente", "signed", "whatever", "active (supersedes v2)",
     "final, replaces v1", "approved", "not superseded", "effective", "stable", "en vigueur", "reviewed"],
)  # fmt: skip
def test_unknown_words_and_words_for_current_mean_current(status: str) -> None:
    assert state_of({"status": status}) == "current"


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("superseded", "superseded"),
        ("SUPERSEDED by v4", "superseded"),
        ("Outdated", "superseded"),
        ("archived", "superseded"),
        ("obsolete (2021)", "superseded"),
        ("no longer in force", "superseded"),
        ("Überholt", "superseded"),
        ("veraltet", "superseded"),
        ("remplacé", "superseded"),
        ("sustituido", "superseded"),
        ("withdrawn", "withdrawn"),
        ("Repealed", "withdrawn"),
        ("außer Kraft", "withdrawn"),
        ("not in force", "withdrawn"),
        ("draft", "draft"),
        ("Draft v3", "draft"),
        ("unreleased", "draft"),
        ("Entwurf", "draft"),
        ("brouillon", "draft"),
        ("work in progress", "draft"),
        ("not yet approved", "draft"),
        ("草案", "draft"),
    ],
)
def test_words_that_say_it_does_not_hold(status: str, state: str) -> None:
    assert state_of({"status": status}) == state


def test_flags_of_site_generators_are_understood() -> None:
    assert state_of({"draft": "true"}) == "draft"
    assert state_of({"draft": "false"}) == "current"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2025-03-01", date(2025, 3, 1)),
        ("2025-03-01T00:00:00Z", date(2025, 3, 1)),
        ("2025-03", date(2025, 3, 1)),
        ("2025", date(2025, 1, 1)),
        ("01.03.2025", date(2025, 3, 1)),
        ("1 March 2025", date(2025, 3, 1)),
        ("March 1, 2025", date(2025, 3, 1)),
        ("2025-13-45", None),
        ("soon", None),
        ("01/03/2025", None),
        ("", None),
    ],
)
def test_dates_are_read_only_when_they_mean_one_thing(text: str, expected: date | None) -> None:
    assert parse_date(text) == expected


def test_a_successor_supersedes_by_name_path_or_suffix() -> None:
    for name in ("old", "p/old", "old.md", "p/old.md", "OLD"):
        found = holds(old={}, new={"supersedes": name})
        assert found["old"] == Currency(current=False, labels=("superseded by p/new",), superseded_by=("p/new",))
        assert found["new"].current


def test_superseded_by_works_from_the_other_side() -> None:
    assert not holds(old={"superseded_by": "new"}, new={})["old"].current


def test_several_can_be_superseded_at_once() -> None:
    found = holds(a={}, b={}, new={"supersedes": "a, b"})
    assert [found[n].current for n in ("a", "b", "new")] == [False, False, True]


def test_a_chain_leaves_the_last_one() -> None:
    found = holds(v1={}, v2={"supersedes": "v1"}, v3={"supersedes": "v2"})
    assert [found[n].current for n in ("v1", "v2", "v3")] == [False, False, True]


@pytest.mark.parametrize("metadata", [{"status": "draft"}, {"effective": "2025-06-02"}, {"status": "withdrawn"}])
def test_a_successor_that_does_not_hold_hides_nothing(metadata: dict[str, str]) -> None:
    found = holds(old={"superseded_by": "new"}, new={"supersedes": "old", **metadata})
    assert found["old"].current and found["old"].labels == ()
    assert not found["new"].current


def test_a_successor_takes_effect_on_its_day() -> None:
    found = holds(old={}, new={"supersedes": "old", "effective": "2025-06-01"})
    assert not found["old"].current and found["new"].current


def test_what_is_not_yet_effective_is_labelled() -> None:
    assert holds(new={"effective": "2026-01-01"})["new"] == Currency(current=False, labels=("not yet effective",))


def test_a_circle_or_oneself_says_nothing() -> None:
    assert all(c.current for c in holds(a={"supersedes": "b"}, b={"supersedes": "a"}).values())
    assert all(c.current for c in holds(a={"supersedes": "c"}, b={"supersedes": "a"}, c={"supersedes": "b"}).values())
    assert holds(a={"supersedes": "a", "superseded_by": "a"})["a"].current


def test_an_ambiguous_name_supersedes_nothing_but_the_same_folder_decides() -> None:
    documents = [
        Named(id="p/x/old", path="p/x/old.md", metadata={}),
        Named(id="p/y/old", path="p/y/old.md", metadata={}),
        Named(id="p/x/new", path="p/x/new.md", metadata={"supersedes": "old"}),
    ]
    assert set(currencies(documents, today=TODAY)) == {"p/x/old"}
    elsewhere = [*documents[:2], Named(id="q/new", path="q/new.md", metadata={"supersedes": "old"})]
    assert currencies(elsewhere, today=TODAY) == {}


def test_one_superseded_by_something_that_is_not_here_does_not_hold() -> None:
    assert holds(old={"superseded_by": "the-group-policy"})["old"].labels == ("superseded by the-group-policy",)
    assert holds(old={"superseded_by": "none"})["old"].current


def test_one_that_is_superseded_on_a_coming_day_still_holds() -> None:
    assert holds(old={"superseded_by": "new", "superseded_on": "2025-12-31"}, new={"effective": "2025-12-31"})[
        "old"
    ].current


def test_amendments_are_labelled_while_they_hold() -> None:
    assert holds(annex={}, a1={"amends": "annex"})["annex"] == Currency(
        labels=("amended by p/a1",), amended_by=("p/a1",)
    )
    assert holds(annex={}, a1={"amends": "annex", "status": "draft"})["annex"] == Currency()


def test_names_are_whole_parts_of_paths() -> None:
    names = Names([("p/policy-v4", "p/policy-v4.md"), ("p/a/b", "p/a/b.md"), ("p/v1.2", "p/v1.2.md")])
    assert names.find("policy-v4") == ("p/policy-v4",)
    assert names.find("v4") == ()
    assert names.find("a/b.md") == ("p/a/b",)
    assert names.find("v1.2") == ("p/v1.2",)
    assert names.find("") == ()
    assert names.find("/") == ()
