"""How text becomes search terms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citehound.index.analysis import STEMMERS, Matcher, analyse, fold, fold_value, known_language, query_terms


@pytest.mark.parametrize(
    ("text", "folded"),
    [("Müller", "muller"), ("STRASSE", "strasse"), ("Straße", "strasse"), ("Łódź", "lodz"), ("ﬁle", "file"),
     ("ＡＢＣ", "abc"), ("co\u00adoperate", "cooperate"), ("ガ", "ガ"), ("각", "각"), ("é", "e")],
)  # fmt: skip
def test_folding(text: str, folded: str) -> None:
    assert fold(text) == folded


def test_values_are_compared_without_white_space_differences() -> None:
    assert fold_value("  Café \n MÜNCHEN ") == "cafe munchen"


def test_stems_are_those_of_the_language() -> None:
    assert analyse("suppliers notified", "en").stems == ["supplier", "notifi"]
    assert analyse("Verträge", "de").stems == ["vertrag"]
    assert analyse("Verträge", None).stems == ["vertrage"]


def test_spaceless_runs_become_bigrams_and_characters() -> None:
    terms = analyse("使用TLS加密数据", "zh")
    assert terms.stems == ["使用", "tls", "加密", "密数", "数据"]
    assert {"密", "tls"} <= terms.extras


def test_words_of_indic_scripts_stay_whole() -> None:
    assert analyse("हिन्दी भाषा", "hi").stems == ["हिन्दी", "भाषा"]


def test_compounds_are_kept_beside_their_parts() -> None:
    terms = analyse("See 7.2, max_age and CVE-2023-1234.", "en")
    assert {"7.2", "max_age", "cve-2023-1234", "7", "max"} <= terms.extras


def test_a_query_is_stemmed_in_every_language() -> None:
    (term,) = query_terms("Verträge", ["de", "en"])
    assert term.exact == "vertrage" and "vertrag" in term.stems


def test_every_known_language_has_a_stemmer() -> None:
    for code in STEMMERS:
        assert analyse("word", code).stems
    assert known_language("de-AT") == "de" and known_language("xx") == "" and known_language(None) == ""


@given(st.text(max_size=200), st.sampled_from(["en", "de", "ar", "zh", None]))
def test_no_text_breaks_analysis_and_matches_slice_back(text: str, language: str | None) -> None:
    terms = analyse(text, language)
    assert all(term and " " not in term for term in terms.extras)
    query_terms(text, [language or ""])
    values = dict.fromkeys([*terms.stems, *terms.extras], 1.0)
    for start, end, _, _ in Matcher(values, language).places(text):
        assert 0 <= start < end <= len(text)


def test_a_matcher_finds_inflected_words_where_they_stand() -> None:
    text = "Keys are rotated. No key-rotation here."
    places = Matcher({"rotat": 2.0}, "en").places(text)
    assert [text[start:end] for start, end, _, _ in places] == ["rotated", "rotation"]
