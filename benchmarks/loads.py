"""Replies for the protocol server of the tests that look like an investigation with random sizes; imports no product.

The server calls `investigate` with every request's body. The question carries the numbers of its load, as in
"… (load 7 of seed 1)", so that nothing depends on the order in which requests arrive.
"""

from __future__ import annotations

import json
import os
import random
import re
from typing import Any

Reply = dict[str, Any]


def label(number: int, *, seed: int) -> str:
    """What a question ends with, so that the server knows its load."""
    return f"(load {number} of seed {seed})"


def numbers_of(text: str) -> tuple[int, int]:
    """Load and seed of a question; zero where it has none."""
    found = re.search(r"\(load (\d+) of seed (\d+)\)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def investigate(body: dict[str, Any], about: dict[str, Any]) -> Reply:
    """One to three searches or reads a turn, over two to eleven turns, then an answer that quotes what was read.

    Tokens: the input is what a tokenizer with 3.3 to 5 characters per token would count, of which a random part is
    cached; the output is long-tailed up to the request's own limit. Latency: exponential, 30 ms on average.
    """
    number, seed = numbers_of(json.dumps(body["messages"][0]))
    own = random.Random(f"{seed}:{number}")
    density, turns = own.uniform(0.20, 0.30), own.randint(2, 11)
    chance = random.Random(f"{seed}:{number}:{about['attempt']}")
    messages: list[dict[str, Any]] = body["messages"]
    done = sum(1 for message in messages if message["role"] == "assistant")
    size = sum(len(json.dumps(body.get(part) or "", ensure_ascii=False)) for part in ("tools", "system", "messages"))
    limit = int(body.get("max_tokens") or body.get("max_completion_tokens") or 1000)
    counted = int(size * density)
    cached = int(counted * chance.uniform(0.0, 0.95)) if done else 0
    usage = {
        "input_tokens": counted,
        "cached_tokens": cached,
        "cache_write_tokens": int((counted - cached) * chance.random()),
        "output_tokens": max(1, min(limit, int(chance.lognormvariate(5.2, 1.1)))),
    }
    common = {"usage": usage, "latency": round(chance.expovariate(1 / 0.03), 4)}
    if done >= turns or not may_call(body):
        usage["output_tokens"] = max(1, min(limit, int(chance.lognormvariate(6.6, 0.8))))
        return {"kind": "draft", "draft": answer(messages), **common}
    return {"kind": "tools", "calls": wanted_calls(body, chance), **common}


def may_call(body: dict[str, Any]) -> bool:
    """False when the request wants the answer and nothing else."""
    choice: Any = body.get("tool_choice") or {}
    kind = choice if isinstance(choice, str) else choice.get("type", "auto")
    return kind in ("auto", "any", "required") and any(name.startswith("search_") for name in tool_names(body))


def tool_names(body: dict[str, Any]) -> list[str]:
    tools: list[dict[str, Any]] = body.get("tools") or []
    return [str(tool["name"] if "name" in tool else tool["function"]["name"]) for tool in tools]


def wanted_calls(body: dict[str, Any], chance: random.Random) -> list[dict[str, Any]]:
    """One to three searches with words that were seen, or reads of sections that were found; none made before."""
    text = json.dumps(body["messages"], ensure_ascii=False).replace('\\"', '"')
    places = set(re.findall(r'"document": ?"([^"\\]+)", ?"section": ?"([^"\\]+)"', text))
    read = set(re.findall(r'\{"document": ?"([^"\\]+)", ?"section": ?"([^"\\]+)"\}', text))
    fresh = sorted(places - read)
    words = sorted({word for word in re.findall(r"[A-Za-z]{5,12}", text) if word.islower()}) or ["policy"]
    searches = [name for name in tool_names(body) if name.startswith("search_")]
    calls: list[dict[str, Any]] = []
    for _ in range(chance.randint(1, 3)):
        if fresh and chance.random() < 0.6:
            document, section = fresh.pop(chance.randrange(len(fresh)))
            calls.append({"name": "read_document", "args": {"document": document, "section": section}})
        else:
            query = " ".join(chance.sample(words, min(3, len(words))))
            calls.append({"name": chance.choice(searches), "args": {"query": query}})
    return calls


def answer(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """A draft that quotes the first sentence of the passages that were read."""
    text = json.dumps(messages, ensure_ascii=False).replace("\\\\n", " ").replace('\\"', '"')
    claims: list[dict[str, Any]] = []
    for document, passage in re.findall(
        r'"document": ?"([^"\\]+)", ?"section": ?[^,]*, ?"title".{0,200}?"text": ?"([^"]{60,})', text
    ):
        sentence = re.search(r"[A-Z][^.#|*]{40,200}\.", passage)
        if sentence:
            claims.append({"text": sentence[0], "citations": [{"document": document, "quote": sentence[0]}]})
    return {"claims": claims[:4], "missing": []}


STEPS = 10
"""Requests of one run of `steady`: nine turns of calls and an answer."""


def steady(body: dict[str, Any]) -> Reply:
    """The same nine turns for whoever asks: a search and a read in each, none of them twice; then an answer."""
    return _steady(body, STEPS)


def _steady(body: dict[str, Any], steps: int) -> Reply:
    done = sum(1 for message in body["messages"] if message["role"] == "assistant")
    usage = {"input_tokens": 2000 + 400 * done, "output_tokens": 60}
    if done >= steps - 1:
        quote = "Contracts with a tier 1 supplier are approved by the Board."
        claim = {"text": quote, "citations": [{"document": "policies/outsourcing-policy-v4", "quote": quote}]}
        return {"kind": "draft", "draft": {"claims": [claim], "missing": []}, "usage": usage}
    query = ("incident report", "encryption at rest", "audit", "sub-contractors", "data location", "termination")
    calls = [
        {"name": "search_policies", "args": {"query": f"{query[done % 6]} {query[(done + 1 + done // 6) % 6]}"}},
        {"name": "read_document", "args": {"document": "policies/outsourcing-policy-v4", "start": 40 * done}},
    ]
    return {"kind": "tools", "calls": calls, "usage": usage}


def slow(body: dict[str, Any]) -> Reply:
    """`steady`, of as many steps and as long after the request as the environment says."""
    steps = int(os.environ.get("LOAD_STEPS", str(STEPS)))
    return {**_steady(body, steps), "latency": float(os.environ.get("LOAD_LATENCY", "0.2"))}
