"""`citehound.toml` as frozen values, read from file and environment; opens no index and builds no model.

Settings come from three places, the later one wins: defaults, the file, the environment (`ENVIRONMENT` below).
API keys come only from the environment: one in the file is refused.
"""

from __future__ import annotations

import contextlib
import csv
import difflib
import ipaddress
import math
import os
import re
import threading
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

from .access import EVERYONE, Access, Audience, Rule, audience, first_part, glob_pattern
from .errors import ConfigError

FILE_NAME = "citehound.toml"
BACKENDS = ("embedded",)
STRUCTURED = ("auto", "tool", "native", "text")
LIVE_KINDS = ("python", "web")
ENGINES = ("search", "provider")
PROVIDER_FEE = 0.01
"""Dollars that one search of a provider costs, where nothing else is said: list price of Anthropic's."""
THINKING = ("auto", "minimal", "low", "medium", "high")


@dataclass(frozen=True, kw_only=True)
class PriceConfig:
    """Dollars per million tokens."""

    input: float
    output: float
    cached: float | None = None
    """Tokens read from the provider's cache; None means `input`."""
    cache_write: float | None = None
    """Tokens written to it; None means `input`."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    name: str = "offline"
    small: str | None = None
    """The judge; None means `name`."""
    base_url: str | None = None
    api_key_env: str | None = None
    """Name of the environment variable that holds the key; None means the provider's usual one."""
    turn_tokens: int = 1500
    draft_tokens: int = 4000
    window: int | None = None
    """Context window in tokens; None means: look it up."""
    timeout: float = 120.0
    """Seconds to wait for the next bytes of a reply."""
    stream: bool = True
    tools: bool | None = None
    """False: never ask it to call tools; None: what is known of the model."""
    structured: str = "auto"
    """How the answer is asked for: one of `STRUCTURED`."""
    thinking: str = "low"
    """One of `THINKING`; for models that think without being asked to."""
    price: PriceConfig | None = None
    """None means: look it up."""
    small_price: PriceConfig | None = None


@dataclass(frozen=True, kw_only=True)
class BudgetConfig:
    max_steps: int = 12
    max_dollars: float | None = 0.50
    max_seconds: float | None = 120.0
    max_hops: int = 2
    """Retrievals of one question in the `hops` mode."""


@dataclass(frozen=True, kw_only=True)
class AgentConfig:
    prefetch: bool = False
    """Puts the six best passages of one fixed retrieval into the agent's prompt."""


@dataclass(frozen=True, kw_only=True)
class RoutingConfig:
    judge: str = "model"
    """'model' or 'rules': who decides on skip, route and sufficiency. Without a model it is always rules."""


@dataclass(frozen=True, kw_only=True)
class VerifyConfig:
    support: str = "off"
    """'off' or 'model': whether a model judges each claim beside its quotes."""


@dataclass(frozen=True, kw_only=True)
class SecurityConfig:
    quarantine: bool = False
    """Whether texts are read by a model without tools, and tools are used by one that sees no text."""


@dataclass(frozen=True, kw_only=True)
class ChatConfig:
    history_tokens: int = 6000
    """Most tokens of a prompt that earlier turns may take: what was said, and what was read."""
    clarify: bool = False
    """Whether one question may be asked back, where what is asked cannot be searched."""


@dataclass(frozen=True, kw_only=True)
class SourceConfig:
    name: str
    path: Path
    """Absolute."""
    description: str = ""
    kind: str = "files"
    filters: tuple[str, ...] = ()
    private: bool = True
    trust: str = "reviewed"
    """'reviewed' or 'open'."""
    access: Audience = None
    """Groups that may see its documents, where no rule says otherwise; None: everyone who may ask."""
    language: str | None = None
    """ISO 639-1, for documents whose language is neither given nor detected."""
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    """Maps a metadata name to the key that the documents use for it."""
    include: tuple[str, ...] = ()
    """Globs relative to `path`; empty means every file."""
    exclude: tuple[str, ...] = ()
    call: str | None = None
    """Of kind 'python': 'package.module:function'."""
    timeout: float = 30.0
    """Seconds that one call of a live source may take."""
    egress: bool = False
    """Of kind 'python': whether it sends what it is asked to a system of others."""
    fee: float = 0.0
    """Dollars that one search of a live source costs."""
    engine: str = "search"
    """Of kind 'web': 'search' asks `search_url`, 'provider' the web search of the model's provider."""
    search_url: str | None = None
    domains: tuple[str, ...] = ()
    """Of kind 'web': hosts, with all below them, whose pages may be found and fetched; '*' is every public one."""
    allow_private_hosts: tuple[str, ...] = ()
    """Of kind 'web': 'host:port' that may be in a private network and be spoken to without encryption."""
    allow_http: bool = False
    max_fetches: int = 5
    """Of kind 'web': pages that one run may fetch."""
    start: tuple[str, ...] = ()
    """Of kind 'site': addresses of the pages that a crawl begins with."""
    sitemap: tuple[str, ...] = ()
    """Of kind 'site': addresses of sitemaps."""
    max_pages: int = 1000
    """Of kind 'site': pages that one crawl may ask for."""
    max_depth: int = 10
    """Of kind 'site': links from a start page or sitemap to a page."""
    delay: float = 1.0
    """Of kind 'site': least seconds between two requests to one host."""
    user_agent: str = "citehound"
    """Of kind 'site': what a crawl calls itself, also in robots.txt."""

    @property
    def live(self) -> bool:
        """Searched when asked; nothing of it is in the index."""
        return self.kind in LIVE_KINDS

    @property
    def reaches_out(self) -> bool:
        """What it is asked leaves for systems of others."""
        return self.kind == "web" or self.egress


@dataclass(frozen=True, kw_only=True)
class EmbeddingConfig:
    name: str = "static"
    """What makes the vectors: 'static', 'none', a provider's model or a dotted path (docs/search.md)."""
    base_url: str | None = None
    dimensions: int | None = None
    """None means: as many as the embedder gives."""
    weight: float = 0.4
    """What the cosine counts beside the score by words; 0: vectors only fill up what words leave."""
    floor: float = 0.5
    """Least cosine of a hit that has none of the query's words."""
    keep: int = 6
    """So many of the first hits by words stay the first."""
    send_private: bool = False
    """Whether texts of private sources may be sent to a provider."""


@dataclass(frozen=True, kw_only=True)
class RerankConfig:
    name: str = "none"
    """What puts the best passages in their last order: 'none', a cross-encoder's name or a dotted path."""
    base_url: str | None = None
    candidates: int = 30
    """How many passages it is given."""
    seconds: float = 3.0
    """How long it may take; then the order stays as it was."""
    send_private: bool = False
    """Whether texts of private sources may be sent to a service."""


@dataclass(frozen=True, kw_only=True)
class IndexConfig:
    backend: str = "embedded"
    language: str | None = None
    workers: int = 2
    """How many files are read at the same time, each in a process of its own."""
    archives: bool = False
    """Whether the files in ZIP archives become documents."""
    file_seconds: int = 60
    """How long reading one file may take."""
    file_memory_mb: int = 1024
    ocr: bool = True
    """Whether pages without usable text are read from their pictures, where `citehound[ocr]` is installed."""
    ocr_seconds: int = 600
    """How long reading one file may take where that is so."""
    embedding: EmbeddingConfig = field(default_factory=EmbeddingConfig)
    rerank: RerankConfig = field(default_factory=RerankConfig)


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """Of `citehound serve`."""

    urls: tuple[str, ...] = ()
    """Where it is reached besides the address it listens on, as in 'https://ask.example.com'."""
    cors: tuple[str, ...] = ()
    """Other origins whose pages may call it."""
    models: tuple[str, ...] = ()
    """What a question may ask for besides the configured model; an owner may ask for any."""
    max_questions: int = 64
    """Answered at once, by all together, and at most half of one who is no owner; what comes beyond is turned away."""
    requests_per_minute: int = 1200
    """Of one principal."""
    questions_per_minute: int = 240
    questions_per_day: int | None = 2000
    """Of one principal who is no owner, in the last 24 hours; None: no limit."""
    dollars_per_day: float | None = 50.0
    """The same, in dollars that were spent, or may yet be by what runs."""
    max_steps: int = 50
    """What a question may ask for at most."""
    max_dollars: float = 5.0
    max_seconds: float = 600.0
    max_body: int = 1_000_000
    """Bytes of a request's body."""
    request_seconds: float = 20.0
    """How long a request may take to come in: its head, and then its body."""
    max_chats: int = 200
    """Conversations that are kept, of all together; the one that rested longest goes first."""
    user_header: str | None = None
    """The header in which a trusted proxy says who asks; None: no proxy is trusted."""
    groups_header: str | None = None
    owners: tuple[str, ...] = ()
    """Users, as the proxy names them, who own everything."""
    proxies: tuple[str, ...] = ()
    """Addresses or networks of the proxies that are trusted."""


@dataclass(frozen=True, kw_only=True)
class DashboardConfig:
    alert_share: float = 0.1
    """A warning is raised when more than this share of the citations failed."""
    alert_hours: float = 24.0
    """How far back that looks."""
    alert_citations: int = 20
    """With fewer citations in that time nothing is said."""


@dataclass(frozen=True, kw_only=True)
class TracingConfig:
    endpoint: str | None = None
    """Address that spans and metrics are sent to (OTLP over HTTP); OTEL_ variables go before it."""
    texts: bool = True
    """Whether spans carry questions, search terms and arguments."""


@dataclass(frozen=True, kw_only=True)
class AccessRules:
    """Which groups may see which documents, where that is not their source's to say."""

    rules: tuple[Rule, ...] = ()
    """The first that names a document counts."""
    problems: tuple[str, ...] = ()
    """What could not be read of rules and sources, and is denied to all but the owner."""


@dataclass(frozen=True, kw_only=True)
class Config:
    root: Path
    """Folder of citehound.toml; state lives in `root/.citehound`."""
    sources: tuple[SourceConfig, ...]
    model: ModelConfig = field(default_factory=ModelConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    index: IndexConfig = field(default_factory=IndexConfig)
    agent: AgentConfig = field(default_factory=AgentConfig)
    routing: RoutingConfig = field(default_factory=RoutingConfig)
    verify: VerifyConfig = field(default_factory=VerifyConfig)
    chat: ChatConfig = field(default_factory=ChatConfig)
    dashboard: DashboardConfig = field(default_factory=DashboardConfig)
    tracing: TracingConfig = field(default_factory=TracingConfig)
    security: SecurityConfig = field(default_factory=SecurityConfig)
    server: ServerConfig = field(default_factory=ServerConfig)
    access: AccessRules = field(default_factory=AccessRules)
    path: Path | None = None
    """The file it was read from."""

    @property
    def rights(self) -> Access:
        """Who may see what, by rules and sources."""
        return Access(
            sources={source.name: source.access for source in self.sources},
            rules=self.access.rules,
            problems=self.access.problems,
        )

    @property
    def state(self) -> Path:
        return self.root / ".citehound"

    def source(self, name: str) -> SourceConfig | None:
        return next((s for s in self.sources if s.name == name), None)


# Loading -----------------------------------------------------------------------------------------------------------

_Kind = Literal[
    "groups", "text", "count", "whole", "number", "positive", "limit", "most", "flag", "texts", "table", "tables"
]
_WORDS: Mapping[_Kind, str] = {
    "groups": "a list of names",
    "text": "a text in quotes",
    "count": "a whole number of at least 1",
    "whole": "a whole number of at least 0",
    "number": "a number of at least 0",
    "positive": "a number above 0",
    "limit": "a number above 0, or 'none' for no limit",
    "most": "a whole number of at least 1, or 'none' for no limit",
    "flag": "true or false",
    "texts": "a list of texts",
    "table": "a table",
    "tables": "a list of tables",
}
_TOP: Mapping[str, _Kind] = {
    "model": "table",
    "budget": "table",
    "sources": "tables",
    "access": "tables",
    "index": "table",
    "agent": "table",
    "routing": "table",
    "verify": "table",
    "chat": "table",
    "dashboard": "table",
    "tracing": "table",
    "security": "table",
    "server": "table",
}
_MODEL: Mapping[str, _Kind] = {
    "name": "text",
    "small": "text",
    "base_url": "text",
    "api_key_env": "text",
    "turn_tokens": "count",
    "draft_tokens": "count",
    "window": "count",
    "timeout": "positive",
    "stream": "flag",
    "tools": "flag",
    "structured": "text",
    "thinking": "text",
    "price": "table",
    "small_price": "table",
}
_PRICE: Mapping[str, _Kind] = {"input": "number", "output": "number", "cached": "number", "cache_write": "number"}
_BUDGET: Mapping[str, _Kind] = {
    "max_steps": "count",
    "max_dollars": "limit",
    "max_seconds": "limit",
    "max_hops": "count",
}
_AGENT: Mapping[str, _Kind] = {"prefetch": "flag"}
_ROUTING: Mapping[str, _Kind] = {"judge": "text"}
_VERIFY: Mapping[str, _Kind] = {"support": "text"}
_CHAT: Mapping[str, _Kind] = {"history_tokens": "count", "clarify": "flag"}
_SECURITY: Mapping[str, _Kind] = {"quarantine": "flag"}
_SERVER: Mapping[str, _Kind] = {
    "urls": "texts",
    "cors": "texts",
    "models": "texts",
    "max_questions": "count",
    "requests_per_minute": "count",
    "questions_per_minute": "count",
    "questions_per_day": "most",
    "dollars_per_day": "limit",
    "max_steps": "count",
    "max_dollars": "number",
    "max_seconds": "positive",
    "max_body": "count",
    "request_seconds": "positive",
    "max_chats": "count",
    "user_header": "text",
    "groups_header": "text",
    "owners": "texts",
    "proxies": "texts",
}
_DASHBOARD: Mapping[str, _Kind] = {"alert_share": "number", "alert_hours": "positive", "alert_citations": "count"}
_TRACING: Mapping[str, _Kind] = {"endpoint": "text", "texts": "flag"}
_SOURCE: Mapping[str, _Kind] = {
    "name": "text",
    "path": "text",
    "description": "text",
    "kind": "text",
    "filters": "texts",
    "private": "flag",
    "trust": "text",
    "access": "groups",
    "language": "text",
    "metadata": "table",
    "include": "texts",
    "exclude": "texts",
    "call": "text",
    "timeout": "positive",
    "egress": "flag",
    "fee": "number",
    "engine": "text",
    "search_url": "text",
    "domains": "texts",
    "allow_private_hosts": "texts",
    "allow_http": "flag",
    "max_fetches": "count",
    "start": "texts",
    "sitemap": "texts",
    "max_pages": "count",
    "max_depth": "whole",
    "delay": "number",
    "user_agent": "text",
}
_ACCESS: Mapping[str, _Kind] = {"paths": "groups", "groups": "groups"}
_SOME_KINDS: Mapping[str, tuple[str, ...]] = {
    "path": ("files",),
    "include": ("files", "site"),
    "exclude": ("files", "site"),
    "call": ("python",),
    "egress": ("python",),
    "timeout": (*LIVE_KINDS, "site"),
    "fee": LIVE_KINDS,
    "engine": ("web",),
    "search_url": ("web",),
    "domains": ("web", "site"),
    "allow_private_hosts": ("web", "site"),
    "allow_http": ("web", "site"),
    "max_fetches": ("web",),
    "start": ("site",),
    "sitemap": ("site",),
    "max_pages": ("site",),
    "max_depth": ("site",),
    "delay": ("site",),
    "user_agent": ("site",),
}
"""Keys of a source that only some kinds have."""
_INDEX: Mapping[str, _Kind] = {
    "workers": "count",
    "archives": "flag",
    "file_seconds": "count",
    "file_memory_mb": "count",
    "ocr": "flag",
    "ocr_seconds": "count",
    "backend": "text",
    "language": "text",
    "embedding": "table",
    "rerank": "table",
}
_EMBEDDING: Mapping[str, _Kind] = {
    "name": "text",
    "base_url": "text",
    "dimensions": "count",
    "weight": "number",
    "floor": "number",
    "keep": "whole",
    "send_private": "flag",
}
_RERANK: Mapping[str, _Kind] = {
    "name": "text",
    "base_url": "text",
    "candidates": "count",
    "seconds": "positive",
    "send_private": "flag",
}

ENVIRONMENT: Mapping[str, tuple[str, str]] = {
    "CITEHOUND_MODEL": ("model", "name"),
    "CITEHOUND_SMALL": ("model", "small"),
    "CITEHOUND_BASE_URL": ("model", "base_url"),
    "CITEHOUND_TURN_TOKENS": ("model", "turn_tokens"),
    "CITEHOUND_DRAFT_TOKENS": ("model", "draft_tokens"),
    "CITEHOUND_API_KEY_ENV": ("model", "api_key_env"),
    "CITEHOUND_WINDOW": ("model", "window"),
    "CITEHOUND_TIMEOUT": ("model", "timeout"),
    "CITEHOUND_STREAM": ("model", "stream"),
    "CITEHOUND_TOOLS": ("model", "tools"),
    "CITEHOUND_STRUCTURED": ("model", "structured"),
    "CITEHOUND_THINKING": ("model", "thinking"),
    "CITEHOUND_PRICE_INPUT": ("model.price", "input"),
    "CITEHOUND_PRICE_OUTPUT": ("model.price", "output"),
    "CITEHOUND_PRICE_CACHED": ("model.price", "cached"),
    "CITEHOUND_PRICE_CACHE_WRITE": ("model.price", "cache_write"),
    "CITEHOUND_MAX_STEPS": ("budget", "max_steps"),
    "CITEHOUND_MAX_DOLLARS": ("budget", "max_dollars"),
    "CITEHOUND_MAX_SECONDS": ("budget", "max_seconds"),
    "CITEHOUND_MAX_HOPS": ("budget", "max_hops"),
    "CITEHOUND_PREFETCH": ("agent", "prefetch"),
    "CITEHOUND_JUDGE": ("routing", "judge"),
    "CITEHOUND_SUPPORT": ("verify", "support"),
    "CITEHOUND_HISTORY_TOKENS": ("chat", "history_tokens"),
    "CITEHOUND_CLARIFY": ("chat", "clarify"),
    "CITEHOUND_TRACING": ("tracing", "endpoint"),
    "CITEHOUND_QUARANTINE": ("security", "quarantine"),
    "CITEHOUND_LANGUAGE": ("index", "language"),
    "CITEHOUND_BACKEND": ("index", "backend"),
    "CITEHOUND_EMBEDDING": ("index.embedding", "name"),
    "CITEHOUND_RERANK": ("index.rerank", "name"),
}
"""Environment variable to the table and key that it overrides."""
OTHER_ENVIRONMENT: Mapping[str, str] = {
    "CITEHOUND_CONFIG": "the configuration file, where --config does not say",
    "CITEHOUND_DEBUG": "1 shows the traceback of a bug",
}
_SCHEMAS: Mapping[str, Mapping[str, _Kind]] = {
    "model": _MODEL,
    "model.price": _PRICE,
    "budget": _BUDGET,
    "index": _INDEX,
    "index.embedding": _EMBEDDING,
    "index.rerank": _RERANK,
    "agent": _AGENT,
    "routing": _ROUTING,
    "verify": _VERIFY,
    "chat": _CHAT,
    "dashboard": _DASHBOARD,
    "tracing": _TRACING,
    "security": _SECURITY,
    "server": _SERVER,
}
_KEY_NAME = re.compile(r"(?i)(api[_-]?key|secret|password|credential|access[_-]?token|auth[_-]?token|^token$|^key$)")
_KEY_VARIABLE = re.compile(r"[A-Za-z][A-Za-z0-9_]*?_?(API_?KEY|TOKEN)", re.IGNORECASE)
_KEY_VALUE = re.compile(
    r"^(sk-[\w-]{12,}|AIza[\w-]{20,}|gsk_\w{12,}|xai-\w{12,}|AKIA\w{12,}|gh[pousr]_\w{20,}|hf_\w{16,})$"
)


def find(start: Path | None = None) -> Path:
    """`citehound.toml` in `start` (default: the working folder) or the nearest parent. Raises ConfigError."""
    here = (start or Path.cwd()).absolute()
    for folder in (here, *here.parents):
        candidate = folder / FILE_NAME
        if candidate.is_file():
            return candidate
    raise ConfigError(f"no {FILE_NAME} in {str(here)!r} or above; 'citehound init' writes one, --config names another")


def load(path: Path | None = None, *, env: Mapping[str, str] | None = None) -> Config:
    """The configuration in `path` (a file, or a folder that holds one) or the nearest `citehound.toml`, overridden.

    Raises ConfigError with one line for the first thing that is wrong.
    """
    env = os.environ if env is None else env
    if path is None and env.get("CITEHOUND_CONFIG"):
        path = Path(env["CITEHOUND_CONFIG"]).expanduser()
    path = find() if path is None else path.absolute()
    if path.is_dir():
        path = path / FILE_NAME
    try:
        data = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"no configuration at {str(path)!r}; 'citehound init' writes one") from None
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{str(path)!r} is not UTF-8; save it as UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{str(path)!r} is not valid TOML: {_line(str(error))}") from None
    return _build(data, path=path, env=env)


def bare(root: Path, *, env: Mapping[str, str] | None = None) -> Config:
    """The configuration of a folder without a file and without sources: defaults and the environment."""
    built = _build({}, path=root / FILE_NAME, env=os.environ if env is None else env, sourceless=True)
    return replace(built, path=None)


def _build(data: Mapping[str, Any], *, path: Path, env: Mapping[str, str], sourceless: bool = False) -> Config:
    where = path.name
    _refuse_keys(data, where)
    top = _table(data, _TOP, at=where, prefix="")
    model = _table(top.get("model", {}), _MODEL, at=where, prefix="model.")
    index = _table(top.get("index", {}), _INDEX, at=where, prefix="index.")
    tables = {
        "model": model,
        "model.price": _table(model.pop("price", {}), _PRICE, at=where, prefix="model.price."),
        "budget": _table(top.get("budget", {}), _BUDGET, at=where, prefix="budget."),
        "index": index,
        "index.embedding": _table(index.pop("embedding", {}), _EMBEDDING, at=where, prefix="index.embedding."),
        "index.rerank": _table(index.pop("rerank", {}), _RERANK, at=where, prefix="index.rerank."),
        "agent": _table(top.get("agent", {}), _AGENT, at=where, prefix="agent."),
        "routing": _table(top.get("routing", {}), _ROUTING, at=where, prefix="routing."),
        "verify": _table(top.get("verify", {}), _VERIFY, at=where, prefix="verify."),
        "chat": _table(top.get("chat", {}), _CHAT, at=where, prefix="chat."),
        "dashboard": _table(top.get("dashboard", {}), _DASHBOARD, at=where, prefix="dashboard."),
        "tracing": _table(top.get("tracing", {}), _TRACING, at=where, prefix="tracing."),
        "security": _table(top.get("security", {}), _SECURITY, at=where, prefix="security."),
        "server": _table(top.get("server", {}), _SERVER, at=where, prefix="server."),
    }
    _override(tables, env)
    for key in ("name", "small", "base_url", "api_key_env"):
        if key in model and not model[key].strip():
            raise ConfigError(f"{where}: model.{key} is empty; name a model, or leave the key out")
    for key, known in (("structured", STRUCTURED), ("thinking", THINKING)):
        if model.get(key, "auto") not in known:
            raise ConfigError(f"{where}: model.{key} is {model[key]!r}; use one of {', '.join(map(repr, known))}")
    if re.search(r"//[^/?#]*@", model.get("base_url", "")):
        raise ConfigError(f"{where}: model.base_url holds a user or a password; remove it, keys go in the environment")
    if tables["dashboard"].get("alert_share", 0) > 1:
        raise ConfigError(f"{where}: dashboard.alert_share is a share from 0 to 1, as in 0.1 for every tenth citation")
    address = tables["tracing"].get("endpoint", "http://x")
    if not re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#@]*)?", address):
        raise ConfigError(
            f"{where}: tracing.endpoint is {address!r}; write it as 'http://localhost:4318', without user or password "
            "(headers go in OTEL_EXPORTER_OTLP_HEADERS)"
        )
    variable = model.get("api_key_env")
    if variable is not None and not _KEY_VARIABLE.fullmatch(variable):
        raise ConfigError(
            f"{where}: model.api_key_env is the name of an environment variable that ends with API_KEY or TOKEN; "
            "the key itself never stands in the file"
        )
    small_price = _table(model.pop("small_price", {}), _PRICE, at=where, prefix="model.small_price.")
    for table in ("index.embedding", "index.rerank"):
        if not tables[table].get("name", "none").strip():
            raise ConfigError(f"{where}: {table}.name is empty; write 'none', or leave the key out")
    backend = index.get("backend", "embedded")
    if backend not in BACKENDS:
        raise ConfigError(f"{where}: index.backend {backend!r} is not known; {_nearest(backend, BACKENDS)}")
    for table, key, values in (("routing", "judge", ("model", "rules")), ("verify", "support", ("off", "model"))):
        given = tables[table].get(key, values[0])
        if given not in values:
            raise ConfigError(f"{where}: {table}.{key} {given!r} is not known; {_nearest(given, values)}")
    root = path.parent.resolve()
    entries = cast("list[Any]", top.get("sources", []))
    sources = tuple(_source(entry, number, root=root, at=where) for number, entry in enumerate(entries, 1))
    if not sources and not sourceless:
        raise ConfigError(f"{where}: there are no sources; add a [[sources]] table with name and path")
    _refuse_duplicates(sources, where)
    rules, problems = _rules(cast("list[Any]", top.get("access", [])), sources, at=where)
    for entry, source in zip(entries, sources, strict=True):
        wrong = _groups(cast("dict[str, Any]", entry).get("access", [EVERYONE]))[1]
        problems += (f"the access of source {source.name!r} {wrong}: only the owner sees it",) if wrong else ()
    try:
        check_egress(sources, quarantined=tables["security"].get("quarantine", False))
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    return Config(
        root=root,
        path=path,
        sources=sources,
        access=AccessRules(rules=rules, problems=problems),
        model=ModelConfig(
            **model,
            price=_price(tables["model.price"], at=f"{where}: model.price"),
            small_price=_price(small_price, at=f"{where}: model.small_price"),
        ),
        budget=BudgetConfig(**tables["budget"]),
        index=IndexConfig(
            **index,
            embedding=EmbeddingConfig(**tables["index.embedding"]),
            rerank=RerankConfig(**tables["index.rerank"]),
        ),
        agent=AgentConfig(**tables["agent"]),
        routing=RoutingConfig(**tables["routing"]),
        verify=VerifyConfig(**tables["verify"]),
        chat=ChatConfig(**tables["chat"]),
        dashboard=DashboardConfig(**tables["dashboard"]),
        tracing=TracingConfig(**tables["tracing"]),
        security=SecurityConfig(**tables["security"]),
        server=_server(tables["server"], at=where),
    )


_ORIGIN = re.compile(r"https?://([a-z0-9.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?", re.IGNORECASE)
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]*")


def _server(table: Mapping[str, Any], *, at: str) -> ServerConfig:
    for key in ("urls", "cors"):
        for url in table.get(key, ()):
            if not _ORIGIN.fullmatch(url):
                raise ConfigError(
                    f"{at}: server.{key} has {url!r}; write scheme, host and port only, as in 'https://ask.example.com'"
                )
    for key in ("user_header", "groups_header"):
        if key in table and not _HEADER.fullmatch(table[key]):
            raise ConfigError(f"{at}: server.{key} is {table[key]!r}, no name of a header; write one, as in 'X-User'")
    for network in table.get("proxies", ()):
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            raise ConfigError(
                f"{at}: server.proxies has {network!r} ({error}); write an address or a network, as in '10.0.0.0/8'"
            ) from None
    if "user_header" in table and not table.get("proxies"):
        raise ConfigError(f"{at}: server.user_header needs server.proxies, the addresses it is believed from")
    for key in ("groups_header", "owners", "proxies"):
        if key in table and "user_header" not in table:
            raise ConfigError(f"{at}: server.{key} needs server.user_header, the header that says who asks")
    made: dict[str, Any] = {k: tuple(cast("list[str]", v)) if isinstance(v, list) else v for k, v in table.items()}
    return ServerConfig(**made)


def _price(table: Mapping[str, Any], *, at: str) -> PriceConfig | None:
    if not table:
        return None
    if not {"input", "output"} <= table.keys():
        raise ConfigError(f"{at} needs both input and output, in dollars per million tokens (0 where nothing is paid)")
    return PriceConfig(**table)


def _source(entry: Any, number: int, *, root: Path, at: str) -> SourceConfig:
    table = _table(entry, _SOURCE, at=at, prefix=f"sources[{number}].")
    if not str(table.get("name", "")).strip():
        raise ConfigError(f"{at}: sources[{number}].name is missing; every source needs name and path")
    name = cast("str", table["name"])
    if name != name.strip() or not name.isprintable() or "/" in name or "\\" in name or name in (".", ".."):
        raise ConfigError(f"{at}: sources[{number}].name {name!r} must be one printable word or phrase without slashes")
    kind = table.get("kind", "files")
    kinds = _source_kinds()
    if kind not in kinds:
        raise ConfigError(f"{at}: source {name!r} has the kind {kind!r}; {_nearest(kind, kinds)}")
    for key in table:
        if kind not in _SOME_KINDS.get(key, kinds):
            only = " and ".join(map(repr, _SOME_KINDS[key]))
            raise ConfigError(f"{at}: source {name!r} is of kind {kind!r}, which has no {key!r}; only {only} has")
    web = kind == "web"
    site = kind == "site"
    trust = table.get("trust", "open" if web or site else "reviewed")
    if trust not in ("reviewed", "open"):
        raise ConfigError(f"{at}: source {name!r} has trust {trust!r}; it is 'reviewed' or 'open'")
    metadata = cast("dict[str, Any]", table.get("metadata", {}))
    for key, value in metadata.items():
        if not isinstance(value, str) or not value.strip():
            raise ConfigError(f"{at}: sources[{number}].metadata.{key} must be {_WORDS['text']}, not {value!r}")
    filters = cast("list[str]", table.get("filters", []))
    twice = next((f for f in filters if filters.count(f) > 1), None)
    if twice is not None:
        raise ConfigError(f"{at}: source {name!r} lists the filter {twice!r} twice")
    if any(not f.strip() for f in filters):
        raise ConfigError(f"{at}: source {name!r} has an empty filter name")
    if web and filters:
        raise ConfigError(f"{at}: source {name!r} is the web, which has no filters; remove `filters`")
    if web and table.get("private", False):
        raise ConfigError(f"{at}: source {name!r} is the web, which is not private; remove `private`")
    if kind == "python" and not table.get("call", "").strip():
        raise ConfigError(f'{at}: source {name!r} needs `call`, as in call = "package.module:function"')
    source = SourceConfig(
        name=name,
        path=_folder(table, number, name=name, root=root, at=at) if kind == "files" else root,
        description=" ".join(str(table.get("description", "")).split()),
        kind=kind,
        filters=tuple(filters),
        private=table.get("private", not web and not (site and not table.get("allow_private_hosts"))),
        trust=trust,
        access=_groups(table.get("access", [EVERYONE]))[0],
        language=table.get("language"),
        metadata=cast("dict[str, str]", metadata),
        include=tuple(table.get("include", ())),
        exclude=tuple(table.get("exclude", ())),
        call=table.get("call"),
        timeout=table.get("timeout", 30.0),
        egress=table.get("egress", False),
        fee=table.get("fee", PROVIDER_FEE if web and table.get("engine") == "provider" else 0.0),
        engine=table.get("engine", "search"),
        search_url=table.get("search_url"),
        domains=tuple(table.get("domains", ())),
        allow_private_hosts=tuple(table.get("allow_private_hosts", ())),
        allow_http=table.get("allow_http", False),
        max_fetches=table.get("max_fetches", 5),
        start=tuple(table.get("start", ())),
        sitemap=tuple(table.get("sitemap", ())),
        max_pages=table.get("max_pages", 1000),
        max_depth=table.get("max_depth", 10),
        delay=table.get("delay", 1.0),
        user_agent=table.get("user_agent", "citehound"),
    )
    if web:
        _check_web(source, at=at)
    if site:
        _check_site(source, at=at)
    return source


def _groups(value: object) -> tuple[Audience, str]:
    """The groups, and '' or why they cannot be read; then nobody is in them."""
    if not isinstance(value, list):
        return frozenset(), f"must be a list of groups, not {_short(value)}" if value is not None else "is missing"
    names = cast("list[Any]", value)
    wrong = next((n for n in names if not isinstance(n, str) or not n.strip() or not n.isprintable()), None)
    if wrong is not None:
        return frozenset(), f"has {_short(wrong)}, which is no name of a group"
    return audience([n.strip() for n in names]), ""


def _rules(
    entries: Sequence[Any], sources: Sequence[SourceConfig], *, at: str
) -> tuple[tuple[Rule, ...], tuple[str, ...]]:
    """The rules of [[access]], and what of them could not be read: a rule that may mean any document denies them all.

    Raises ConfigError for an unknown key, and for a glob that begins with no source's name.
    """
    rules: list[Rule] = []
    problems: list[str] = []
    for number, entry in enumerate(entries, 1):
        name = f"access[{number}]"
        table = _table(entry, _ACCESS, at=at, prefix=f"{name}.") if isinstance(entry, dict) else {}
        groups, wrong = _groups(table.get("groups"))
        paths, unreadable = _paths(table.get("paths"))
        if unreadable:
            problems.append(f"{name}.paths {unreadable}: only the owner sees what no rule before it names")
            rules.append(Rule(paths=("**",), groups=frozenset()))
            continue
        if wrong:
            problems.append(f"{name}.groups {wrong}: only the owner sees {', '.join(map(repr, paths))}")
        names = [source.name for source in sources]
        for path in paths:
            first = first_part(path)
            if first and not any(glob_pattern(first).fullmatch(known) for known in names):
                raise ConfigError(
                    f"{at}: {name} has the path {path!r}, which begins with no source's name; {_nearest(first, names)}"
                )
        rules.append(Rule(paths=paths, groups=groups))
    return tuple(rules), tuple(problems)


def _paths(value: object) -> tuple[tuple[str, ...], str]:
    """Globs, and '' or why they cannot be read."""
    given = cast("list[Any]", value) if isinstance(value, list) else []
    if not given or not all(isinstance(path, str) and path.strip(" /") for path in given):
        return (), f"must be a list of globs, not {_short(cast('object', value))}"
    paths = tuple(cast("list[str]", given))
    for path in paths:
        try:
            glob_pattern(path)
        except ConfigError as error:
            return (), f"cannot be read ({error})"
    return paths, ""


class Rights:
    """Who may see what, as the configuration file says now: a changed file holds from the next question on.

    While the file cannot be read, only the owner sees anything. What else is in it needs a restart. Safe under threads.
    """

    def __init__(self, config: Config, *, given: Sequence[SourceConfig] = ()) -> None:
        """`given` are sources of `config` that are not in its file."""
        self._path = config.path
        self._given = {source.name: source.access for source in given}
        self._access = config.rights
        self._stamp = self._stamped()
        self._mutex = threading.Lock()

    def now(self) -> Access:
        """The same object as long as nothing has changed."""
        stamp = self._stamped()
        if stamp == self._stamp or self._path is None:
            return self._access
        with self._mutex:
            if stamp != self._stamp:
                try:
                    read = load(self._path)
                    self._access = replace(read.rights, sources={**read.rights.sources, **self._given})
                except ConfigError as error:
                    self._access = Access(closed=True, problems=(f"{error}: only the owner sees anything",))
                self._stamp = stamp
            return self._access

    def _stamped(self) -> tuple[int, int, int] | None:
        if self._path is None:
            return None
        try:
            status = os.stat(self._path)
        except OSError:
            return (0, 0, 0)
        return status.st_mtime_ns, status.st_size, status.st_ino


def _folder(table: Mapping[str, Any], number: int, *, name: str, root: Path, at: str) -> Path:
    if not str(table.get("path", "")).strip():
        raise ConfigError(f"{at}: sources[{number}].path is missing; every source needs name and path")
    given = cast("str", table["path"])
    if "\0" in given:
        raise ConfigError(f"{at}: source {name!r} has a path with a NUL character")
    folder = (root / Path(given).expanduser()).resolve()
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise ConfigError(f"{at}: source {name!r} has the path {given!r}, which {what} (looked at {str(folder)!r})")
    return folder


def _check_web(source: SourceConfig, *, at: str) -> None:
    """Hosts and addresses are checked where they are used; here, that all is there."""
    said = f"{at}: source {source.name!r}"
    if source.engine not in ENGINES:
        raise ConfigError(f"{said} has the engine {source.engine!r}; {_nearest(source.engine, ENGINES)}")
    if not source.domains:
        raise ConfigError(f'{said} needs `domains`, as in domains = ["example.org"]; ["*"] is every public host')
    if source.engine == "provider":
        if source.search_url is not None:
            raise ConfigError(f"{said} asks the provider, which has no search_url; remove one of the two")
        return
    if source.search_url is None or "{query}" not in source.search_url:
        raise ConfigError(f'{said} needs search_url = "https://…/search?q={{query}}&format=json", with {{query}} in it')


def _check_site(source: SourceConfig, *, at: str) -> None:
    """Addresses are checked where they are used; here, that all is there."""
    said = f"{at}: source {source.name!r}"
    if not source.start and not source.sitemap:
        raise ConfigError(f'{said} needs `start` or `sitemap`, as in start = ["https://example.org/handbook/"]')
    if "*" in source.domains:
        raise ConfigError(f"{said} is a site, which is no crawl of every host; name its hosts in `domains`")
    if not re.fullmatch(r"[A-Za-z_-]+(?:[/ (][\x20-\x7e]{0,200})?", source.user_agent):
        raise ConfigError(
            f"{said} has the user_agent {source.user_agent!r}; it begins with a name of letters, as in "
            "'citehound' or 'acme-search (+https://example.org/bot)'"
        )


def check_egress(sources: Sequence[SourceConfig], *, quarantined: bool = False) -> None:
    """Raises ConfigError for a source that reaches out beside a private one: what was read could leave by it.

    With quarantined reading it could not: whoever searches has not seen what was read.
    """
    if quarantined:
        return
    for out in sources:
        private = next((s for s in sources if s.private and s is not out), None)
        if out.reaches_out and private is not None:
            raise ConfigError(
                f"source {out.name!r} reaches out while source {private.name!r} is private, and what was read there "
                f"could leave with a search: set private = false there, give {out.name!r} a configuration of its own, "
                "or set quarantine = true under [security]"
            )


def _table(value: Any, schema: Mapping[str, _Kind], *, at: str, prefix: str) -> dict[str, Any]:
    """A checked copy of a TOML table; limits of 'none' become None."""
    if not isinstance(value, dict):
        raise ConfigError(f"{at}: {prefix.rstrip('.') or 'the file'} must be a table, not {_short(value)}")
    checked: dict[str, Any] = {}
    for key, given in cast("dict[str, Any]", value).items():
        if key not in schema:
            raise ConfigError(f"{at}: unknown key {prefix + key!r}; {_nearest(key, schema, prefix=prefix)}")
        checked[key] = _value(given, schema[key], name=f"{at}: {prefix}{key}")
    return checked


def _value(value: Any, kind: _Kind, *, name: str) -> Any:
    number = _number(value)
    match kind:
        case "limit" | "most" if isinstance(value, str) and value.strip().lower() == "none":
            return None
        case "limit" if number is not None and number > 0:
            return number
        case "number" if number is not None and number >= 0:
            return number
        case "positive" if number is not None and number > 0:
            return number
        case "count" | "most" if isinstance(value, int) and number is not None and number >= 1:
            return value
        case "whole" if isinstance(value, int) and number is not None and number >= 0:
            return value
        case "groups":  # who reads it says what is wrong with it, and denies
            return value
        case "text" if isinstance(value, str):
            return value
        case "flag" if isinstance(value, bool):
            return value
        case "texts" if isinstance(value, list) and all(isinstance(v, str) for v in cast("list[Any]", value)):
            return cast("list[str]", value)
        case "table" if isinstance(value, dict):
            return cast("dict[str, Any]", value)
        case "tables" if isinstance(value, list):
            return cast("list[Any]", value)
        case _:
            hint = f"; write [[{name.rpartition(' ')[2]}]], with two brackets" if kind == "tables" else ""
            raise ConfigError(f"{name} must be {_WORDS[kind]}, not {_short(cast('object', value))}{hint}")


def _number(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def unknown_variables(env: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """A line for each `CITEHOUND_` variable that is no setting and is ignored; `load` refuses the likely typos.

    They are no error: a system may make such variables of its own, as Kubernetes does for a service of this name.
    """
    env = os.environ if env is None else env
    known = (*ENVIRONMENT, *OTHER_ENVIRONMENT)
    return tuple(
        f"the environment has {name}, which is no setting and is ignored; "
        f"the nearest is {difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]}"
        for name in sorted(env)
        if name.startswith("CITEHOUND_") and name not in known
    )


def _override(tables: Mapping[str, dict[str, Any]], env: Mapping[str, str]) -> None:
    known = (*ENVIRONMENT, *OTHER_ENVIRONMENT)
    for name, text in sorted(env.items()):
        if not name.startswith("CITEHOUND_") or name in OTHER_ENVIRONMENT or not text.strip():
            continue
        if name not in ENVIRONMENT:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
            if near:
                raise ConfigError(f"the environment has {name}, which is no setting; did you mean {near[0]}?")
            continue
        table, key = ENVIRONMENT[name]
        kind = _SCHEMAS[table][key]
        value: Any = text.strip()
        if kind in ("count", "number", "positive", "limit"):
            with contextlib.suppress(ValueError):
                value = int(value) if kind == "count" else float(value)
        elif kind == "flag":
            value = {"true": True, "1": True, "false": False, "0": False}.get(value.lower(), value)
        tables[table][key] = _value(value, kind, name=name)


def _refuse_keys(value: Any, at: str, name: str = "") -> None:
    """API keys belong in the environment. Values are never repeated in the message."""
    if isinstance(value, dict):
        for key, inner in cast("dict[str, Any]", value).items():
            path = f"{name}.{key}" if name else key
            mapping = re.fullmatch(r"sources\[\d+\]\.metadata", name)
            names_one = path == "model.api_key_env"
            if not mapping and not names_one and isinstance(inner, str) and _KEY_NAME.search(key):
                raise ConfigError(
                    f"{at}: {path!r} looks like a secret; remove it from the file and set it in the environment "
                    "(ANTHROPIC_API_KEY, OPENAI_API_KEY, ...)"
                )
            _refuse_keys(inner, at, path)
    elif isinstance(value, list):
        for number, inner in enumerate(cast("list[Any]", value), 1):
            _refuse_keys(inner, at, f"{name}[{number}]")
    elif isinstance(value, str) and _KEY_VALUE.match(value.strip()):
        raise ConfigError(f"{at}: {name!r} holds what looks like an API key; remove it and set it in the environment")


def _refuse_duplicates(sources: Sequence[SourceConfig], at: str) -> None:
    names: dict[str, str] = {}
    places: dict[tuple[object, ...], str] = {}
    for source in sources:
        tool = re.sub(r"[^A-Za-z0-9_]", "_", source.name).casefold()
        if tool in names:
            first = names[tool]
            how = "is there twice" if first == source.name else f"is too like {first!r} (both become search_{tool})"
            raise ConfigError(f"{at}: the source name {source.name!r} {how}; rename one")
        names[tool] = source.name
        if source.live:
            continue
        place = (source.path, source.include, source.exclude, source.start, source.sitemap)
        if place in places and source.kind == "site":
            raise ConfigError(f"{at}: sources {places[place]!r} and {source.name!r} begin the same crawl; remove one")
        if place in places:
            raise ConfigError(f"{at}: sources {places[place]!r} and {source.name!r} have the same path; remove one")
        places[place] = source.name


def _source_kinds() -> tuple[str, ...]:
    """The modules of `sources/`: adding a kind is adding a file."""
    return tuple(sorted(p.stem for p in (Path(__file__).parent / "sources").glob("[a-z]*.py")))


def _nearest(key: str, known: Sequence[str] | Mapping[str, object], *, prefix: str = "") -> str:
    near = difflib.get_close_matches(key.lower(), list(known), n=1, cutoff=0.5)
    if near:
        return f"did you mean {prefix + near[0]!r}?"
    return "known: " + ", ".join(known)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _line(text: str) -> str:
    return " ".join(text.split())


# Suggesting --------------------------------------------------------------------------------------------------------

_PROSE = frozenset({".md", ".markdown", ".mdown", ".mkd", ".txt", ".text", ".rst", ".rest", ".html", ".htm"})
_OTHER = frozenset(
    {".pdf", ".docx", ".docm", ".odt", ".xlsx", ".xlsm", ".xlsb", ".xls", ".ods", ".csv", ".tsv", ".pptx", ".eml"}
    | {".json", ".jsonl", ".ndjson"}
)
_NOT_FILTERS = frozenset(
    [
        "id",
        "title",
        "name",
        "description",
        "summary",
        "path",
        "file",
        "filename",
        "url",
        "source",
        "date",
        "created",
        "updated",
        "effective",
        "version",
        "status",
        "supersedes",
        "superseded_by",
        "amends",
        "lang",
        "language",
        "author",
        "permalink",
        "slug",
        "layout",
        "weight",
        "order",
        "words",
        "pages",
        "sha256",
        "hash",
        "bytes",
        "size",
        "access",
        "acl",
        "private",
        "trust",
        "principal",
        "tenant",
    ]
)
"""Metadata that says which text it is, not which kind: of no use as a filter, or not the documents' to say."""
_ABOUT = re.compile(
    r"(?i)(readme|licen[cs]e|copying|notice)s?([._-]\w{1,10})?$"
    r"|(origin|change-?log|changes|release[_-]?notes|contributing|contributors|authors|code[_-]of[_-]conduct)$"
)
"""Stems of files that tell about a folder instead of being one of its documents."""
_MOST_FILES = 2000
_HEAD = 8192


def suggest(folder: Path, *, beside: Path | None = None) -> str:
    """The text of a `citehound.toml` for `folder`: a source per sub-folder, with guessed descriptions and filters.

    Documents directly in the folder become one source of their own. Paths are relative to `beside` (default: the
    folder). Raises ConfigError when there is no document.
    """
    folder = folder.resolve()
    beside = folder if beside is None else beside.resolve()
    manifest = _manifest_rows(folder)
    sources: list[str] = []
    names: set[str] = set()
    subfolders: list[Path] = []
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith((".", "_")) or entry.name in ("node_modules", "__pycache__", "venv"):
            continue
        if entry.is_dir() and not entry.is_symlink():
            rows = _manifest_rows(entry)
            files = [f for f in _documents(entry) if not rows or f in rows]
            if files:
                subfolders.append(entry)
                sources.append(_suggested(entry, files, rows, names=names, beside=beside))
    loose = [p for p in sorted(folder.iterdir()) if _is_document(p) and (not manifest or p in manifest)]
    if subfolders and all(_ABOUT.match(p.stem) for p in loose):
        loose = []  # what tells about the folder is no document of its own beside the documents
    if loose:
        include = ["/*"] if subfolders else []
        sources.insert(0, _suggested(folder, loose, manifest, names=names, beside=beside, include=include))
    if not sources:
        raise ConfigError(f"there are no documents in {str(folder)!r}; run it where they are, or name the folder")
    head = (
        "# Where to search. A model chooses sources by their descriptions: correct them.\n"
        "# Every key: docs/configuration.md. API keys go into the environment, never into this file.\n\n"
        "[budget]\nmax_steps = 12\nmax_dollars = 0.50\nmax_seconds = 120\n"
    )
    return head + "".join("\n" + s for s in sources)


def _suggested(
    folder: Path,
    files: Sequence[Path],
    rows: Mapping[Path, Mapping[str, str]],
    *,
    names: set[str],
    beside: Path,
    include: Sequence[str] = (),
) -> str:
    name = re.sub(r"[^\w.-]+", "-", folder.name or "documents").strip("-.") or "documents"
    tool = re.sub(r"[^A-Za-z0-9_]", "_", name).casefold()
    base, number = name, 2
    while tool in names:
        name = f"{base}-{number}"
        tool = re.sub(r"[^A-Za-z0-9_]", "_", name).casefold()
        number += 1
    names.add(tool)
    path = Path(os.path.relpath(folder, beside)).as_posix()
    lines = ["[[sources]]", f"name = {_toml(name)}", f"description = {_toml(_describe(folder, files))}"]
    lines.append(f"path = {_toml(path)}")
    if include:
        lines.append(f"include = [{', '.join(_toml(i) for i in include)}]")
    filters = _filters(files, rows)
    if filters:
        lines.append(f"filters = [{', '.join(_toml(f) for f in filters)}]")
    return "\n".join(lines) + "\n"


def _documents(folder: Path) -> list[Path]:
    found: list[Path] = []
    for at, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith((".", "_")) and f != "node_modules")
        found += [Path(at) / f for f in sorted(files) if _is_document(Path(at) / f)]
        if len(found) >= _MOST_FILES:
            break
    return found[:_MOST_FILES]


def _is_document(path: Path) -> bool:
    if path.name.startswith(".") or path.name in (FILE_NAME, "manifest.csv") or path.is_symlink():
        return False
    if path.suffix.lower() in (".jsonl", ".json", ".csv") and path.is_file() and _holds_cases(path):
        return False
    return path.suffix.lower() in (_PROSE | _OTHER) and path.is_file()


def _holds_cases(path: Path) -> bool:
    """Whether a file has questions for `citehound eval`: they must not be found as an answer to themselves."""
    with path.open("rb") as file:
        head = file.read(_HEAD).decode("utf-8", "replace")
    first = head.lstrip("\ufeff [\n").splitlines()[0] if head.strip("\ufeff [\n") else ""
    return ("question" in first and any(key in first for key in ("must_read", "answer_points"))) or (
        '"evidence_regex"' in first
    )


def _describe(folder: Path, files: Sequence[Path]) -> str:
    """A README's first sentence if it says what is in the folder, else the first titles."""
    for file in files:
        if file.stem.lower() in ("readme", "index", "home") and file.parent == folder:
            sentence = _first_sentence(_head(file))
            if sentence and _says_what_is_there(sentence, folder):
                return sentence
    titles = list(dict.fromkeys(t for t in (_title(f) for f in files[:40]) if t))
    some = "; ".join(titles[:4]) + (" ..." if len(titles) > 4 else "")
    word = re.sub(r"[-_]+", " ", folder.name).strip().capitalize() or "Documents"
    count = f"{len(files)} document{'s' if len(files) > 1 else ''}"
    return f"{word}: {count}, among them {some}" if some else f"{word}: {count}"


_SUBJECT = re.compile(
    r"(?:this|these|those|welcome|what|how|here (?:are|you)|the|our|an?|all)\b"
    r"|.{0,40}?\b(?:is|are) (?:a|an|the|our|where)\b",
    re.IGNORECASE,
)
_ABOUT_ITSELF = re.compile(
    r"\b(?:click|link|button|page|readme|repositor|repo|build|install|run|clone|fork|contribut|licen[cs]e|download|"
    r"invented|fictional|copyright|deprecated|moved|badge|generated)",
    re.IGNORECASE,
)
"""Words of a sentence about files or how to use them, not about what the documents say."""


def _says_what_is_there(sentence: str, folder: Path) -> bool:
    name = re.sub(r"[-_]+", " ", folder.name).casefold()
    begins = _SUBJECT.match(sentence) is not None or sentence.casefold().startswith(name)
    return begins and _ABOUT_ITSELF.search(sentence) is None


def _head(file: Path) -> str:
    if file.suffix.lower() not in _PROSE:
        return ""
    try:
        with file.open("rb") as stream:
            data = stream.read(_HEAD)
    except OSError:
        return ""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    return data.decode("utf-8-sig", "replace")


def _body(head: str) -> str:
    return re.sub(r"\A---\s*\n.*?\n(---|\.\.\.)\s*\n", "", head, flags=re.DOTALL)


def _title(file: Path) -> str:
    head = _head(file)
    given = _front_matter(head).get("title")
    if not given:
        match = re.search(r"<title[^>]*>([^<]+)</title>|<h1[^>]*>([^<]+)</h1>", head, re.IGNORECASE)
        if match:
            given = match[1] or match[2]
    if not given:
        match = re.search(r"^#{1,2}\s+(.+?)\s*#*$|^(\S.*)\n(?:={3,}|-{3,})\s*$", _body(head), re.MULTILINE)
        given = (match[1] or match[2]) if match else file.stem.replace("-", " ").replace("_", " ")
    return _readable(given, 70)


def _first_sentence(head: str) -> str:
    body = re.sub(r"<!--.*?-->|<[^>]+>", " ", _body(head), flags=re.DOTALL)
    for block in re.split(r"\n\s*\n", body):
        lines = [n.strip() for n in block.strip().splitlines()]
        if not lines or re.match(r"(#|[=~-]{3,}|```|\||!\[|\[!\[|>|\.\. |[-*+] |\d+[.)] )", lines[0]):
            continue
        if len(lines) > 1 and re.fullmatch(r"[=~-]{3,}", lines[1]):
            continue
        text = _readable(" ".join(lines), 400)
        if len(text) < 20:
            continue
        sentence = re.match(r".{20,}?[.!?](?=\s|$)", text)
        return _readable(sentence.group() if sentence else text, 200)
    return ""


def _readable(text: str, most: int) -> str:
    text = re.sub(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", text)
    text = re.sub(r"[*`_]{1,3}(\S.*?\S|\S)[*`_]{1,3}", r"\1", text)
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= most else text[: most - 3].rstrip() + "..."


def _filters(files: Sequence[Path], rows: Mapping[Path, Mapping[str, str]]) -> list[str]:
    """Keys of a tenth of the documents or more with 2 to 50 values that repeat: enough to choose between, few enough to
    choose from."""
    values: dict[str, list[str]] = {}
    for file in files:
        for key, value in {**rows.get(file, {}), **_front_matter(_head(file))}.items():
            if value and key.casefold() not in _NOT_FILTERS and len(value) <= 80:
                values.setdefault(key, []).append(value)
    chosen: list[str] = []
    for key, given in values.items():
        distinct = len(set(given))
        if all(re.fullmatch(r"[\d\s.,:/TZ+-]+", v) for v in given):
            continue  # dates and numbers are not chosen from a list
        rare = len(given) * 10 < len(files)
        if 2 <= distinct <= 50 and distinct < len(given) and not rare and re.fullmatch(r"[^\W\d][\w-]*", key):
            chosen.append(key)
    return chosen[:8]


def _front_matter(head: str) -> dict[str, str]:
    """The plain `key: value` lines of a front matter; what is nested is of no use here."""
    match = re.match(r"---\s*\n(.*?)\n(?:---|\.\.\.)\s*(?:\n|\Z)", head, re.DOTALL)
    found: dict[str, str] = {}
    for line in match[1].splitlines() if match else ():
        pair = re.match(r"([A-Za-z_][\w-]*):[ \t]+(\S.*?)\s*$", line)
        if pair and pair[2][0] not in "[{|>&*!":
            found[pair[1]] = re.sub(r"\s+#.*$", "", pair[2]).strip("\"'")
    return found


def _manifest_rows(folder: Path) -> dict[Path, Mapping[str, str]]:
    """`manifest.csv` of the folder or the nearest parent, by the file that a row is about."""
    for at in (folder, *folder.parents):
        file = at / "manifest.csv"
        if file.is_file() and not file.is_symlink():
            try:
                with file.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
                    rows = list(csv.DictReader(stream))
            except (OSError, csv.Error):
                return {}
            return {
                at / r["path"]: {k: v for k, v in r.items() if k and isinstance(v, str)} for r in rows if r.get("path")
            }
    return {}


def _toml(text: str) -> str:
    escaped = "".join(
        f"\\u{ord(c):04x}" if ord(c) < 32 or ord(c) == 127 else "\\" + c if c in '"\\' else c for c in text
    )
    return f'"{escaped}"'
