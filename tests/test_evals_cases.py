"""Cases are read from three formats, wrong ones are refused with their line, names are checked against the corpus."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from citehound.access import OWNER
from citehound.corpus import Corpus
from citehound.errors import UsageError
from citehound.evals.cases import Case, load_cases, needs, problems, write_cases
from small import opened

ROW = {
    "id": "c1",
    "question": "How fast must Alpha report?",
    "kind": "compound",
    "must_read": ["rules/security.md", "deals/alpha#1"],
    "answer_points": ["24 hours", "72 hours"],
    "missing": [],
    "max_steps": 6,
    "tags": ["bank"],
    "notes": "ignored",
}
CASE = Case(
    id="c1",
    question="How fast must Alpha report?",
    kind="compound",
    must_read=("rules/security.md", "deals/alpha#1"),
    answer_points=("24 hours", "72 hours"),
    missing=(),
    max_steps=6,
    tags=("bank",),
)


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def test_jsonl_yaml_json_and_csv_give_the_same_case(tmp_path: Path) -> None:
    import yaml

    csv = (
        "id,question,kind,must_read,answer_points,missing,max_steps,tags,notes\n"
        "c1,How fast must Alpha report?,compound,rules/security.md; deals/alpha#1,24 hours;72 hours,,6,bank,x\n"
    )
    files = [
        write(tmp_path, "a.jsonl", json.dumps(ROW) + "\n\n"),
        write(tmp_path, "a.yaml", yaml.safe_dump([ROW])),
        write(tmp_path, "b.yml", yaml.safe_dump({"cases": [ROW]})),
        write(tmp_path, "a.json", json.dumps([ROW])),
        write(tmp_path, "bom.jsonl", "\ufeff" + json.dumps(ROW)),
    ]
    for path in files:
        assert load_cases(path) == (CASE,), path.name
    assert load_cases(write(tmp_path, "a.csv", csv)) == (
        Case(**{**{k: getattr(CASE, k) for k in CASE.__dataclass_fields__}, "missing": None}),
    )


def test_only_id_and_question_are_needed(tmp_path: Path) -> None:
    (case,) = load_cases(write(tmp_path, "a.jsonl", '{"id": 7, "question": "Why?"}'))
    assert case == Case(id="7", question="Why?")
    assert case.has_gap is None


def test_cases_that_are_written_are_read_back(tmp_path: Path) -> None:
    case = Case(id="ü", question="Wie lange?", missing=("x",), evidence={"a/b": ("7 (Jahre)?",)})
    assert load_cases(write(tmp_path, "a.jsonl", write_cases((CASE, case)))) == (CASE, case)


def test_patterns_beside_the_cases_are_their_evidence(tmp_path: Path) -> None:
    write(tmp_path, "a.evidence.jsonl", json.dumps({"id": "c1", "evidence_regex": {"rules/security.md": ["24 hours"]}}))
    (case,) = load_cases(write(tmp_path, "a.jsonl", json.dumps(ROW)))
    assert case.evidence == {"rules/security.md": ("24 hours",)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no cases"),
        ("{", "a.jsonl:1 is no JSON"),
        ('{"id": "a", "question": "b"}\n[]', "a.jsonl:2 is no object"),
        ('{"question": "b"}', "a.jsonl:1 has no id"),
        ('{"id": "a"}', "case 'a' has no question"),
        ('{"id": "a", "question": " "}', "case 'a' has no question"),
        ('{"id": "a", "question": "b", "kind": "hard"}', "use one of single, compound, unanswerable"),
        ('{"id": "a", "question": "b", "max_steps": 0}', "max_steps of case 'a' is 0"),
        ('{"id": "a", "question": "b", "must_read": {"x": 1}}', "must_read is {'x': 1}: give a list"),
        ('{"id": "a", "question": "b"}\n{"id": "a", "question": "c"}', "'a' is at a.jsonl:1 too"),
        ('{"id": "a", "question": "b", "evidence_regex": {"d": ["("]}}', "no regular expression"),
    ],
)
def test_a_wrong_case_is_refused_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_cases(write(tmp_path, "a.jsonl", text))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_and_one_that_is_no_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there are no cases at"):
        load_cases(tmp_path / "none.jsonl")
    (tmp_path / "b.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="save it as UTF-8"):
        load_cases(tmp_path / "b.jsonl")
    with pytest.raises(UsageError, match="cannot be read"):
        load_cases(write(tmp_path, "c.yaml", "a: [1"))


@pytest.fixture
def corpus(tmp_path: Path) -> Iterator[Corpus]:
    with opened(tmp_path) as corpus:
        yield corpus


def test_names_are_found_as_id_path_suffix_and_section(corpus: Corpus) -> None:
    case = Case(id="a", question="q", must_read=("rules/security", "rules/security.md", "travel", "alpha#1"))
    found = needs(case, corpus, principal=OWNER)
    assert [n.document for n in found] == ["rules/security", "rules/security", "rules/travel", "deals/alpha"]
    text = corpus.document("deals/alpha", principal=OWNER).text
    assert found[3].start is not None and found[3].end is not None
    assert text[found[3].start : found[3].end].startswith("1 Reporting")


def test_a_name_that_is_not_there_is_told_with_the_nearest(corpus: Corpus) -> None:
    cases = (
        Case(id="a", question="q", must_read=("rules/securty", "rules/security")),
        Case(id="b", question="q", must_read=("deals/alpha#9",), evidence={"nowhere": ("x",)}),
    )
    lines = problems(cases, corpus, principal=OWNER)
    assert len(lines) == 3
    assert "case 'a'" in lines[0] and "rules/security" in lines[0].split("'rules/securty'")[-1]
    assert "case 'b'" in lines[1] and "has no section '9'" in lines[1]
    with pytest.raises(UsageError, match="securty"):
        needs(cases[0], corpus, principal=OWNER)
