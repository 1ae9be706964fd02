"""Opens a model by its name with price and window; imports a provider only when one is named, and sends nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, cast

from ..budget import FREE, Budget, Price
from ..config import ModelConfig
from ..errors import ConfigError
from . import providers
from .prices import look_up

if TYPE_CHECKING:
    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings

    from ..index import Lexicon

OFFLINE = "offline"
OFFLINE_WARNING = "answered by the offline model: it quotes and does not judge"


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
    provider, name = providers.split_name(config.name)
    model = providers.build(config, provider, name)
    providers.no_sdk_retries(model)
    providers.remember_schemas(model)
    known = look_up(provider, name)
    price = known.price if known else None
    if config.price is not None:
        given = config.price
        price = Price(input=given.input, output=given.output, cached=given.cached, cache_write=given.cache_write)
    elif price is None and providers.is_own(provider, providers.address_of(config, provider)):
        price = FREE
    return OpenedModel(
        model=model,
        name=config.name,
        price=price,
        window=config.window or (known.window if known else None) or model.profile.get("context_window"),
        settings=providers.settings_for(config, model),
        stream=config.stream and providers.streams(model),
        structured=_structured(config, model),
        tools=_tools(config, model),
    )


def open_small(config: ModelConfig, lexicon: Lexicon | None = None) -> OpenedModel:
    """The model for small decisions: `config.small`, else the one that `config.name` names.

    `base_url`, `api_key_env` and `window` are the main model's: they hold for a small one of the same provider only.
    """
    thinking = "auto" if config.thinking == "auto" else "minimal"
    if config.small is None or config.small == config.name:
        return open_model(replace(config, thinking=thinking), lexicon)
    shared = config.small.partition(":")[0] == config.name.partition(":")[0]
    return open_model(
        replace(
            config,
            name=config.small,
            small=None,
            base_url=config.base_url if shared else None,
            api_key_env=config.api_key_env if shared else None,
            window=None,
            price=config.small_price,
            thinking=thinking,
        ),
        lexicon,
    )


def require_price(model: OpenedModel, budget: Budget, *, table: str = "model.price") -> None:
    """Raises ConfigError when dollars are capped and the price is unknown, so that no cap is promised in vain.

    `table` names where its price goes: 'model.price', or 'model.small_price' for the small model.
    """
    if model.price is None and budget.max_dollars is not None:
        raise ConfigError(
            f"the price of {model.name!r} is not known, so max_dollars cannot be kept: put `[{table}]` with "
            "`input = 3.0` and `output = 15.0` (dollars per million tokens, here as an example; 0 and 0 for a model "
            'of your own) into citehound.toml, or lift the cap with `max_dollars = "none"` under [budget]'
        )


def _tools(config: ModelConfig, model: Model) -> bool:
    return model.profile.get("supports_tools", True) if config.tools is None else config.tools


def _structured(config: ModelConfig, model: Model) -> Structured:
    """As configured, else the form that the provider keeps to best.

    A call of the output tool can be forced with most models. One that cannot be forced, or that would stop thinking,
    is given a native schema instead; one that has neither answers in the strict text form.
    """
    profile = model.profile
    tools = _tools(config, model)
    schema = profile.get("supports_json_schema_output", False)
    if schema and tools and model.system.startswith("google"):
        schema = bool(cast("dict[str, object]", profile).get("google_supports_tool_combination", False))
    if config.structured == "native" and not schema:
        raise ConfigError(
            f"model {config.name!r} takes no schema for its answer beside tools: set structured to 'auto', 'tool' or "
            "'text' under [model]"
        )
    if config.structured in ("tool", "native", "text"):
        return config.structured
    if not tools:
        return "native" if schema and config.tools is None else "text"
    thinks = profile.get("thinking_always_enabled", False) or profile.get("thinking_enabled_by_default", False)
    forced = profile.get("supports_forced_tool_choice", True) and not (
        thinks and profile.get("forced_tool_choice_disables_thinking", False)
    )
    return "native" if schema and not forced else "tool"
