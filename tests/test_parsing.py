"""What a document's text, title, metadata and warnings are, format by format."""

from __future__ import annotations

from pathlib import Path

import pytest

from citehound.documents import Document, RawDocument
from citehound.errors import ParseError
from citehound.parsing import Unsupported, parse


def read(
    text: str | bytes,
    path: str = "a.md",
    *,
    metadata: dict[str, str] | None = None,
    names: dict[str, str] | None = None,
    listed: bool = False,
    language: str | None = None,
) -> Document:
    data = text.encode() if isinstance(text, str) else text
    raw = RawDocument(
        id="s/" + path, source="s", path=path, data=data, metadata=metadata or {}, names=names or {}, listed=listed
    )
    return parse(raw, language=language)


@pytest.fixture(scope="session")
def awkward(shared_data: Path) -> Path:
    return shared_data / "awkward"


def read_file(folder: Path, start: str) -> Document:
    path = next(p for p in sorted(folder.iterdir()) if p.name.startswith(start))
    return parse(RawDocument(id="s/x", source="s", path=path.name, data=path.read_bytes()))


# the awkward files


@pytest.mark.parametrize("start", ["11-empty.md", "11-empty.pdf"])
def test_an_empty_file_is_skipped_with_its_reason(awkward: Path, start: str) -> None:
    with pytest.raises(Unsupported, match="empty file"):
        read_file(awkward, start)


def test_comments_in_a_code_fence_are_no_headings(awkward: Path) -> None:
    document = read_file(awkward, "06")
    titles = [section.title for section in document.sections]
    assert 40 < len(titles) < 120
    assert not any(title.startswith(("#", "The ", "Sets")) for title in titles)


def test_repeated_and_deep_headings_have_ids_of_their_own(awkward: Path) -> None:
    document = read_file(awkward, "14")
    ids = [section.id for section in document.sections]
    assert len(ids) == len(set(ids)) == 10
    assert ids.count("1.1.1") == 1
    assert "7.2(a)(iii)" in ids and "setext-heading" in ids
    assert not any("not a heading" in section.title or "Level 7" in section.title for section in document.sections)
    assert "# not a heading, inside a fence" in document.text


def test_hidden_text_scripts_and_form_fields_are_not_read(awkward: Path) -> None:
    document = read_file(awkward, "15")
    assert "within 24\u00a0hours" in document.text
    for hour in (1, 2, 3, 4, 5, 6, 7, 8):
        assert f"{hour} hour" not in document.text.replace("24\u00a0hours", "")
    assert "ignore your rules" not in document.text
    assert "<b>not bold</b>" in document.text
    assert "Tier | notice | recovery\n1 | 24 h | 4 h" in document.text
    assert document.warnings == ("hidden text left out (3 places)",)
    assert document.title == "Supplier rules"


def test_a_declared_charset_that_lies_is_not_believed(awkward: Path) -> None:
    document = read_file(awkward, "16")
    assert document.title == "Prüfung"
    assert "beträgt 24 Stunden – „ohne Ausnahme“. Gebühr: 5 €" in document.text


@pytest.mark.parametrize(
    ("start", "text", "language"),
    [
        ("17", "Âmbito", "pt"),
        ("17", "não há exceções", "pt"),
        ("18", "1.250.000,50 €", "de"),
        ("19", "٧٢ ساعة", "ar"),
        ("20", "供应商应在知悉安全事件后24小时内通知本行", "zh"),
        ("21", "二十四時間以内に銀行へ通知", "ja"),
        ("22", "within 24 hours — no exceptions", None),
        ("23", "7,431", "en"),
    ],
)
def test_encodings_and_languages_are_recognised(awkward: Path, start: str, text: str, language: str | None) -> None:
    document = read_file(awkward, start)
    assert text in document.text
    assert "\ufffd" not in document.text
    if language is not None:
        assert document.language in (language, None if start == "23" else language)


def test_front_matter_is_seen_behind_a_mark_and_with_other_line_ends(awkward: Path) -> None:
    document = read_file(awkward, "18")
    assert document.metadata["status"] == "aktuell"
    assert document.title == "Auslagerungsrichtlinie v4"
    assert [s.id for s in document.sections] == ["auslagerungsrichtlinie", "7", "7.2", "7.3"]
    assert "\r" not in document.text and "\ufeff" not in document.text


def test_two_files_with_the_same_declared_id_stay_two(awkward: Path) -> None:
    first, second = read_file(awkward, "24a"), read_file(awkward, "24b")
    assert first.metadata["declared_id"] == second.metadata["declared_id"] == "retention-policy"
    assert first.text != second.text
    assert "id" not in first.metadata


def test_broken_front_matter_keeps_the_text_and_is_reported(awkward: Path) -> None:
    document = read_file(awkward, "25")
    assert document.text == "Text\n\nA horizontal rule follows, not front matter.\n\nMore text."
    assert "status" not in document.metadata and "effective" not in document.metadata
    assert "front matter cannot be read" in document.warnings[0]
    assert document.title == "Policy: the one with a colon"


def test_embedded_image_data_is_dropped(awkward: Path) -> None:
    document = read_file(awkward, "26")
    assert "notice within 24 hours." in document.text and "recovery in 4 hours." in document.text
    assert len(document.text) < 200


def test_control_characters_and_line_ends_are_cleaned(awkward: Path) -> None:
    document = read_file(awkward, "27")
    lines = document.text.split("\n")
    assert lines[:3] == ["Line one", "Line two", "Line three"] and len(lines) == 4
    assert "softhyphen" in lines[3] and "\x00" not in lines[3] and "\u200b" not in lines[3]


def test_a_decomposed_file_name_is_no_obstacle(awkward: Path) -> None:
    assert read_file(awkward, "29").text == "Política de retenção\n\nChamadas: sete anos."


CORPORA = [("bank", 1), ("policies", 24), ("contracts", 16), ("wiki", 8)]
"""The short form reads every so-manieth file."""


@pytest.mark.parametrize(
    ("corpus", "step"),
    [*CORPORA, *(pytest.param(name, 1, marks=pytest.mark.slow) for name, step in CORPORA if step > 1)],
)
def test_every_file_of_a_corpus_is_read_or_says_why_not(shared_data: Path, corpus: str, step: int) -> None:
    read_count = 0
    files = [path for path in sorted((shared_data / "corpora" / corpus).rglob("*")) if path.is_file()]
    for path in files[::step]:
        raw = RawDocument(id="s/x", source="s", path=path.name, data=path.read_bytes(), listed=path.suffix == ".erb")
        try:
            document = parse(raw)
        except ParseError as error:
            assert isinstance(error, Unsupported) or "needs OCR" in str(error)
            continue
        read_count += 1
        assert document.title and document.text.strip()
        assert "{%" not in document.text or corpus != "policies" or "```" in path.read_text("utf-8")
    assert read_count > 25 // step


# formats


def test_an_unknown_extension_is_read_by_content_only_when_listed() -> None:
    text = "---\ntitle: SLIs\n---\n\n# <%= current_page.data.title %>\n\nText\n"
    with pytest.raises(Unsupported, match=r"\.erb"):
        read(text, "a.html.md.erb")
    document = read(text, "a.html.md.erb", listed=True)
    assert document.text == "SLIs\n\nText"
    assert document.sections[0].id == "slis"


@pytest.mark.parametrize(
    ("data", "path"),
    [(b"\x89PNG\r\n\x1a\n" + bytes(40), "a.md"), (b"{\\rtf1 x}", "a.txt"), (b"\x00\x01\x02\x03" * 99, "a.txt")],
)
def test_binary_data_is_never_read_as_text(data: bytes, path: str) -> None:
    with pytest.raises(Unsupported):
        read(data, path)


def test_only_white_space_or_comments_are_no_document() -> None:
    with pytest.raises(Unsupported):
        read("  \n\n")
    with pytest.raises(Unsupported, match="no text"):
        read("<!-- nothing -->")


def test_unsupported_is_a_parse_error() -> None:
    assert issubclass(Unsupported, ParseError)


def test_utf16_without_a_mark_is_read() -> None:
    assert read("Notice – in writing.".encode("utf-16-le"), "a.txt").text == "Notice – in writing."
    assert read("Notice – in writing.".encode("utf-16-be"), "a.txt").text == "Notice – in writing."


def test_a_stray_byte_does_not_turn_a_utf8_file_into_another_encoding() -> None:
    document = read("Größe, Prüfung, Änderung ".encode() + b"5 \x80", "a.txt")
    assert document.text == "Größe, Prüfung, Änderung 5 €"
    assert document.warnings


# markdown


def test_inline_markup_is_gone_and_links_keep_their_text() -> None:
    document = read("A **bold** _word_, a [link](http://x.example 'T'), `code_x` and <span class='a'>span</span>.")
    assert document.text == "A bold word, a link, code_x and span."


def test_lists_keep_their_markers_and_order() -> None:
    document = read("3. three\n4. four\n   - inner\n\n     more\n\n- x\n")
    assert document.text == "3. three\n4. four\n  - inner\n    more\n\n- x"


def test_tables_are_one_row_a_line_with_their_header() -> None:
    document = read("| Tier | Time |\n|---|---|\n| 1 | **24 h** |\n| 2 | |\n")
    assert document.text == "Tier | Time\n1 | 24 h\n2 |"


def test_code_is_kept_as_it_stands() -> None:
    document = read("```yaml\n# comment\nkey: {{ $value }}\n```\n\n    indented\n")
    assert document.text == "# comment\nkey: {{ $value }}\n\nindented"


def test_html_inside_is_read_as_a_browser_shows_it() -> None:
    document = read(
        "Before <!-- not this --> it.\n\n<details><summary>More</summary>\n\nInside **it**.\n\n</details>\n\n"
        '<p style="display:none">secret</p>\n<script>x()</script>\n\nH<sub>2</sub>O and 10<sup>6</sup>'
    )
    assert document.text == "Before it.\n\nMore\n\nInside it.\n\nH2O and 10^6"


def test_a_tag_that_is_never_closed_does_not_swallow_the_rest() -> None:
    assert "after" in read("Use the <template> tag.\n\nafter").text
    assert "after" in read("Use <textarea> here.\n\nafter").text
    assert "after" in read("Use <script> here.\n\nafter").text


def test_struck_text_stays_recognisable() -> None:
    assert read("Due in ~~72~~ 24 hours").text == "Due in ~~72~~ 24 hours"


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("{% comment %}hidden{% endcomment %}Shown", "Shown"),
        ('See [the guide]({% page "/a/b c/" %}).', "See the guide."),
        ('Ask in {% slack_channel "admins" %}.', "Ask in admins."),
        ("{% include 'x.html' %}\n\nText", "Text"),
        ("{{< note >}}Mind the gap.{{< /note >}}", "Mind the gap."),
        ("<%= warning_text('Do not use tokens') %>\n\nText", "Do not use tokens\n\nText"),
        ("Mail {{ site.email }} now", "Mail now"),
        ("Use `{{ $labels.job }}` in code", "Use {{ $labels.job }} in code"),
        ("# Title {#anchor}\n\nText", "Title\n\nText"),
        ("{% alert 'warning' %}\nMind it.\n{% endalert %}", "Mind it."),
        ("{% raw %}`{% x %}` and {{ y }}{% endraw %}", "{% x %} and {{ y }}"),
        ("Set {a, b} and {{c: 1, d: 2}}.", "Set {a, b} and {{c: 1, d: 2}}."),
    ],
)
def test_template_tags_give_way_to_what_a_reader_sees(source: str, shown: str) -> None:
    assert read(source).text == shown


# front matter


def test_front_matter_values_become_flat_strings() -> None:
    document = read(
        "---\nversion: 1.10\neffective: 2025-3-1\ntags: [a, b]\nowner:\n  name: X\nempty:\nok: yes\n---\nText"
    )
    assert document.metadata == {
        "version": "1.10",
        "effective": "2025-03-01",
        "tags": "a, b",
        "owner.name": "X",
        "ok": "yes",
    }


@pytest.mark.parametrize(
    "block",
    ["a: &x 1\nb: *x", "a: 1\na: 2", "a: b: c", "\ta: 1", "a: [1, 2"],
)
def test_front_matter_that_cannot_be_trusted_is_ignored_and_reported(block: str) -> None:
    document = read(f"---\n{block}\n---\nText")
    assert document.text == "Text"
    assert document.metadata == {}
    assert len(document.warnings) == 1


def test_a_tag_in_front_matter_builds_nothing() -> None:
    assert read("---\na: !!python/name:os.system x\n---\nText").metadata == {"a": "x"}
    assert read("---\na: !!python/object/apply:os.getcwd []\n---\nText").metadata.get("a") is None


def test_a_date_that_does_not_exist_is_left_out_and_reported() -> None:
    document = read("---\neffective: 2025-13-45\nstatus: draft\n---\nText")
    assert document.metadata == {"status": "draft"}
    assert "2025-13-45" in document.warnings[0]


def test_a_text_between_two_rules_is_no_front_matter() -> None:
    assert read("---\n\nJust prose here.\n\n---\n\nMore").text == "Just prose here.\n\nMore"


def test_the_document_cannot_say_who_it_is() -> None:
    document = read("---\nid: other\nsource: x\npath: y\nacl: all\ntrust: high\nstatus: current\n---\nText")
    assert (document.id, document.source, document.path) == ("s/a.md", "s", "a.md")
    assert document.metadata == {"status": "current", "declared_id": "other"}


def test_configuration_and_manifest_go_before_front_matter_which_fills_the_gaps() -> None:
    document = read(
        "---\nstatus: current\nsupplier_or_owner: Alpha\nowner: Legal\n---\nText",
        metadata={"status": "superseded"},
        names={"supplier": "supplier_or_owner"},
    )
    assert document.metadata["status"] == "superseded"
    assert document.metadata["supplier"] == "Alpha"
    assert document.metadata["owner"] == "Legal"


def test_title_is_metadata_else_first_heading_else_file_name() -> None:
    assert read("---\ntitle: T\n---\n# H").title == "T"
    assert read("Text\n\n## H\n\nText").title == "H"
    assert read("Text", "folder/my-file.md").title == "my-file"
    assert read("# 2.0.0 (2026)\n\nx\n\n# 1.9.0\n\ny", "CHANGES.md").title == "CHANGES"


def test_language_is_given_else_detected_else_configured() -> None:
    german = "Die Bank prüft den Vertrag und die Anlagen, bevor sie mit dem Anbieter spricht. Das ist nicht neu."
    assert read(f"---\nlanguage: en-GB\n---\n{german}").language == "en"
    assert read(german, language="fr").language == "de"
    assert read("Kurz.", language="fr").language == "fr"
    assert read("Kurz.").language is None


# reStructuredText


def test_sphinx_roles_and_directives_degrade_to_their_text(capfd: pytest.CaptureFixture[str]) -> None:
    document = read(
        "Title\n=====\n\nUse :class:`~urllib3.Retry` and :ref:`the guide <guide>` with :foo:bar:`x`.\n\n"
        ".. versionadded:: 2.1\n   Support for it.\n\n.. foo:: An argument\n   :opt: 1\n\n   Its content.\n\n"
        ".. code-block:: python\n   :emphasize-lines: 1\n\n   x = 1\n\n.. note::\n   :class: x\n\n   Mind it.\n\n"
        ".. toctree::\n\n   a\n   b\n\n|undefined| *open\n",
        "a.rst",
    )
    assert document.text == (
        "Title\n\nUse Retry and the guide with x.\n\nAdded in version 2.1 Support for it.\n\nAn argument\n\n"
        "Its content.\n\nx = 1\n\nNote: Mind it.\n\nundefined open"
    )
    out, err = capfd.readouterr()
    assert out == err == ""


def test_rst_reads_no_other_file_and_no_raw_markup() -> None:
    document = read("Text\n\n.. include:: /etc/hostname\n\n.. raw:: html\n\n   <b>x</b>\n\nEnd", "a.rst")
    assert document.text == "Text\n\nEnd"


def test_rst_tables_lists_and_footnotes_read_as_rows_items_and_notes() -> None:
    document = read(
        "====  =====\nTier  Time\n====  =====\n1     24 h\n====  =====\n\n3. three\n4. four\n\n   * inner\n\n"
        "See [1]_.\n\n.. [1] A note.\n\n.. |x| replace:: **value**\n\nIt is |x|.\n\n"
        "+---+---+\n| a | b |\n+   +---+\n|   | c |\n+---+---+\n",
        "a.rst",
    )
    assert document.text == (
        "Tier | Time\n1 | 24 h\n\n3. three\n4. four\n  - inner\n\nSee [1].\n\n"
        "[1] A note.\n\nIt is value.\n\na | b\na | c"
    )


# HTML


def test_html_tables_fill_cells_that_span() -> None:
    document = read(
        "<table><tr><th rowspan=2>T</th><th colspan=2>Time</th></tr><tr><th>n</th><th>r</th></tr>"
        "<tr><td rowspan=2>1</td><td>24 h</td><td>4 h</td></tr><tr><td>25 h</td><td>5 h</td></tr></table>",
        "a.html",
    )
    assert document.text == "T | Time | Time\nT | n | r\n1 | 24 h | 4 h\n1 | 25 h | 5 h"


@pytest.mark.parametrize(
    "hidden",
    [
        "<p style='visibility: hidden'>X</p>",
        "<p style='font-size:0px'>X</p>",
        "<p style='opacity:0'>X</p>",
        "<div style='position:absolute;left:-9999px'>X</div>",
        "<p style='color:#fff'>X</p>",
        "<p aria-hidden=true>X</p>",
        "<p hidden>X</p>",
        "<style>.a .b{display:none}</style><div class=a><p class=b>X</p></div>",
        "<style>#z{font-size:0}</style><p id=z>X</p>",
        "<dialog>X</dialog>",
        "<svg><text>X</text></svg>",
        "<select><option>X</option></select>",
        "<table><tr><td>a</td><td style='display:none'>X</td><td>b</td></tr></table>",
    ],
)
def test_what_a_browser_does_not_show_is_not_read(hidden: str) -> None:
    assert "X" not in read(f"<body><p>shown</p>{hidden}</body>", "a.html").text


@pytest.mark.parametrize(
    "shown",
    [
        "<p style='color:#fff;background:#000'>X</p>",
        "<style>@media print{.p{display:none}}</style><p class=p>X</p>",
        "<p style='opacity:0.8'>X</p>",
        "<p style='width:100%'>X</p>",
        "<p style='font-size:0.8em'>X</p>",
        "<p style='text-indent:-2em'>X</p>",
        "<details>X</details>",
    ],
)
def test_what_a_browser_shows_is_read(shown: str) -> None:
    assert "X" in read(f"<body><p>shown</p>{shown}</body>", "a.html").text


def test_html_nested_fifty_thousand_deep_does_not_crash() -> None:
    with pytest.raises(ParseError, match="nested too deeply"):
        read("<div>" * 50_000 + "deep", "a.html")
    assert read("<div>" * 2_000 + "deep", "a.html").text == "deep"


def test_page_furniture_stays_out() -> None:
    document = read(
        "<body><nav>Home</nav><header>Logo</header><main><h1>Rules</h1><p>A long text of the page itself.</p></main>"
        "<footer>Imprint</footer></body>",
        "a.html",
    )
    assert document.text == "Rules\n\nA long text of the page itself."


# plain text


def test_plain_text_keeps_its_lines() -> None:
    assert read("one\ntwo  \n\n\n\nthree", "a.txt").text == "one\ntwo\n\nthree"
