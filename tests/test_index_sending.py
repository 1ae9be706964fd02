"""Texts of private sources go to a provider of embeddings or a reranker only where the configuration says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from citehound.cli import cli
from citehound.config import load
from citehound.corpus import Corpus
from citehound.errors import ConfigError
from citehound.index.sending import check_sending, sends_away

SOURCE = """
[[sources]]
name = "docs"
path = "docs"
"""


def configured(folder: Path, text: str, *, source: str = SOURCE) -> Path:
    (folder / "docs").mkdir(exist_ok=True)
    (folder / "docs" / "a.md").write_text("# A\n\nRefunds are paid within ten days.\n", "utf-8")
    (folder / "citehound.toml").write_text(text + source, "utf-8")
    return folder / "citehound.toml"


@pytest.mark.parametrize("table", ["index.embedding", "index.rerank"])
def test_a_provider_beside_private_sources_is_refused_until_it_is_allowed(tmp_path: Path, table: str) -> None:
    naming = f'[{table}]\nname = "cohere:some-model"\n'
    config = load(configured(tmp_path, naming))
    with pytest.raises(ConfigError, match=rf"texts of private sources \('docs'\).*send_private = true in \[{table}\]"):
        Corpus.open(config, write=True)
    allowed = load(configured(tmp_path, naming + "send_private = true\n"))
    with Corpus.open(allowed, write=True) as corpus:
        (warning,) = corpus.warnings
    assert "'cohere:some-model'" in warning and "'docs'" in warning


def test_public_sources_may_be_sent_without_a_word(tmp_path: Path) -> None:
    config = load(configured(tmp_path, '[index.rerank]\nname = "jina:m"\n', source=SOURCE + "private = false\n"))
    assert check_sending(config) == ()


@pytest.mark.parametrize(
    ("name", "base_url", "away"),
    [
        ("static", None, False),
        ("none", None, False),
        ("openai:m", None, True),
        ("openai:m", "http://127.0.0.1:9/v1", False),
        ("openai:m", "http://localhost:9/v1", False),
        ("openai:m", "http://localhost.example.org/v1", True),
        ("openai:m", "http://[::1", True),
        ("compatible:m", "https://rerank.example.org", True),
        ("ollama:m", None, False),
        ("ollama:m", "http://10.0.0.5:11434/v1", True),
        ("sentence-transformers:m", None, False),
        ("fastembed:m", None, False),
        ("my.module:function", None, False),
    ],
)
def test_what_leaves_the_machine(name: str, base_url: str | None, away: bool) -> None:
    assert sends_away(name, base_url) is away


def test_ollama_elsewhere_by_its_variable_is_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_BASE_URL", "http://gpu.example.org:11434/v1")
    assert sends_away("ollama:m", None)


def test_indexing_says_that_texts_are_sent(tmp_path: Path) -> None:
    path = configured(tmp_path, '[index.rerank]\nname = "jina:m"\nsend_private = true\n')
    result = CliRunner().invoke(cli, ["index", "--config", str(path)])
    assert result.exit_code == 0
    assert "is sent to 'jina:m'" in result.stderr
    refused = CliRunner().invoke(
        cli, ["index", "--config", str(configured(tmp_path, '[index.rerank]\nname = "jina:m"\n'))]
    )
    assert refused.exit_code == 2
    assert "send_private" in refused.stderr
