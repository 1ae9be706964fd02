"""Quote matching accepts exactly the listed foldings and nothing else, and spans lead back to the text."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from citehound.documents import Document, Section
from citehound.quotes import Place, clipped_words, find_quote, fold, sentence_at

WORDS = st.text(alphabet="abcdeXYZäöéñç0123456789", min_size=1, max_size=7)
JOINTS = st.sampled_from([" ", " ", " ", "-", ", ", ' "', '" ', "'"])
ZERO_WIDTH = "\u200b\u200c\u200d\u2060\ufeff"
DASHES = "-\u2010\u2011\u2012\u2013\u2014\u2212"
SINGLE = "'\u2018\u2019\u201a\u02bc"
DOUBLE = '"\u201c\u201d\u201e\u00ab\u00bb'


def document(text: str, *sections: Section, language: str | None = None) -> Document:
    return Document(id="s/d", source="s", path="d.md", title="D", text=text, sections=sections, language=language)


def find(text: str, quote: str) -> Place | None:
    d = document(text)
    return find_quote(d, fold(text), quote, was_read=lambda _: True)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Words joined as people join them; letters are composed, dashes and quotation marks plain."""
    words = draw(st.lists(WORDS, min_size=6, max_size=9))
    out = words[0]
    for word in words[1:]:
        out += draw(JOINTS) + word
    return out


@st.composite
def slices(draw: st.DrawFn) -> tuple[str, str]:
    """A text and a part of it that begins and ends at white space."""
    text = draw(texts())
    cuts = [0, *(m.end() for m in re.finditer(" ", text)), len(text) + 1]
    i = draw(st.integers(0, len(cuts) - 2))
    j = draw(st.integers(i + 1, len(cuts) - 1))
    return text, text[cuts[i] : cuts[j] - 1]


@st.composite
def disguised(draw: st.DrawFn, text: str) -> str:
    """The same text in another form that the foldings undo."""
    out = ""
    for following, character in zip(text[1:] + " ", text, strict=True):
        if character == " ":
            character = draw(st.sampled_from([" ", "  ", "\n", "\t", "\u00a0", "\u2009", "\f", " | ", "\n\n"]))
        elif character in DASHES:
            character = draw(st.sampled_from(DASHES))
        elif character in SINGLE:
            character = draw(st.sampled_from(SINGLE))
        elif character in DOUBLE:
            character = draw(st.sampled_from(DOUBLE))
        elif draw(st.booleans()):
            character = unicodedata.normalize("NFD", character)
        elif character.isascii() and character.isalnum() and draw(st.booleans()):
            character = chr(ord(character) + 0xFEE0)  # full width
        out += character
        if draw(st.integers(0, 5)) == 0:
            out += draw(st.sampled_from([*ZERO_WIDTH, "" if following == " " else "\u00ad"]))
    return out


def reference(text: str) -> str:
    """The foldings written down once more, another way, for the characters used here."""
    text = re.sub(r"\u00ad[^\S\n]*\n(?!\s*\n)\s*|\u00ad|[\u200b\u200c\u200d\u2060\ufeff]", "", text)
    text = re.sub(f"[{DASHES[1:]}]", "-", text)
    text = re.sub(f"[{SINGLE[1:]}]", "'", text)
    text = re.sub(f"[{DOUBLE[1:]}]", '"', text)
    text = "".join(chr(ord(c) - 0xFEE0) if "\uff01" <= c <= "\uff5e" else c for c in text)
    text = re.sub(r"(?:(?<=\s)|^)\|(?=\s|$)", " ", unicodedata.normalize("NFC", text))
    return re.sub(r"\s+", " ", text).strip()


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.data())
def test_a_quote_in_another_form_is_found_where_it_stands(data: st.DataObject) -> None:
    text, part = data.draw(slices())
    quote = data.draw(disguised(part))
    place = find(text, quote)
    assert place is not None
    assert text[place.start : place.end] == part.strip()


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.data())
def test_a_plain_quote_is_found_in_a_text_of_another_form(data: st.DataObject) -> None:
    text, part = data.draw(slices())
    there = data.draw(disguised(text))
    place = find(there, part)
    assert place is not None
    assert fold(there[place.start : place.end]).text == fold(part).text


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.data())
def test_folding_is_what_the_reference_says(data: st.DataObject) -> None:
    text = data.draw(disguised(data.draw(texts())))
    assert fold(text).text == reference(text)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.data())
def test_any_other_change_is_refused(data: st.DataObject) -> None:
    text, part = data.draw(slices())
    at = data.draw(st.integers(0, len(part) - 1))
    kind = data.draw(st.sampled_from(["drop", "insert", "replace", "case", "swap", "accent", "word"]))
    letter = data.draw(st.sampled_from("abXé07.,;:!?()"))
    changed = {
        "drop": part[:at] + part[at + 1 :],
        "insert": part[:at] + letter + part[at:],
        "replace": part[:at] + letter + part[at + 1 :],
        "case": part[:at] + part[at].swapcase() + part[at + 1 :],
        "swap": part[:at] + part[at : at + 2][::-1] + part[at + 2 :],
        "accent": "".join(c for c in unicodedata.normalize("NFD", part) if not unicodedata.combining(c)),
        "word": " ".join(w for i, w in enumerate(part.split(" ")) if i != len(part) % (part.count(" ") + 1)),
    }[kind]
    place = find(text, changed)
    if place is None:
        return
    assert reference(text[place.start : place.end]) == reference(changed)  # the change gave words that stand there too


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.text(max_size=60))
def test_spans_lead_back_for_any_text(text: str) -> None:
    folded = fold(text)
    assert len(folded.text) == len(folded.starts) == len(folded.ends)
    assert list(folded.starts) == sorted(folded.starts)
    assert all(0 <= s < e <= len(text) for s, e in zip(folded.starts, folded.ends, strict=True))
    assert fold(folded.text).text == folded.text or "|" in text or "\u00ad" in text


@pytest.mark.parametrize(
    ("text", "quote"),
    [
        ("the oﬃcer ﬁled it", "officer filed"),
        ("in the infor\u00ad\nmation given", "the information given"),
        ("he said „so“ – and left", 'he said "so" - and left'),
        ("a | b\nc | d", "a | b | c | d"),
        ("a | b\nc | d", "b c"),
        ("１２ ｈｏｕｒｓ", "12 hours"),
        ("cafe\u0301 noir", "caf\u00e9 noir"),
        ("가나 다", unicodedata.normalize("NFD", "가나 다")),
    ],
)
def test_a_listed_folding_is_accepted(text: str, quote: str) -> None:
    assert find(text, quote) is not None


@pytest.mark.parametrize(
    ("text", "quote"),
    [
        ("within 72 hours of it", "2 hours of it"),
        ("a price of 1,250.50 euros", "250.50 euros"),
        ("a price of 1,250.50 euros", "a price of 1,250"),
        ("a price of 1 250 000 euros", "250 000 euros"),
        ("a rate of -5 percent", "5 percent"),
        ("the unnotified party", "notified party"),
        ("it grew by 10² units", "it grew by 102 units"),
        ("½ of it", "1/2 of it"),
        ("if a || b then", "if a b then"),
        ("straße", "strasse"),
        ("Ελλάδα", "ελλάδα"),
        ("read me", "readme"),
        ("well-known", "well known"),
        ("he said so", "he said 'so'"),
        ("the bank . . . pays", "the bank pays"),
        ("paypal", "pаypal"),
    ],
)
def test_nothing_fuzzier_is_accepted(text: str, quote: str) -> None:
    assert find(text, quote) is None


def test_an_ellipsis_of_the_text_itself_is_found() -> None:
    assert find("and so on … and then it ended", "so on ... and then") is not None


def test_an_ellipsis_at_either_end_is_no_part_of_the_quote() -> None:
    place = find("one two three four five six", "…two three four five…")
    assert place is not None and (place.start, place.end) == (4, 23)


def test_an_occurrence_that_was_read_is_preferred() -> None:
    text = "keep it for a year. And again: keep it for a year."
    place = find_quote(document(text), fold(text), "keep it for a year", was_read=lambda span: span.start > 10)
    assert place is not None and place.start == 31


def test_fragments_prefer_places_that_were_read() -> None:
    text = "alpha beta x gamma delta y gamma delta"
    place = find_quote(
        document(text), fold(text), "alpha beta … gamma delta", was_read=lambda s: s.start == 0 or s.start > 20
    )
    assert place is not None and place.end == len(text)


@pytest.mark.parametrize(
    ("text", "quote", "sentence"),
    [
        ("One is here. Two is there. Three.", "is there", "Two is there."),
        ("See Art. 5 and No. 7 for it. Next.", "No. 7", "See Art. 5 and No. 7 for it."),
        ("It costs 1.5 euros. Next.", "1.5 euros", "It costs 1.5 euros."),
        ("a\n\nThis is\na sentence\nof lines.\n\nb", "a sentence", "This is\na sentence\nof lines."),
        ("x | y\nu | v\nw | z", "u | v", "u | v"),
        ("まず読む。次に書く。終わり。", "次に書く", "次に書く。"),
        ("first thing. and second thing. Third.", "second", "first thing. and second thing."),
    ],
)
def test_the_whole_sentence_is_found(text: str, quote: str, sentence: str) -> None:
    d = document(text)
    place = find(text, quote)
    assert place is not None
    span = sentence_at(d, place)
    assert text[span.start : span.end] == sentence


@pytest.mark.parametrize(
    ("language", "text", "quote", "word"),
    [
        ("en", "The bank pays unless it is closed.", "The bank pays", "unless"),
        ("en", "The bank doesn\u2019t pay for cards.", "pay for cards", "doesn't"),
        ("pt", "O banco não paga os cartões.", "paga os cartões", "não"),
        ("de", "Die Bank zahlt keine Gebühren an Dritte.", "Gebühren an Dritte", "keine"),
        ("es", "El banco paga salvo que esté cerrado.", "El banco paga", "salvo"),
        ("fr", "La banque n\u2019accepte pas les cartes.", "accepte", "pas"),
        ("it", "La banca paga purché sia aperta.", "La banca paga", "purché"),
        ("nl", "De bank betaalt tenzij zij gesloten is.", "De bank betaalt", "tenzij"),
    ],
)
def test_a_negation_or_condition_outside_the_quote_is_noticed(language: str, text: str, quote: str, word: str) -> None:
    d = document(text, language=language)
    place = find(text, quote)
    assert place is not None
    assert word in clipped_words(d, place, sentence_at(d, place), language=language)
    assert word in clipped_words(d, place, sentence_at(d, place))


CLIPPED = "The data is kept or otherwise {}."


@pytest.mark.parametrize(
    ("tail", "warns"),
    [
        ("provided to the supplier", False),
        ("used, provided that the customer agrees", True),
        ("used, provided the customer agrees", True),
        ("used, provided notice is given", True),
        ("used by customers If the primary site fails, the second one takes over", False),
        ("used by customers if the primary site fails, until it is back", True),
        ("used by customers If the primary site fails", True),
        ("used; the supplier does not sell it", False),
        ("used; the supplier sells it; except for what the customer keeps", True),
        ("used; and provided that the customer agrees", True),
        ("used; but not sold", True),
        ("used where it is not sold; the supplier keeps it", True),
    ],
)
def test_only_what_restricts_the_quoted_sentence_is_clipped(tail: str, warns: bool) -> None:
    d = document(CLIPPED.format(tail))
    place = find_quote(d, fold(d.text), "The data is kept", was_read=lambda span: True)
    assert place is not None
    assert bool(clipped_words(d, place, sentence_at(d, place))) is warns
