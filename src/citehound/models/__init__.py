"""Opens a model by its name with price and window; imports a provider only when one is named, and sends nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ..budget import FREE, Budget, Price
from ..config import ModelConfig
from ..errors import ConfigError

if TYPE_CHECKING:
    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings

    from ..index import Lexicon

OFFLINE = "offline"
OFFLINE_WARNING = "answered by the offline model: it quotes and does not judge"
_KEYLESS = frozenset({"ollama", "test"})


Structured = Literal["tool", "native", "text"]


def _no_settings() -> ModelSettings:
    return {}


@dataclass(frozen=True, kw_only=True)
class OpenedModel:
    """A model ready to be asked. `price` None means unknown; `window` is its context in tokens, None unknown."""

    model: Model
    name: str
    price: Price | None
    window: int | None = None
    settings: ModelSettings = field(default_factory=_no_settings)
    """What every request to it is sent with: prompt caching and time-outs."""
    stream: bool = False
    """Its replies can be read as they come."""
    structured: Structured = "tool"
    """How a draft is asked for: a call of an output tool, a native schema, or the strict text form."""
    tools: bool = True
    """It can call tools. False: only strategies without tools."""

    @property
    def free(self) -> bool:
        return self.price == FREE


def open_model(config: ModelConfig, lexicon: Lexicon | None = None) -> OpenedModel:
    """The model that `config.name` names: 'offline', or 'provider:name'.

    Raises ConfigError for an unknown name, a provider whose package is missing, or a key that is not set.
    """
    if config.name == OFFLINE:
        if lexicon is None:
            raise ConfigError("the offline model needs an index: run `citehound index` first")
        from .planner import OfflineModel

        return OpenedModel(model=OfflineModel(lexicon), name=OFFLINE, price=FREE)
    provider, _, name = config.name.partition(":")
    if not provider or not name:
        raise ConfigError(
            f"model {config.name!r} is not known: use 'offline' or 'provider:name', as in 'anthropic:claude-sonnet-5'"
        )
    model = _provider_model(config, provider, name)
    _no_sdk_retries(model)
    from .prices import look_up

    known = look_up(provider, name)
    price, window = (known.price, known.window) if known else (None, None)
    if provider in _KEYLESS:
        price = FREE
    if config.price_input is not None and config.price_output is not None:
        price = Price(input=config.price_input, output=config.price_output, cached=config.price_cached)
    return OpenedModel(model=model, name=config.name, price=price, window=window)


def require_price(model: OpenedModel, budget: Budget) -> None:
    """Raises ConfigError when dollars are capped and the price is unknown, so that no cap is promised in vain."""
    if model.price is None and budget.max_dollars is not None:
        raise ConfigError(
            f"the price of {model.name!r} is not known, so max_dollars cannot be kept: set price_input and "
            "price_output (dollars per million tokens) under [model], or lift the cap with max_dollars = 'none'"
        )


def _provider_model(config: ModelConfig, provider: str, name: str) -> Model:
    from pydantic_ai.exceptions import UserError
    from pydantic_ai.models import infer_model

    try:
        if config.base_url is not None or provider == "openai-compatible":
            if config.base_url is None:
                raise ConfigError(f"model {config.name!r} needs base_url under [model]: the address of its API")
            return _compatible_model(config.base_url, name)
        return infer_model(config.name)
    except ImportError as problem:
        extra = "openai" if provider in ("openai-compatible", "ollama") else provider.split("-")[0]
        raise ConfigError(
            f"model {config.name!r} needs a package that is not installed: pip install 'pydantic-ai-slim[{extra}]'"
        ) from problem
    except (UserError, ValueError) as problem:
        raise ConfigError(f"model {config.name!r} cannot be opened: {' '.join(str(problem).split())}") from problem


def _compatible_model(base_url: str, name: str) -> Model:
    import os

    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    key = os.environ.get("OPENAI_API_KEY") or "none"
    return OpenAIChatModel(name, provider=OpenAIProvider(base_url=base_url, api_key=key))


def _no_sdk_retries(model: Model) -> None:
    """Our own retries reserve money first; a client that retries by itself would spend behind the meter's back."""
    client = getattr(model, "client", None)
    if client is not None and isinstance(getattr(client, "max_retries", None), int):
        client.max_retries = 0
