"""`citehound.toml`: what is accepted, what is refused and with which words, and what `init` suggests."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from citehound.config import ENVIRONMENT, OTHER_ENVIRONMENT, Config, PriceConfig, find, load, suggest, unknown_variables
from citehound.errors import ConfigError

MINIMAL = '[[sources]]\nname = "docs"\npath = "docs"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    return tmp_path


def read(folder: Path, text: str, **env: str) -> Config:
    (folder / "citehound.toml").write_text(text, "utf-8")
    return load(folder / "citehound.toml", env=env)


def refusal(folder: Path, text: str, **env: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(folder, text, **env)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_minimal_file_gets_the_defaults(folder: Path) -> None:
    config = read(folder, MINIMAL)
    assert config.model.name == "offline"
    assert (config.budget.max_steps, config.budget.max_dollars, config.budget.max_seconds) == (12, 0.5, 120.0)
    assert config.sources[0].path == (folder / "docs").resolve()
    assert config.sources[0].private
    assert config.state == folder.resolve() / ".citehound"


def test_a_key_in_the_environment_alone_names_no_model(folder: Path) -> None:
    assert read(folder, MINIMAL, ANTHROPIC_API_KEY="sk-ant-x").model.name == "offline"


def test_every_setting_is_read(folder: Path) -> None:
    config = read(
        folder,
        """
        [model]
        name = "openai:m"
        small = "openai:s"
        base_url = "http://localhost:1/v1"
        turn_tokens = 100
        draft_tokens = 200
        [model.price]
        input = 1
        output = 2.5
        cached = 0.1
        [budget]
        max_steps = 3
        max_dollars = "none"
        max_seconds = 5
        [index]
        language = "de"
        [[sources]]
        name = "verträge 2024"
        path = "docs"
        description = "  Two\\n lines "
        filters = ["supplier"]
        private = false
        trust = "open"
        language = "fr"
        include = ["*.md"]
        exclude = ["old/**"]
        [sources.metadata]
        supplier = "supplier_or_owner"
        key = "kind"
        """,
    )
    model, source = config.model, config.sources[0]
    assert (model.name, model.small, model.turn_tokens, model.draft_tokens) == ("openai:m", "openai:s", 100, 200)
    assert model.price == PriceConfig(input=1.0, output=2.5, cached=0.1)
    assert (config.budget.max_steps, config.budget.max_dollars, config.budget.max_seconds) == (3, None, 5.0)
    assert config.index.language == "de"
    assert source.description == "Two lines"
    assert (source.filters, source.private, source.trust, source.language) == (("supplier",), False, "open", "fr")
    assert dict(source.metadata) == {"supplier": "supplier_or_owner", "key": "kind"}
    assert (source.include, source.exclude) == (("*.md",), ("old/**",))


def test_a_price_names_input_and_output(folder: Path) -> None:
    free = read(folder, MINIMAL + "[model.price]\ninput = 0\noutput = 0\n").model
    assert free.price == PriceConfig(input=0.0, output=0.0)
    assert "input and output" in refusal(folder, MINIMAL + "[model.price]\ninput = 3\n")
    assert "input and output" in refusal(folder, MINIMAL + "[model.small_price]\noutput = 3\n")
    full = "[model.price]\ninput = 4\noutput = 20\ncached = 0.2\ncache_write = 5\n"
    assert read(folder, MINIMAL + full).model.price == PriceConfig(input=4, output=20, cached=0.2, cache_write=5)


def test_a_key_is_named_by_its_variable_and_never_given(folder: Path) -> None:
    assert read(folder, '[model]\napi_key_env = "MY_API_KEY"\n' + MINIMAL).model.api_key_env == "MY_API_KEY"
    said = refusal(folder, '[model]\napi_key_env = "abcdef-123456"\n' + MINIMAL)
    assert "name of an environment variable" in said
    assert "abcdef" not in said


def test_an_address_with_a_password_is_refused_and_not_repeated(folder: Path) -> None:
    said = refusal(folder, '[model]\nbase_url = "https://ann:hunter2@models.example/v1"\n' + MINIMAL)
    assert "user or a password" in said
    assert "hunter2" not in said


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('structured = "xml"', "'auto', 'tool', 'native', 'text'"),
        ('thinking = "hard"', "'auto', 'minimal', 'low'"),
        ("timeout = 0", "a number above 0"),
        ("window = 0", "a whole number"),
        ('stream = "yes"', "true or false"),
    ],
)
def test_settings_of_the_model_say_what_they_take(folder: Path, line: str, says: str) -> None:
    assert says in refusal(folder, f"[model]\n{line}\n" + MINIMAL)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[modle]\nname='x'\n", "did you mean 'model'?"),
        ("[budget]\nmax_step = 3\n", "did you mean 'budget.max_steps'?"),
        ("[model.price]\ninputs = 3\n", "did you mean 'model.price.input'?"),
        ("[budget]\nzzz = 3\n", "known: max_steps"),
        ("[budget]\nmax_steps = '3'\n", "budget.max_steps must be a whole number"),
        ("[budget]\nmax_steps = 0\n", "budget.max_steps must be a whole number"),
        ("[budget]\nmax_steps = true\n", "budget.max_steps must be a whole number"),
        ("[budget]\nmax_dollars = -1\n", "budget.max_dollars must be a number above 0"),
        ("[budget]\nmax_dollars = nan\n", "budget.max_dollars must be"),
        ("[budget]\nmax_seconds = inf\n", "budget.max_seconds must be"),
        ("budget = 3\n", "budget must be a table"),
        ("[model]\nname = ''\n", "model.name is empty"),
        ("[index]\nbackend = 'embeded'\n", "did you mean 'embedded'?"),
        ("[model]\nname = \n", "not valid TOML"),
        ("[model]\napi_key = 'abc'\n", "looks like a secret"),
        ("[model]\nname = 'sk-ant-api03-abcdefghijklmnop'\n", "looks like an API key"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(folder: Path, text: str, says: str) -> None:
    message = refusal(folder, text + MINIMAL)
    assert says in message
    assert "abcdefgh" not in message


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ('path = "docs"', "name is missing"),
        ('name = "a"', "path is missing"),
        ('name = "a/b"\npath = "docs"', "without slashes"),
        ('name = "a"\npath = "nowhere"', "does not exist"),
        ('name = "a"\npath = "file.md"', "is not a folder"),
        ('name = "a"\npath = "docs"\nkind = "file"', "did you mean 'files'?"),
        ('name = "a"\npath = "docs"\ntrust = "maybe"', "'reviewed' or 'open'"),
        ('name = "a"\npath = "docs"\nfilters = "supplier"', "must be a list of texts"),
        ('name = "a"\npath = "docs"\nfilters = ["x", "x"]', "lists the filter 'x' twice"),
        ('name = "a"\npath = "docs"\nfilter = ["x"]', "did you mean 'sources[1].filters'?"),
        ('name = "a"\npath = "docs"\n[sources.metadata]\nx = 3', "sources[1].metadata.x must be"),
        ('name = "a b"\npath = "docs"\n[[sources]]\nname = "a-b"\npath = "other"', "both become search_a_b"),
        ('name = "a"\npath = "docs"\n[[sources]]\nname = "a"\npath = "other"', "is there twice"),
        ('name = "a"\npath = "docs"\n[[sources]]\nname = "b"\npath = "./docs"', "have the same path"),
    ],
)
def test_a_wrong_source_is_named(folder: Path, source: str, says: str) -> None:
    (folder / "other").mkdir()
    (folder / "file.md").write_text("x")
    assert says in refusal(folder, f"[[sources]]\n{source}\n")


def test_a_file_without_sources_is_refused(folder: Path) -> None:
    assert "no sources" in refusal(folder, "")
    assert "two brackets" in refusal(folder, '[sources]\nname = "a"\n')


def test_the_environment_overrides_the_file(folder: Path) -> None:
    text = '[model]\nname = "a:b"\n[budget]\nmax_steps = 3\n' + MINIMAL
    env = {"CITEHOUND_MODEL": "c:d", "CITEHOUND_MAX_STEPS": "7", "CITEHOUND_MAX_DOLLARS": "none"}
    config = read(folder, text, **env, CITEHOUND_MAX_SECONDS="9.5", CITEHOUND_STREAM="false")
    assert config.model.name == "c:d"
    assert (config.budget.max_steps, config.budget.max_dollars, config.budget.max_seconds) == (7, None, 9.5)
    assert config.model.stream is False


def test_every_variable_is_accepted(folder: Path) -> None:
    values = {"CITEHOUND_MODEL": "a:b", "CITEHOUND_SMALL": "a:s", "CITEHOUND_BASE_URL": "http://localhost"}
    values |= {"CITEHOUND_LANGUAGE": "de", "CITEHOUND_BACKEND": "embedded", "CITEHOUND_API_KEY_ENV": "MY_API_KEY"}
    values |= {
        "CITEHOUND_STREAM": "0",
        "CITEHOUND_TOOLS": "false",
        "CITEHOUND_STRUCTURED": "text",
        "CITEHOUND_THINKING": "high",
        "CITEHOUND_PREFETCH": "true",
        "CITEHOUND_CLARIFY": "true",
        "CITEHOUND_QUARANTINE": "true",
        "CITEHOUND_SUPPORT": "model",
        "CITEHOUND_JUDGE": "rules",
        "CITEHOUND_TRACING": "http://localhost:4318",
    }
    read(folder, MINIMAL, **{name: values.get(name, "3") for name in ENVIRONMENT})


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("CITEHOUND_MAX_STEPS", "many", "CITEHOUND_MAX_STEPS must be a whole number"),
        ("CITEHOUND_MAX_DOLLARS", "-1", "CITEHOUND_MAX_DOLLARS must be"),
        ("CITEHOUND_MAX_DOLLAR", "1", "did you mean CITEHOUND_MAX_DOLLARS?"),
    ],
)
def test_a_wrong_variable_is_named(folder: Path, name: str, value: str, says: str) -> None:
    assert says in refusal(folder, MINIMAL, **{name: value})


def test_an_unrelated_variable_is_left_alone(folder: Path) -> None:
    assert read(folder, MINIMAL, CITEHOUND_ZZZ="1").sources


def test_a_variable_that_is_no_setting_is_told_with_the_nearest_one() -> None:
    env = {"CITEHOUND_DEBUG": "1", "CITEHOUND_MODEL": "offline", "CITEHOUND_MODELS_DIR": "x", "OTHER": "y"}
    (line,) = unknown_variables(env)
    assert line.startswith("the environment has CITEHOUND_MODELS_DIR, ") and line.endswith("CITEHOUND_MODEL")
    assert "ignored" in line


def test_the_file_is_found_from_a_folder_below(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "citehound.toml").write_text(MINIMAL)
    deep = folder / "docs" / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert find() == folder / "citehound.toml"
    assert load(env={}).root == folder.resolve()


def test_without_a_file_the_way_on_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="citehound init"):
        find(tmp_path)
    with pytest.raises(ConfigError, match=r"nope\.toml.*citehound init"):
        load(tmp_path / "nope.toml", env={})


def test_the_environment_may_name_the_file(folder: Path) -> None:
    (folder / "other.toml").write_text(MINIMAL)
    assert load(env={"CITEHOUND_CONFIG": str(folder / "other.toml")}).path == folder / "other.toml"


def test_bytes_that_are_no_utf8_are_refused(folder: Path) -> None:
    (folder / "citehound.toml").write_bytes(b"# \xff\n")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(folder / "citehound.toml", env={})


# init


def suggested(folder: Path) -> dict[str, dict[str, object]]:
    text = suggest(folder)
    (folder / "citehound.toml").write_text(text, "utf-8")
    load(folder / "citehound.toml", env={})
    return {s["name"]: s for s in tomllib.loads(text)["sources"]}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def test_a_source_is_suggested_for_each_folder_with_documents(tmp_path: Path) -> None:
    write(tmp_path / "policies" / "README.md", "# Policies\n\nWhat the *company* requires of [us](x). More.\n")
    write(tmp_path / "my notes" / "deep" / "a.txt", "text")
    write(tmp_path / "loose.md", "# Loose sheet\n")
    write(tmp_path / "images" / "a.png", "")
    write(tmp_path / ".git" / "a.md", "# no\n")
    sources = suggested(tmp_path)
    assert set(sources) == {tmp_path.name, "policies", "my-notes"}
    assert sources["policies"]["description"] == "What the company requires of us."
    assert sources[tmp_path.name]["include"] == ["/*"]
    assert "Loose sheet" in str(sources[tmp_path.name]["description"])


@pytest.mark.parametrize(
    "names", [("README.md",), ("ORIGIN.md", "LICENSE.txt", "readme.de.md", "CHANGELOG.md", "NOTICE.txt")]
)
def test_what_tells_about_a_folder_is_no_source_beside_its_documents(tmp_path: Path, names: tuple[str, ...]) -> None:
    write(tmp_path / "policies" / "a.md", "# A\n")
    for name in names:
        write(tmp_path / name, "# About\n")
    assert set(suggested(tmp_path)) == {"policies"}
    write(tmp_path / "notice-period.md", "# Notice period\n")
    write(tmp_path / "rates.md", "# Rates\n")
    assert set(suggested(tmp_path)) == {tmp_path.name, "policies"}


def test_a_folder_with_nothing_but_a_readme_is_a_source(tmp_path: Path) -> None:
    write(tmp_path / "README.md", "# Manual\n")
    assert set(suggested(tmp_path)) == {tmp_path.name}


def test_keys_that_repeat_are_suggested_as_filters(tmp_path: Path) -> None:
    for number, supplier in enumerate(["Alpha", "Alpha", "Beta", "Beta"]):
        front = f'---\ntitle: T{number}\nsupplier: "{supplier}"\nsame: x\n'
        front += f"unique: {supplier}{number}\nrank: {number % 2}\n---\n"
        write(tmp_path / "contracts" / f"{number}.md", front + "# T\n")
    assert suggested(tmp_path)["contracts"]["filters"] == ["supplier"]


def test_a_manifest_gives_filters_and_says_what_is_a_document(tmp_path: Path) -> None:
    rows = "path,kind,size\n" + "".join(f"wiki/{n}.md,{'ab'[n % 2]},{n}\n" for n in range(4))
    write(tmp_path / "manifest.csv", rows)
    for number in range(4):
        write(tmp_path / "wiki" / f"{number}.md", "# T\n")
    write(tmp_path / "README.md", "# About\n")
    sources = suggested(tmp_path)
    assert set(sources) == {"wiki"}
    assert sources["wiki"]["filters"] == ["kind"]


def test_hostile_names_and_titles_stay_valid_toml(tmp_path: Path) -> None:
    write(tmp_path / 'a"b\\c' / "x.md", '# "quoted" \\ \x07 title\n')
    write(tmp_path / "a b" / "x.md", "# x\n")
    write(tmp_path / "a-b" / "x.md", "# x\n")
    assert len(suggested(tmp_path)) == 3


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no documents"):
        suggest(tmp_path)


def test_every_variable_is_documented() -> None:
    page = (Path(__file__).resolve().parents[1] / "docs" / "configuration.md").read_text("utf-8")
    assert [name for name in (*ENVIRONMENT, *OTHER_ENVIRONMENT) if name not in page] == []


def test_a_suggestion_does_not_take_eval_cases_for_documents(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "a.md").write_text("# A\n\nA policy of ours that says something.\n", "utf-8")
    (tmp_path / "cases.jsonl").write_text('{"id": "c", "question": "Q?", "must_read": ["policies/a"]}\n', "utf-8")
    (tmp_path / "cases.evidence.jsonl").write_text('{"id": "c", "evidence_regex": {}}\n', "utf-8")
    (tmp_path / "more.csv").write_text("id,question,answer_points\n1,Q?,x\n", "utf-8")
    assert [s for s in suggest(tmp_path).splitlines() if s.startswith("name")] == ['name = "policies"']


@pytest.mark.parametrize(
    ("sentence", "said"),
    [
        ("What suppliers have agreed to is in these contracts.", True),
        ("The rules that every department keeps to.", True),
        ("Handbook is a collection of rules for new people.", True),
        ("At the bottom of each page of the [hosted handbook][home] there is a source link.", False),
        ("Everything here is invented: the bank, its suppliers and the wiki.", False),
        ("This repository is built with a tool, see below.", False),
    ],
)
def test_a_description_is_a_sentence_on_the_contents_or_lists_titles(tmp_path: Path, sentence: str, said: bool) -> None:
    write(tmp_path / "handbook" / "README.md", f"# Handbook\n\n{sentence}\n")
    write(tmp_path / "handbook" / "travel.md", "# Travel\n\nTrains are booked early.\n")
    description = str(suggested(tmp_path)["handbook"]["description"])
    assert description == (sentence if said else "Handbook: 2 documents, among them Handbook; Travel")


def test_a_key_that_few_documents_have_is_no_filter(tmp_path: Path) -> None:
    for n in range(40):
        rare = f"mood: {'good' if n % 2 else 'bad'}\n" if n < 3 else ""
        write(tmp_path / "notes" / f"{n}.md", f"---\nteam: {'a' if n % 3 else 'b'}\n{rare}---\n# Note {n}\n\nText.\n")
    assert suggested(tmp_path)["notes"]["filters"] == ["team"]
