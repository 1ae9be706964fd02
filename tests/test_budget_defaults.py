"""What the default budget allows at the list prices of the large models: an investigation of five long turns."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from pydantic_ai.usage import RequestUsage

from citehound.budget import Budget
from citehound.context import request_tokens
from citehound.corpus import Corpus
from citehound.models.prices import look_up
from citehound.models.scripted import ScriptedModel, ScriptedRequest, Turn, call
from small import FILES, opened, quoting, run_agent

SENTENCE = (
    "The supplier keeps records of incident number {n} and reports them to the bank within 24 hours of discovery. "
)
LONG = "# Long policy\n\n" + "\n\n".join(
    f"## {i} Part {i}\n\n" + "".join(SENTENCE.format(n=100 * i + k) for k in range(130)) for i in range(1, 9)
)

ANSWER = quoting("rules/long", "reports them to the bank within 24 hours of discovery", "Reports come within 24 hours.")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    with opened(tmp_path_factory.mktemp("long"), {**FILES, "rules/long.md": LONG}) as corpus:
        yield corpus


@pytest.mark.parametrize(
    ("model", "output_tokens", "share"),
    [
        ("claude-opus-5-5", 200, 1.0),
        ("claude-opus-5-5", 1500, 0.66),
        ("claude-opus-5", 200, 0.66),
        ("claude-sonnet-5", 1500, 1.0),
    ],
)
def test_five_turns_of_3000_tokens_fit_into_the_defaults(
    corpus: Corpus, model: str, output_tokens: int, share: float
) -> None:
    """Nothing comes from the cache. `share`: of the upper estimate of tokens, what the provider really counts."""
    known = look_up("anthropic", model)
    assert known is not None
    sizes: list[int] = []

    def usage(request: ScriptedRequest) -> RequestUsage:
        sizes.append(request_tokens(request.messages, request.parameters))
        return RequestUsage(input_tokens=int(share * sizes[-1]), output_tokens=output_tokens)

    def turn(section: int) -> Turn:
        read = call("read_document", {"document": "rules/long", "section": str(section)})
        return lambda request: ANSWER if request.tools_withheld else read

    ran = run_agent(
        corpus,
        ScriptedModel([*map(turn, range(1, 9)), ANSWER], usage=usage),
        budget=Budget(),
        price=known.price,
        clock=lambda: 0.0,
    )
    reads = ran.ledger.evidence().calls
    assert len(reads) >= 5
    assert all(read.error is None for read in reads)
    results = [after - before for before, after in itertools.pairwise(sizes)]
    assert min(results) >= 3000, "each turn brought 3,000 tokens"
    assert ran.outcome.claims, "and the last answer was paid for"
    spent = ran.meter.spent()
    assert spent.dollars + spent.reserved <= 0.50
