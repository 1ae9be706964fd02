"""Permissions end to end: how rules are written, from when they hold, and what somebody without rights is told."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner

import citehound
from citehound import config
from citehound.access import OWNER, Access, Principal
from citehound.answers import Answer, Call, Citation, Claim
from citehound.assistant import Assistant
from citehound.cli import main
from citehound.config import Config
from citehound.corpus import Corpus
from citehound.errors import CitehoundError, ConfigError, IndexCorrupt, UnknownDocument, UnknownSource
from citehound.index.embedded import EmbeddedIndex
from citehound.index.terms import Terms
from citehound.runs import RunRecord, RunSummary
from citehound.server.app import bind, create_app
from citehound.server.tokens import FILE as TOKENS
from citehound.server.tokens import Tokens
from citehound.sources.python import PythonSource
from citehound.toolbox import corpus_tools
from index_conformance import entry
from served import live
from small import write_corpus

ANN = Principal(name="ann", groups=frozenset({"hr"}))
BEN = Principal(name="ben", groups=frozenset({"sales"}))
EVE = Principal(name="eve")
FILES = {
    "hr/pay.md": (
        "---\nsupplier: Payco\n---\n# Pay bands\n\n## 1 Bands\n\nThe gadolinium band begins at 90,000 euros.\n"
    ),
    "hr/handbook/leave.md": "# Leave\n\n## 1 Days\n\nEverybody has 30 days of leave. See Pay Bands.\n",
    "rules/security.md": "# Security policy\n\n## 7 Incidents\n\nIncidents are reported within 24 hours.\n",
    "rules/board/minutes.md": "# Minutes\n\n## 1 Sale\n\nThe board plans to sell the subsidiary in March.\n",
    "rules/board/minutes-old.md": (
        "---\nsupersedes: security\n---\n# New security\n\n## 7 Incidents\n\nWithin 12 hours.\n"
    ),
}
TOML = """\
[[sources]]
name = "hr"
path = "hr"
filters = ["supplier"]
access = ["hr"]

[[sources]]
name = "rules"
path = "rules"

[[access]]
paths = ["hr/handbook/"]
groups = ["*"]

[[access]]
paths = ["rules/board"]
groups = []
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Generator[Corpus]:
    with synced(tmp_path_factory.mktemp("permissions"), FILES, TOML) as made:
        yield made


def synced(root: Path, files: dict[str, str], toml: str) -> Corpus:
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
    corpus = Corpus.open(config.load(write_corpus(root, files, toml=toml), env={}), write=True)
    corpus.sync()
    return corpus


def _found(corpus: Corpus, query: str, principal: Principal) -> list[str]:
    return [hit.document for hit in corpus.search(None, query, principal=principal).hits]


def _read(text: str, *, folder: Path) -> Config:
    (folder / "hr").mkdir(exist_ok=True)
    (folder / "rules").mkdir(exist_ok=True)
    (folder / "citehound.toml").write_text(text, "utf-8")
    return config.load(folder / "citehound.toml", env={})


SOURCES = '[[sources]]\nname = "hr"\npath = "hr"\n[[sources]]\nname = "rules"\npath = "rules"\n'


# what is seen


def test_groups_see_what_rules_give_them_and_the_owner_sees_all(corpus: Corpus) -> None:
    seen = {p.name: set(_ids(corpus, p)) for p in (OWNER, ANN, EVE)}
    board = {"rules/board/minutes", "rules/board/minutes-old"}
    assert seen["owner"] == {"hr/pay", "hr/handbook/leave", "rules/security", *board}
    assert seen["ann"] == {"hr/pay", "hr/handbook/leave", "rules/security"}
    assert seen["eve"] == {"hr/handbook/leave", "rules/security"}


def _ids(corpus: Corpus, principal: Principal) -> list[str]:
    listed = corpus.list_documents(None, principal=principal, only_current=False).documents
    return [info.document for info in listed]


@pytest.mark.parametrize("name", ["hr/pay", "pay", "hr/pay.md", "no-such-thing", "minutes"])
def test_forbidden_is_told_like_missing(corpus: Corpus, name: str) -> None:
    said: dict[str, str] = {}
    for what in (name, "zq9"):
        with pytest.raises(UnknownDocument) as caught:
            corpus.read(what, principal=EVE)
        said[what] = str(caught.value).replace(repr(what), "")
    assert "pay" not in said[name].replace("pay bands", "")
    assert said[name].startswith(said["zq9"].partition(";")[0])


def test_a_search_counts_and_suggests_nothing_of_what_is_forbidden(corpus: Corpus) -> None:
    assert corpus.search(None, "gadolinium", principal=EVE).hits == ()
    terms = corpus.explain(None, "gadolinium", principal=EVE).terms
    assert [(term.passages, term.left_out) for term in terms] == [(0, "occurs nowhere")]
    assert corpus.lexicon(principal=EVE).frequency("gadolinium") == 0
    assert corpus.lexicon(principal=ANN).frequency("gadolinium") == 1
    result = corpus.search("hr", "leave", principal=EVE, filters={"supplier": "Paico"})
    assert result.hits == () and "Payco" not in str(result.notes)
    assert list(corpus.filter_values("hr", "supplier", principal=EVE)) == []


def test_a_forbidden_successor_does_not_show(corpus: Corpus) -> None:
    assert corpus.info("rules/security", principal=EVE).current
    assert corpus.info("rules/security", principal=EVE).labels == ()
    assert corpus.info("rules/security", principal=OWNER).labels == ("superseded by rules/board/minutes-old",)
    assert corpus.search("rules", "incidents", principal=EVE).hidden_superseded == 0


def test_a_lead_never_ends_at_a_forbidden_document(corpus: Corpus) -> None:
    def reached(principal: Principal) -> list[str]:
        found = corpus.chase("How much do the pay bands say?", principal=principal, start="hr/handbook/leave")
        return [one.hit.document for one in found]

    assert "hr/pay" in reached(ANN)
    assert "hr/pay" not in reached(EVE)


def test_tools_have_the_sources_and_values_that_the_asker_may_know(tmp_path: Path) -> None:
    files = {name: text for name, text in FILES.items() if "handbook" not in name}
    toml = TOML.replace('paths = ["hr/handbook/"]\ngroups = ["*"]', 'paths = ["hr/handbook/"]\ngroups = ["sales"]')
    with synced(tmp_path, files, toml) as corpus:
        tools = {p.name: corpus_tools(corpus, principal=p) for p in (ANN, BEN, EVE)}
        assert "Payco" in str([tool.parameters for tool in tools["ann"]])
        assert [tool.name for tool in tools["ben"]][:2] == ["search_hr", "search_rules"]
        assert "Payco" not in str([tool.parameters for tool in tools["ben"]])
        assert [tool.name for tool in tools["eve"]][:1] == ["search_rules"]
        assert "'hr'" not in str([tool.parameters for tool in tools["eve"]])
        with pytest.raises(UnknownSource) as caught:
            corpus.search("hr", "pay", principal=EVE)
        assert str(caught.value) == "no source is called 'hr'; known: 'rules'"


def test_an_answer_has_nothing_of_what_is_forbidden(corpus: Corpus) -> None:
    question = "What does the gadolinium band begin at, and what does the board plan to sell?"
    answer = asyncio.run(Assistant(corpus.config, corpus, principal=EVE, record=False).ask(question, mode="agent"))
    said = json.dumps(answer.to_dict())
    assert "90,000" not in said and "subsidiary" not in said and "hr/pay" not in said
    answer = asyncio.run(Assistant(corpus.config, corpus, principal=ANN, record=False).ask(question, mode="agent"))
    assert "90,000" in json.dumps(answer.to_dict())


def test_what_was_read_in_a_chat_is_dropped_when_the_right_to_it_goes(tmp_path: Path) -> None:
    with synced(tmp_path, FILES, TOML) as corpus:
        assistant = Assistant(corpus.config, corpus, principal=ANN, record=False)
        chat = assistant.chat()
        first = asyncio.run(chat.ask("What does the gadolinium band begin at?"))
        assert "90,000" in first.text
        change(tmp_path, TOML.replace('access = ["hr"]', 'access = ["board"]'))
        second = asyncio.run(chat.ask("And what does the gadolinium band begin at again?"))
        assert "90,000" not in json.dumps(second.to_dict())


def test_a_file_inside_another_one_has_the_rights_of_that_one(tmp_path: Path) -> None:
    mail = (
        "From: a@example.org\nTo: b@example.org\nSubject: Salary\nMIME-Version: 1.0\n"
        'Content-Type: multipart/mixed; boundary="b"\n\n--b\nContent-Type: text/plain\n\nAttached.\n'
        '--b\nContent-Type: text/plain\nContent-Disposition: attachment; filename="figures.txt"\n\n'
        "The tungsten salary is 70,000 euros.\n--b--\n"
    )
    toml = TOML.replace('paths = ["rules/board"]', 'paths = ["rules/salary.eml"]')
    with synced(tmp_path, {**FILES, "rules/salary.eml": mail}, toml) as corpus:
        assert len(_found(corpus, "tungsten salary", OWNER)) >= 1
        assert _found(corpus, "tungsten", EVE) == []


def test_a_live_source_is_there_for_its_groups_only(tmp_path: Path) -> None:
    @citehound.source(name="crm", access=["sales"])
    def crm(query: str) -> list[str]:
        """Customers."""
        return [f"Customer Nimbus asked for {query}."]

    made = config.load(write_corpus(tmp_path, FILES, toml=TOML), env={})
    with Corpus.open(made, write=True, functions=(PythonSource.of(crm),)) as corpus:
        corpus.sync()
        assert corpus.search("crm", "credit", principal=BEN).hits
        name = corpus.search("crm", "credit", principal=BEN).hits[0].document
        assert "Nimbus" in corpus.read(name, principal=BEN).text
        with pytest.raises(UnknownSource):
            corpus.search("crm", "credit", principal=EVE)
        with pytest.raises(UnknownDocument) as caught:
            corpus.read(name, principal=EVE)
        assert "crm" not in str(caught.value).replace(name, "")
        assert "search_crm" not in {tool.name for tool in corpus_tools(corpus, principal=EVE)}
        change(tmp_path, TOML.replace('access = ["hr"]', 'access = ["sales"]'))
        assert "hr/pay" in _ids(corpus, BEN)
        with pytest.raises(UnknownSource):
            corpus.search("crm", "credit", principal=EVE)


# from when it holds


def change(root: Path, toml: str) -> None:
    path = root / "citehound.toml"
    before = path.stat().st_mtime_ns
    path.write_text(toml, "utf-8")
    os.utime(path, ns=(before + 1_000_000, before + 1_000_000))


def test_changed_rights_hold_at_the_next_question_and_scores_at_once(tmp_path: Path) -> None:
    with synced(tmp_path / "one", FILES, SOURCES) as corpus:
        assert "hr/pay" in _found(corpus, "gadolinium band", EVE)
        change(tmp_path / "one", TOML)
        assert _found(corpus, "gadolinium", EVE) == []
        assert corpus.lexicon(principal=EVE).frequency("gadolinium") == 0
        now = corpus.search(None, "incidents leave days", principal=EVE)
        report = corpus.sync()
        assert {file.status for file in report.files} == {"unchanged"}
        after = corpus.search(None, "incidents leave days", principal=EVE)
        assert now == after
        assert _found(corpus, "gadolinium", EVE) == [] and _found(corpus, "gadolinium", ANN) == ["hr/pay"]
        few = {name: text for name, text in FILES.items() if name in ("hr/handbook/leave.md", "rules/security.md")}
        with synced(tmp_path / "other", few, TOML) as other:
            assert other.search(None, "incidents leave days", principal=EVE) == after
        change(tmp_path / "one", SOURCES)
        assert "hr/pay" in _found(corpus, "gadolinium band", EVE)


def test_while_the_file_cannot_be_read_only_the_owner_sees_anything(tmp_path: Path) -> None:
    with synced(tmp_path, FILES, TOML) as corpus:
        change(tmp_path, TOML + "[[acess]]\n")
        assert _ids(corpus, ANN) == [] and corpus.sources_for(ANN) == ()
        assert len(_ids(corpus, OWNER)) == 5
        assert "acess" in corpus.warnings[0]
        (tmp_path / "citehound.toml").unlink()
        assert _ids(corpus, ANN) == []
        _change_back = tmp_path / "citehound.toml"
        _change_back.write_text(TOML, "utf-8")
        assert len(_ids(corpus, ANN)) == 3


def test_documents_of_a_source_that_is_no_longer_configured_are_the_owners(tmp_path: Path) -> None:
    with synced(tmp_path, FILES, TOML) as corpus:
        change(tmp_path, '[[sources]]\nname = "rules"\npath = "rules"\n')
        assert set(_ids(corpus, ANN)) == {"rules/security", "rules/board/minutes", "rules/board/minutes-old"}
        assert "hr/pay" in _ids(corpus, OWNER)


# how rules are written


def test_the_first_rule_that_names_a_document_counts_then_its_source(tmp_path: Path) -> None:
    rules = (
        '[[access]]\npaths = ["rules/a/x.md"]\ngroups = ["one"]\n[[access]]\npaths = ["rules/a/**"]\ngroups = ["two"]\n'
    )
    access = _read(SOURCES + rules, folder=tmp_path).rights
    assert access.audience(document="rules/a/x", source="rules", path="a/x.md") == {"one"}
    assert access.audience(document="rules/a/y", source="rules", path="a/y.md") == {"two"}
    assert access.audience(document="rules/b", source="rules", path="b.md") is None
    assert access.audience(document="gone/b", source="gone", path="b.md") == frozenset()


@pytest.mark.parametrize(
    ("glob", "covered"),
    [
        ("hr/pay.md", True), ("hr/pay", True), ("hr", True), ("hr/", True), ("hr/*", True), ("*/pay.md", True),
        ("pay*", True), ("**", True), ("hr/Pay.md", False), ("rules/**", False), ("hr/pa", False),
    ],
)  # fmt: skip
def test_a_glob_covers_paths_ids_and_all_below(tmp_path: Path, glob: str, covered: bool) -> None:
    rules = f'[[access]]\npaths = ["{glob}"]\ngroups = ["board"]\n'
    access = _read(SOURCES + rules, folder=tmp_path).rights
    assert (access.audience(document="hr/pay", source="hr", path="pay.md") == {"board"}) is covered


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[access]]\npath = ["hr/"]\ngroups = ["x"]\n', "did you mean 'access[1].paths'"),
        ('[[access]]\npaths = ["hr/"]\ngroup = ["x"]\n', "did you mean 'access[1].groups'"),
        ('[[access]]\npaths = ["rule/x"]\ngroups = ["x"]\n', "no source's name; did you mean 'rules'"),
        ('[access]\npaths = ["hr/"]\n', "write [[access]], with two brackets"),
    ],
)
def test_a_wrong_name_in_a_rule_is_refused_with_the_nearest(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("[", r"\[").replace("]", r"\]")):
        _read(
            SOURCES + text if text.startswith("[[") else text.replace("[access]", SOURCES + "[access]"), folder=tmp_path
        )


@pytest.mark.parametrize(
    ("text", "mine", "others"),
    [
        ('[[access]]\npaths = ["hr/"]\ngroups = "hr"\n', False, True),
        ('[[access]]\npaths = ["hr/"]\n', False, True),
        ('[[access]]\npaths = ["hr/"]\ngroups = ["hr", 7]\n', False, True),
        ('[[access]]\npaths = "hr/"\ngroups = ["hr"]\n', False, False),
        ('[[access]]\ngroups = ["hr"]\n', False, False),
        ('[[access]]\npaths = ["hr/[z-a]"]\ngroups = ["hr"]\n', False, False),
        ('[[access]]\npaths = []\ngroups = ["hr"]\n', False, False),
    ],
)
def test_a_rule_that_cannot_be_read_denies(tmp_path: Path, text: str, mine: bool, others: bool) -> None:
    made = _read(SOURCES + text, folder=tmp_path)
    ours = made.rights.audience(document="hr/pay", source="hr", path="pay.md")
    theirs = made.rights.audience(document="rules/x", source="rules", path="x.md")
    assert (ANN.may_see(ours), ANN.may_see(theirs)) == (mine, others)
    assert OWNER.may_see(ours)
    assert len(made.access.problems) == 1 and "only the owner sees" in made.access.problems[0]


def test_access_of_a_source_that_cannot_be_read_denies_the_source(tmp_path: Path) -> None:
    made = _read(SOURCES.replace('path = "hr"\n', 'path = "hr"\naccess = "hr"\n'), folder=tmp_path)
    assert made.rights.audience(document="hr/pay", source="hr", path="pay.md") == frozenset()
    assert "source 'hr'" in made.access.problems[0]


def test_doctor_and_index_say_what_is_wrong_with_rules(tmp_path: Path) -> None:
    toml = TOML + '[[access]]\npaths = ["rules/nowhere/"]\ngroups = ["x"]\n[[access]]\npaths = "hr"\ngroups = ["hr"]\n'
    path = write_corpus(tmp_path, FILES, toml=toml)
    ran = CliRunner().invoke(main, ["index", "--config", str(path)])
    assert "access[4].paths must be a list of globs" in ran.stderr
    ran = CliRunner().invoke(main, ["doctor", "--config", str(path), "--no-calls", "--json"])
    found = [f for f in json.loads(ran.stdout)["findings"] if f["check"] == "access"]
    assert any("access[4].paths must be" in f["says"] for f in found)
    assert any("'rules/nowhere/' names no document" in f["says"] for f in found)
    assert any("5 documents: 1 for everyone who may ask, 4 for the owner alone" in f["says"] for f in found)


# a document's own words


def test_no_document_can_give_itself_rights_trust_or_weight(tmp_path: Path) -> None:
    keys = ("access", "groups", "acl", "allow", "trust", "principal", "id", "source", "boost", "tenant", "private")
    files: dict[str, str] = {}
    for key in keys:
        files[f"hr/{key}.md"] = f"---\n{key}: '*'\nallowed_groups: [everyone]\n---\n# Plan\n\nThe osmium plan.\n"
    rows = "".join(f"{key}.md,{','.join(['open'] * len(keys))},Plan\n" for key in keys)
    files["hr/manifest.csv"] = f"path,{','.join(keys)},title\n{rows}"
    toml = '[[sources]]\nname = "hr"\npath = "hr"\naccess = ["hr"]\n'
    with synced(tmp_path, files, toml) as corpus:
        assert _ids(corpus, EVE) == [] and _ids(corpus, ANN) == sorted(f"hr/{key}" for key in keys)
        for info in corpus.list_documents(None, principal=ANN).documents:
            assert info.trust == "reviewed" and not {*keys, "allowed_groups"} & info.metadata.keys()


def test_attacks_on_metadata_take_no_power(shared_data: Path, tmp_path: Path) -> None:
    lines = (shared_data / "attacks" / "injections.jsonl").read_text("utf-8").splitlines()
    items: list[dict[str, Any]] = [json.loads(line) for line in lines if line.strip()]
    wanted = [i for i in items if any(str(m).startswith(("field:", "overwrite:")) for m in i["must_not"])]
    assert len(wanted) >= 4
    official = "# Outsourcing Policy v4\n\nIncidents are reported within 24 hours.\n"
    files = {f"wiki/item-{n}.md": f"---\n{item['text']}\n---\n# Item\n\nText.\n" for n, item in enumerate(wanted)}
    files["wiki/item-past.md"] = "---\nsupersedes: [outsourcing-policy-v4]\neffective: 2020-01-01\n---\n# V6\n\nNone.\n"
    files["wiki/item-mends.md"] = "---\namends: outsourcing-policy-v4\n---\n# Change\n\nNone.\n"
    files["policies/outsourcing-policy-v4.md"] = official
    toml = (
        '[[sources]]\nname = "wiki"\npath = "wiki"\ntrust = "open"\naccess = ["hr"]\n'
        '[[sources]]\nname = "policies"\npath = "policies"\n'
    )
    with synced(tmp_path, files, toml) as corpus:
        assert _ids(corpus, EVE) == ["policies/outsourcing-policy-v4"]
        for principal in (EVE, ANN):
            info = corpus.info("outsourcing-policy-v4", principal=principal)
            assert info.document == "policies/outsourcing-policy-v4"
            assert info.current and info.labels == () and info.trust == "reviewed"
        mine = corpus.list_documents("wiki", principal=ANN, only_current=False).documents
        assert len(mine) == len(files) - 1
        forbidden = {"id", "source", "acl", "allowed_groups", "tenant"}
        assert all(info.trust == "open" and not forbidden & info.metadata.keys() for info in mine)


def test_errors_of_somebody_without_rights_name_nothing(corpus: Corpus) -> None:
    said: list[str] = []
    for call in (
        lambda: corpus.find("hr/pay", "band", principal=EVE),
        lambda: corpus.info("hr/pay", principal=EVE),
        lambda: corpus.document("hr/pay", principal=EVE),
        lambda: corpus.chase("band", start="hr/pay", principal=EVE),
        lambda: corpus.read("hr/pay", section="1", principal=EVE),
    ):
        with pytest.raises(CitehoundError) as caught:
            call()
        said.append(str(caught.value))
    assert len(set(said)) == 1 and said[0].startswith("no document is called 'hr/pay'")


# the index itself

PARTED = Access(sources={"a": frozenset({"a"}), "b": frozenset({"b"})})


def _parted(folder: Path) -> EmbeddedIndex:
    index = EmbeddedIndex(folder, write=True, access=lambda: PARTED)
    index.add([entry("a/x", "Encryption of keys."), entry("b/y", "Encryption in a vault.")])
    return index


def _both(folder: Path) -> dict[str, list[str]]:
    with EmbeddedIndex(folder, access=lambda: PARTED) as index:
        return {
            group: [h.document for h in index.search("encryption", principal=who).hits]
            for group in ("a", "b")
            for who in [Principal(name=group, groups=frozenset({group}))]
        }


def test_what_a_killed_writer_left_is_finished_in_its_part(tmp_path: Path) -> None:
    index = _parted(tmp_path / "index")
    store = index._store  # pyright: ignore[reportPrivateUsage]
    assert store is not None
    store.db.execute("COMMIT")
    index.abandon()
    for part in (p for p in (tmp_path / "index" / "terms").iterdir() if p.is_dir()):
        shutil.rmtree(part)
        part.mkdir()  # killed before the part was made
    assert _both(tmp_path / "index") == {"a": ["a/x"], "b": ["b/y"]}


def test_a_writer_killed_while_it_sorts_anew_is_finished_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedIndex(tmp_path / "index", write=True) as index:
        index.add([entry("a/x", "Encryption of keys."), entry("b/y", "Encryption in a vault.")])

    def killed(self: Terms) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Terms, "commit", killed)
        EmbeddedIndex(tmp_path / "index", write=True, access=lambda: PARTED)
    assert _both(tmp_path / "index") == {"a": ["a/x"], "b": ["b/y"]}
    EmbeddedIndex(tmp_path / "index", write=True, access=lambda: PARTED).close()
    assert _both(tmp_path / "index") == {"a": ["a/x"], "b": ["b/y"]}


def test_a_changed_byte_in_any_part_is_noticed(tmp_path: Path) -> None:
    _parted(tmp_path / "index").close()
    files = [p for p in (tmp_path / "index" / "terms").rglob("*") if p.parent.name != "terms" and p.is_file()]
    assert len({p.parent for p in files}) == 2
    for path in (p for p in files if p.suffix != ".lock" and p.stat().st_size):
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(IndexCorrupt):
            EmbeddedIndex(tmp_path / "index")
        path.write_bytes(whole)
    assert _both(tmp_path / "index") == {"a": ["a/x"], "b": ["b/y"]}


def test_a_token_sees_through_the_server_what_its_groups_may(tmp_path: Path) -> None:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    toml = TOML.replace('paths = ["hr/handbook/"]', 'paths = ["hr/nothing/"]').replace(
        'groups = ["*"]', 'groups = ["hr"]'
    )
    loaded = config.load(write_corpus(tmp_path, FILES, toml=toml), env={})
    tokens = Tokens(loaded.state / TOKENS)
    made = {"eve": tokens.add("eve"), "ann": tokens.add("ann", groups=["hr"])}
    listening = bind("127.0.0.1", 0)
    app = create_app(loaded, port=listening.getsockname()[1])
    with live(app, listening) as url, httpx2.Client(base_url=url, timeout=60, trust_env=False) as client:

        def got(who: str, path: str) -> httpx2.Response:
            return client.get(path, headers={"Authorization": f"Bearer {made[who]}"})

        assert [s["name"] for s in got("ann", "/v1/sources").json()["sources"]] == ["hr", "rules"]
        assert [s["name"] for s in got("eve", "/v1/sources").json()["sources"]] == ["rules"]
        assert got("ann", "/v1/documents/hr/pay").status_code == 200
        forbidden, missing = got("eve", "/v1/documents/hr/pay"), got("eve", "/v1/documents/hr/zzz")
        assert (forbidden.status_code, missing.status_code) == (404, 404)
        assert forbidden.text.replace("hr/pay", "hr/zzz") == missing.text
        for path in ("/v1/sources/hr/documents", "/v1/sources/hr/report"):
            there, not_there = got("eve", path), got("eve", path.replace("/hr/", "/zz/"))
            assert there.status_code == 404 and there.text.replace("'hr'", "'zz'") == not_there.text
        headers = {"Authorization": f"Bearer {made['eve']}"}
        asked = client.post("/v1/ask", json={"question": "pay bands?", "sources": ["hr"]}, headers=headers)
        assert asked.status_code == 404
        found = client.post("/v1/search", json={"source": "rules", "query": "subsidiary"}, headers=headers).json()
        assert found["hits"] == []
        change(tmp_path, toml.replace('access = ["hr"]', ""))
        assert got("eve", "/v1/documents/hr/pay").status_code == 200


def test_a_run_goes_with_the_right_to_what_it_found_and_comes_back_with_it(tmp_path: Path) -> None:
    toml = TOML.replace('paths = ["rules/board"]', 'paths = ["rules/none"]')
    loaded = config.load(write_corpus(tmp_path, FILES, toml=toml), env={})
    tokens = Tokens(loaded.state / TOKENS)
    made = {"ann": tokens.add("ann", groups=["hr"]), "boss": tokens.add("boss", owner=True)}
    listening = bind("127.0.0.1", 0)
    app = create_app(loaded, port=listening.getsockname()[1])
    with live(app, listening) as url, httpx2.Client(base_url=url, timeout=60, trust_env=False) as client:

        def sent(method: str, path: str, who: str = "ann", **more: Any) -> httpx2.Response:
            return client.request(method, path, headers={"Authorization": f"Bearer {made[who]}"}, **more)

        def listed(who: str = "ann") -> list[set[str]]:
            pages = [sent("GET", path, who).json() for path in ("/v1/runs", "/v1/dashboard/runs")]
            return [{run["run_id"] for run in page["runs"]} for page in pages]

        def asked(question: str, source: str) -> str:
            body = {"question": question, "sources": [source], "mode": "single"}
            return str(sent("POST", "/v1/ask", json=body).json()["run_id"])

        pay = asked("What does the gadolinium band begin at?", "hr")
        other = asked("Within how many hours are incidents reported?", "rules")
        assert "90,000" in sent("GET", f"/v1/runs/{pay}").text
        assert listed() == [{pay, other}] * 2

        def tries() -> list[httpx2.Response]:
            return [
                sent("GET", f"/v1/runs/{pay}"),
                sent("GET", f"/v1/runs/{pay}/events"),
                sent("GET", f"/v1/runs/{pay}/report"),
                sent("POST", f"/v1/runs/{pay}/cancel"),
                sent("POST", f"/v1/runs/{pay}/feedback", json={"good": True}),
                sent("POST", "/v1/verify", json={"claims": [], "run_id": pay}),
            ]

        missing = sent("GET", "/v1/runs/zzzz").content
        rule = '[[access]]\npaths = ["hr/pay.md"]\ngroups = ["board"]\n'
        for withdrawn in (toml.replace('access = ["hr"]', 'access = ["board"]'), toml + rule):
            change(tmp_path, withdrawn)
            assert [(r.status_code, r.content) for r in tries()] == [(404, missing)] * 6
            assert listed() == [{other}] * 2
            assert "90,000" in sent("GET", f"/v1/runs/{pay}", "boss").text
            assert listed("boss") == [{pay, other}] * 2
            assert sent("GET", f"/v1/runs/{other}").status_code == 200
            change(tmp_path, toml)
            assert [r.status_code for r in tries()] == [200, 200, 200, 202, 200, 200]
        (tmp_path / "hr/pay.md").unlink()
        with Corpus.open(loaded, write=True) as writer:
            writer.sync()
        assert sent("GET", "/v1/documents/hr/pay").status_code == 404
        assert "90,000" in sent("GET", f"/v1/runs/{pay}").text and listed() == [{pay, other}] * 2


def test_what_a_model_only_named_takes_no_run_away_and_so_tells_nothing() -> None:
    guessed = Citation(document="hr/pay", quote="The gadolinium band", reason="not read")
    answer = Answer(
        question="?", requested_mode="agent", mode="agent", route="", model="x", status="failed", text="",
        claims=(Claim(text="x", citations=(guessed,)),),
        calls=(Call(step=1, tool="read_document", arguments={"document": "hr/pay"}, error="no such document"),),
    )  # fmt: skip
    line = RunSummary(
        run_id="x", created=0, question="?", mode="agent", model="x", status="failed", stop_reason="answered",
        steps=1, searches=0, reads=0, dollars=0, seconds=0, unverified=1,
    )  # fmt: skip
    assert RunRecord(summary=line, answer=answer, events=()).documents == frozenset()
