"""The OpenAPI of the server is complete and true: generated requests get what it says, and never an error of ours."""

from __future__ import annotations

import warnings
from collections.abc import Generator
from typing import Any, cast

import httpx2
import pytest

from citehound import config
from citehound.answers import Answer, Citation, Claim
from citehound.server.app import bind, create_app
from served import live
from small import TOML, write_corpus

with warnings.catch_warnings():  # of what it is built on
    warnings.simplefilter("ignore")
    import schemathesis
    import schemathesis.checks as known_checks
    from hypothesis import HealthCheck, Phase, given, settings

NAMES = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "allow_header_conformance",
)
CHECKS: list[Any] = [getattr(cast(Any, known_checks), name) for name in NAMES]
SETTINGS = "[budget]\nmax_steps = 3\n[server]\nrequests_per_minute = 1000000\nquestions_per_minute = 1000000\n"
HEALTH = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    loaded = config.load(write_corpus(tmp_path_factory.mktemp("schema"), toml=TOML + SETTINGS), env={})
    listening = bind("127.0.0.1", 0)
    with live(create_app(loaded, port=listening.getsockname()[1]), listening) as at:
        yield at


def try_all(url: str, *, most: int) -> list[str]:
    """Sends generated requests to every operation; gives what went wrong, an operation each."""
    failed: list[str] = []
    described: Any = cast(Any, schemathesis).openapi.from_url(f"{url}/openapi.json")
    for found in described.get_all_operations():
        operation = found.ok()

        @settings(
            max_examples=most,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=HEALTH,
        )
        @given(case=operation.as_strategy())
        def run(case: Any) -> None:
            case.call_and_validate(checks=CHECKS, timeout=30)

        try:
            run()
        except (Exception, BaseExceptionGroup) as error:
            failed.append(f"{operation.label}: {error}")
    return failed


def test_generated_requests_get_what_the_schema_says(url: str) -> None:
    assert try_all(url, most=4) == []


@pytest.mark.slow
def test_many_generated_requests_get_what_the_schema_says(url: str) -> None:
    assert try_all(url, most=150) == []


def test_every_route_is_described_with_its_errors(url: str) -> None:
    paths = httpx2.get(f"{url}/openapi.json").json()["paths"]
    for path, methods in paths.items():
        for method, operation in methods.items():
            assert operation.get("summary"), (method, path)
            if path.startswith("/v1/"):
                assert {"401", "404", "422", "429", "503"} <= operation["responses"].keys(), (method, path)
                good = [r for status, r in operation["responses"].items() if status.startswith("2")]
                assert good
                assert all(r.get("content") or "204" in operation["responses"] for r in good), (method, path)


def test_answers_are_described_by_the_types_of_python(url: str) -> None:
    schemas = httpx2.get(f"{url}/openapi.json").json()["components"]["schemas"]
    for kind in (Answer, Claim, Citation):
        assert set(schemas[kind.__name__]["properties"]) == set(kind.__dataclass_fields__)
