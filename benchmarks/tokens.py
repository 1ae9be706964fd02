"""Input tokens of a six-turn investigation, at the wire: the product's loop beside a naive one with the same calls.

    python benchmarks/tokens.py [--data DIR] [--cases FILE] [--corpus NAME] [--limit N] [--model M] [--each] [--json]

Each case becomes a script of six replies, as a model that keeps to the instructions makes them: searches of two
sources, a read of the section found in the first must_read document, a search with words of what was read, reads in the
other documents, a search and a read that come again, and an answer. A local server plays it to both loops. The naive
loop has the same instructions and tools, but each of its six hits is a whole piece of text, it reads whole documents,
caps and shortens nothing, and repeats what is asked again. A piece has 4,000 characters, the default of a common text
splitter; `same chunks` is the share when it has our own, shorter chunks instead. Tokens are counted in the request
bodies as received (tools, system and messages). Aims: at most 40 % of the naive loop's tokens, and at least 85 % of the
tokens after a question's first request in the prefix that it shares with the request before. Cases of kind `compound`
that name their documents are used. DIR as in `paths.py`; without it the bundled bank and, where it is there, the
`contracts` of the shared corpora.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import itertools
import json
import math
import os
import re
import sys
import tempfile
import urllib.request
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import paths
from citehound import demos
from citehound.access import OWNER
from citehound.assistant import Assistant
from citehound.budget import Price
from citehound.config import Config, ModelConfig, load
from citehound.corpus import Corpus
from citehound.errors import CitehoundError
from citehound.models import OpenedModel, open_model
from citehound.toolbox import MAX_HITS, PER_DOCUMENT, search_source, tool_name
from model_server import Received, Reply, Server, common_prefix, prompt_text, serve

MAX_SHARE = 0.40
MIN_PREFIX = 0.85
TURNS = 6
PIECE = 4000
HITS = 6
_STOP = re.compile("which|what|when|where|does|from|that|this|with|their|there|have|must|under|about|will|whom|they")

Count = Callable[[str], int]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One case (or, for a corpus, the mean of its cases) in both loops. Tokens are input tokens of all requests."""

    name: str
    cases: int
    requests: float
    tokens: float
    naive_tokens: float
    share: float
    """Our tokens as a part of the naive loop's."""
    same_chunks: float
    """The share, were the naive loop to have our chunks."""
    results: float
    """The share without instructions, tools and question, which both loops send with every request."""
    quarter: float
    """The share with a token for four characters."""
    prefix: float
    """Part of our input after the first request that the request before began with, too."""
    dollars: float
    naive_dollars: float
    naive_cached_dollars: float
    """Of a naive loop that marks its prompt for caching."""


def counter() -> tuple[str, Count]:
    """A tokenizer's name and its count. Without `bpe-openai`, a token for four characters."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            bpe_openai = cast(Any, importlib.import_module("bpe_openai"))
    except ImportError:
        return "characters / 4 (install bpe-openai for o200k_base)", lambda text: math.ceil(len(text) / 4)
    encoding = bpe_openai.get_encoding("o200k_base")
    return "o200k_base", lambda text: len(encoding.encode(text))


# The script of a case.


def words_of(text: str, *, most: int = 6) -> str:
    words = [w for w in re.findall(r"[^\W\d]{4,}", text) if not _STOP.fullmatch(w.casefold())]
    return " ".join(dict.fromkeys(words[:most]))


def source_of(document: str) -> str:
    return document.split("/", 1)[0]


def sections_for(corpus: Corpus, document: str, query: str) -> list[str | None]:
    """Numbered sections by their first number, others as they are, best first; None (its start) when none is found."""
    found: list[str | None] = []
    for words in (query, words_of(corpus.document(document, principal=OWNER).title)):
        if words:
            result = search_source(
                corpus, source_of(document), words, principal=OWNER, only_current=False, k=12, per_document=4
            )
            sections = [hit.section for hit in result.hits if hit.document == document and hit.section]
            found += [re.sub(r"^(\d+)\..*", r"\1", section) for section in sections]
    known = [section for section in dict.fromkeys(found) if _reads(corpus, document, section)]
    return known or [None]


def _reads(corpus: Corpus, document: str, section: str | None) -> bool:
    try:
        corpus.read(document, principal=OWNER, section=section, limit=10)
    except CitehoundError:
        return False
    return True


def script_of(corpus: Corpus, question: str, documents: Sequence[str]) -> list[Reply]:
    """Five turns of calls and an answer that quotes what was read."""

    def search(source: str, query: str) -> Reply:
        return {"name": tool_name(source), "args": {"query": query[:200]}}

    def read(document: str, section: str | None) -> Reply:
        args = {"document": document} if section is None else {"document": document, "section": section}
        return {"name": "read_document", "args": args}

    first, last = documents[0], documents[-1]
    asked = words_of(question)
    places = {document: sections_for(corpus, document, asked) for document in documents}
    after = words_of(corpus.read(first, principal=OWNER, section=places[first][0], limit=1500).text[40:], most=4)
    sources = [*dict.fromkeys(map(source_of, documents)), *(s.name for s in corpus.sources)]
    turns: list[list[Reply]] = [
        [search(source, asked) for source in list(dict.fromkeys(sources))[:2]],
        [read(first, places[first][0])],
        [search(source_of(last), f"{words_of(question, most=3)} {after}")],
        [read(d, places[d][0]) for d in documents[1:4]] or [read(first, places[first][-1])],
        [search(source_of(first), asked), read(first, places[first][0])],
    ]
    claims: list[Reply] = []
    for document in documents[:4]:
        text = corpus.read(document, principal=OWNER, section=places[document][0], limit=4000).text
        sentence = re.search(r"[A-Z][^.\n|]{30,220}\.(?=\s)", text)
        if sentence:
            claims.append({"text": sentence[0], "citations": [{"document": document, "quote": sentence[0]}]})
    answer: Reply = {"kind": "draft", "draft": {"claims": claims, "missing": []}, "repeat": 3}
    return [*({"kind": "tools", "calls": calls} for calls in turns), answer]


# The naive loop.


def naive_result(corpus: Corpus, name: str, arguments: dict[str, Any], *, piece: int | None) -> str:
    """What a tool without bounds gives: hits with their whole text, whole documents.

    A hit is the piece of `piece` characters that our hit begins in; None: the whole of our own chunk.
    """
    if name == "read_document":
        document = corpus.document(str(arguments["document"]), principal=OWNER)
        return json.dumps({"document": document.id, "text": document.text}, ensure_ascii=False)
    source = next(s.name for s in corpus.sources if tool_name(s.name) == name)
    query = str(arguments["query"])
    many = (MAX_HITS, 1) if piece else (HITS, PER_DOCUMENT)
    result = search_source(corpus, source, query, principal=OWNER, k=many[0], per_document=many[1])
    hits: dict[tuple[str, int], dict[str, Any]] = {}
    for hit in result.hits:
        if len(hits) == HITS:
            break
        start, end = (hit.start, hit.end) if piece is None else (hit.start // piece * piece, 0)
        hits[hit.document, start] = {
            "document": hit.document,
            "section": hit.section,
            "title": hit.title,
            "text": corpus.document(hit.document, principal=OWNER).text[start : end or start + PIECE],
            "score": hit.score,
            "metadata": dict(hit.metadata),
        }
    return json.dumps({"hits": list(hits.values())}, ensure_ascii=False, default=str)


def naive_loop(server: Server, corpus: Corpus, first: dict[str, Any], *, session: str, piece: int | None) -> None:
    """Goes on from our loop's own first request, with results of its own, until the answer comes."""
    body = {key: value for key, value in first.items() if key != "stream"}
    body = cast(dict[str, Any], _unmarked(body))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(2 * TURNS):
        headers = {"content-type": "application/json", "x-session": session}
        request = urllib.request.Request(
            f"{server.base_url}/v1/messages", data=json.dumps(body).encode(), headers=headers
        )
        with opener.open(request, timeout=60) as answer:
            reply = json.load(answer)
        calls = [part for part in reply["content"] if part["type"] == "tool_use"]
        if not calls or calls[0]["name"] == "final_answer":
            return
        results = [
            {
                "type": "tool_result",
                "tool_use_id": call["id"],
                "content": naive_result(corpus, call["name"], call["input"], piece=piece),
            }
            for call in calls
        ]
        history = [
            *body["messages"],
            {"role": "assistant", "content": reply["content"]},
            {"role": "user", "content": results},
        ]
        body = {**body, "messages": history}


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        items = cast(dict[str, Any], value).items()
        return {key: _unmarked(item) for key, item in items if key != "cache_control"}
    return [_unmarked(item) for item in cast(list[Any], value)] if isinstance(value, list) else value


# Measuring.


def dollars(requests: Sequence[Received], price: Price) -> float:
    total = 0.0
    for request in requests:
        usage = request.usage or {}
        total += price.of(
            input_tokens=usage.get("input_tokens", 0),
            output_tokens=usage.get("output_tokens", 0),
            cached_tokens=usage.get("cached_tokens", 0),
            cache_write_tokens=usage.get("cache_write_tokens", 0),
        )
    return total


def cached_dollars(requests: Sequence[Received], price: Price) -> float:
    """As if every request had marked its whole prompt for caching."""
    total, before = 0.0, ""
    for request in requests:
        prompt, usage = prompt_text(request.body), request.usage or {}
        size, cached = usage.get("input_tokens", 0), common_prefix(before, prompt) // 4
        total += price.of(
            input_tokens=size,
            output_tokens=usage.get("output_tokens", 0),
            cached_tokens=cached,
            cache_write_tokens=size - cached,
        )
        before = prompt
    return total


def shared_prefix(prompts: Sequence[str], count: Count) -> tuple[int, int]:
    """Tokens of all prompts but the first, and how many of them the prompt before begins with, too."""
    total = shared = 0
    for before, prompt in itertools.pairwise(prompts):
        total += count(prompt)
        shared += count(prompt[: common_prefix(before, prompt)])
    return total, shared


def measure(
    name: str,
    ours: Sequence[Received],
    naive: Sequence[Received],
    same_chunks: Sequence[Received],
    *,
    count: Count,
    price: Price,
) -> Row:
    mine, theirs = [prompt_text(r.body) for r in ours], [prompt_text(r.body) for r in naive]
    tokens, naive_tokens = sum(map(count, mine)), sum(map(count, theirs))
    later, shared = shared_prefix(mine, count)
    fixed = count(mine[0])
    return Row(
        name=name,
        cases=1,
        requests=len(ours),
        tokens=tokens,
        naive_tokens=naive_tokens,
        share=tokens / naive_tokens,
        same_chunks=tokens / sum(count(prompt_text(r.body)) for r in same_chunks),
        results=(tokens - fixed * len(mine)) / (naive_tokens - fixed * len(theirs)),
        quarter=sum(map(len, mine)) / sum(map(len, theirs)),
        prefix=shared / later if later else 1.0,
        dollars=dollars(ours, price),
        naive_dollars=dollars(naive, price),
        naive_cached_dollars=cached_dollars(naive, price),
    )


def mean_of(name: str, rows: Sequence[Row]) -> Row:
    def mean(key: str) -> float:
        return sum(getattr(row, key) for row in rows) / len(rows)

    return Row(
        name=name,
        cases=len(rows),
        requests=mean("requests"),
        tokens=mean("tokens"),
        naive_tokens=mean("naive_tokens"),
        share=mean("tokens") / mean("naive_tokens"),
        same_chunks=mean("same_chunks"),
        results=mean("results"),
        quarter=mean("quarter"),
        prefix=mean("prefix"),
        dollars=mean("dollars"),
        naive_dollars=mean("naive_dollars"),
        naive_cached_dollars=mean("naive_cached_dollars"),
    )


def run(corpus: Corpus, config: Config, cases: Sequence[paths.Case], *, model: str, count: Count) -> list[Row]:
    scripts: dict[str, list[Reply]] = {}
    for case in cases:
        documents = [d for d in (paths.resolve(corpus, name) for name in case.must_read) if d is not None]
        if documents and len(documents) == len(case.must_read):
            script = script_of(corpus, case.question, documents)
            for key in (case.question, f"naive {case.id}", f"same chunks {case.id}"):
                scripts[key] = script
    rows: list[Row] = []
    with serve(scripts=scripts) as server:
        settings = ModelConfig(name=model, base_url=server.base_url)
        opened = open_model(settings)
        assistant = Assistant(replace(config, model=settings), corpus, opened, record=False)
        for case in cases:
            if case.question in scripts:
                rows.append(_both(server, assistant, corpus, case, opened, count))
    return rows


def _both(
    server: Server, assistant: Assistant, corpus: Corpus, case: paths.Case, opened: OpenedModel, count: Count
) -> Row:
    async def ours() -> None:
        answer = await assistant.ask(case.question, mode="agent", max_dollars=math.inf, max_seconds=math.inf)
        if answer.stop_reason != "answered":
            print(f"{case.id}: {answer.stop_reason}: {'; '.join(answer.warnings)}", file=sys.stderr)

    asyncio.run(ours())
    mine = [r for r in server.requests() if r.session == case.question]
    kinds: dict[str, int | None] = {"naive": PIECE, "same chunks": None}
    for kind, piece in kinds.items():
        naive_loop(server, corpus, mine[0].body, session=f"{kind} {case.id}", piece=piece)
    naive, same = ([r for r in server.requests() if r.session == f"{kind} {case.id}"] for kind in kinds)
    return measure(case.id, mine, naive, same, count=count, price=opened.price or Price(input=5.0, output=25.0))


def table(rows: Sequence[Row], tokenizer: str) -> str:
    lines = [
        f"Input tokens: {tokenizer}.",
        "",
        "| | cases | requests | tokens | naive | share | without the fixed part | by characters | same chunks "
        "| in prefix | $ | naive $ | naive, cached $ |",
        "| --- |" + " ---: |" * 12,
    ]
    for r in rows:
        parts = (r.share, r.results, r.quarter, r.same_chunks, r.prefix)
        cells = [r.name, str(r.cases), f"{r.requests:.1f}", f"{r.tokens:,.0f}", f"{r.naive_tokens:,.0f}"]
        cells += [f"{100 * part:.0f} %" for part in parts]
        cells += [f"{each:.4f}" for each in (r.dollars, r.naive_dollars, r.naive_cached_dollars)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def corpora_of(data: Path | None, names: Sequence[str]) -> list[tuple[str, Path]]:
    """Name and folder of each corpus."""
    if data is None:
        shared = paths.HERE.parent.parent / "shared" / "data" / "corpora" / "contracts"
        found = [("bank", Path(demos.__file__).parent / "bank"), *([("contracts", shared)] if shared.is_dir() else [])]
    elif (data / "cases.jsonl").is_file() or (data / "citehound.toml").is_file():
        found = [(data.name, data)]
    else:
        found = [(p.name, p) for p in sorted(data.iterdir()) if p.is_dir() and (p / "cases.jsonl").is_file()]
    return [pair for pair in found if not names or pair[0] in names]


def opened_corpus(folder: Path, state: Path) -> tuple[Config, Corpus]:
    state.mkdir(parents=True, exist_ok=True)
    if (folder / "citehound.toml").is_file():
        config = replace(load(folder / "citehound.toml", env={}), root=state)
    else:
        config = paths.corpus_config(folder, state)
    corpus = Corpus.open(config, write=True)
    corpus.sync()
    return config, corpus


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Input tokens at the wire, beside a naive loop.")
    parser.add_argument("--data", type=Path, help="a corpus, or a folder of corpora")
    parser.add_argument("--cases", type=Path, help="other cases than the corpora's own")
    parser.add_argument("--corpus", action="append", default=[])
    parser.add_argument("--limit", type=int, default=12, help="cases per corpus; 0 for all")
    parser.add_argument("--model", default="anthropic:claude-opus-5-5", help="whose price is used")
    parser.add_argument("--cache", type=Path, help="keep the indexes here and use them again")
    parser.add_argument("--each", action="store_true", help="a line for every case, too")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    os.environ.setdefault("ANTHROPIC_API_KEY", "none")
    tokenizer, count = counter()
    rows: list[Row] = []
    means: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, folder in corpora_of(args.data, args.corpus):
            cases = paths.load_cases(args.cases or folder / "cases.jsonl")
            config, corpus = opened_corpus(folder, (args.cache or Path(scratch)) / name)
            try:
                cases = [case for case in cases if case.must_read and case.kind == "compound"]
                got = run(corpus, config, cases[: args.limit or None], model=args.model, count=count)
            except CitehoundError as problem:
                print(problem, file=sys.stderr)
                return 1
            finally:
                corpus.close()
            rows += [replace(row, name=f"{name} {row.name}") for row in got] if args.each or args.json else []
            means += [mean_of(name, got)] if got else []
    if args.json:
        data = {"tokenizer": tokenizer, "corpora": [asdict(r) for r in means], "cases": [asdict(r) for r in rows]}
        print(json.dumps(data, indent=2))
    else:
        print(table([*rows, *means], tokenizer))
    return 0 if means and all(r.share <= MAX_SHARE and r.prefix >= MIN_PREFIX for r in means) else 1


if __name__ == "__main__":
    sys.exit(main())
