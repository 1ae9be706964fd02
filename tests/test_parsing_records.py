"""JSON and JSON Lines: records with their keys, values as written."""

from __future__ import annotations

import pytest

from citehound.errors import ParseError
from citehound.parsing.records import parse_json, parse_jsonl


def test_each_record_is_a_section_named_by_its_title() -> None:
    found = parse_json('[{"title": "Alpha", "hours": 24}, {"title": "Beta", "hours": 72}]')
    assert [(b.kind, b.text) for b in found.blocks] == [
        ("heading", "Alpha"),
        ("item", "title: Alpha\nhours: 24"),
        ("heading", "Beta"),
        ("item", "title: Beta\nhours: 72"),
    ]


def test_numbers_stay_as_they_were_written() -> None:
    found = parse_json('{"fee": 1.50, "big": 12345678901234567890123, "small": 1e-7}')
    assert found.blocks[0].text == "fee: 1.50\nbig: 12345678901234567890123\nsmall: 1e-7"


def test_nested_values_have_their_path() -> None:
    found = parse_jsonl('{"a": {"b": {"c": "x"}}, "list": [1, 2], "rows": [{"k": "v"}, {"k": "w"}]}')
    assert found.blocks[1].text == "a.b.c: x\nlist: 1, 2\nrows 1.k: v\nrows 2.k: w"


def test_the_keys_of_an_object_that_hold_more_are_sections() -> None:
    found = parse_json('{"name": "Policy", "limits": {"incident": "24 hours"}, "suppliers": [{"name": "Alpha"}]}')
    assert found.title == "Policy"
    assert [b.text for b in found.blocks if b.kind == "heading"] == ["limits", "suppliers", "Alpha"]


def test_broken_lines_are_named_and_the_others_read() -> None:
    found = parse_jsonl('{"a": 1}\n{broken\n\n{"a": 2}\n')
    assert found.warnings == ("1 lines are not JSON and were left out: 2",)
    assert [b.text for b in found.blocks if b.kind == "item"] == ["a: 1", "a: 2"]


def test_null_true_and_empty_values() -> None:
    assert parse_json('{"a": null, "b": true, "c": ""}').blocks[0].text == "b: true"


def test_text_of_several_lines_is_kept() -> None:
    assert parse_json('{"text": "one\\r\\ntwo"}').blocks[0].text == "text: one\ntwo"


def test_a_list_of_words_is_a_list() -> None:
    assert parse_json('["red", "blue"]').blocks[0].text == "- red\n- blue"


@pytest.mark.parametrize("text", ["", "{", "[1,", "nonsense", '{"a": }'])
def test_what_is_no_json_is_damaged(text: str) -> None:
    with pytest.raises(ParseError, match="damaged"):
        parse_json(text)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 500 + "1" + "}" * 500, "[" * 200 + "1" + "]" * 200])
def test_deep_json_is_refused(text: str) -> None:
    with pytest.raises(ParseError, match="nested too deeply"):
        parse_json(text)
