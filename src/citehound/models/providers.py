"""The providers: how each is named, keyed, addressed and installed; builds pydantic-ai models, and sends nothing."""

from __future__ import annotations

import difflib
import importlib
import inspect
import ipaddress
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from ..config import ModelConfig
from ..errors import ConfigError
from .prices import provider_of

if TYPE_CHECKING:
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.providers import Provider
    from pydantic_ai.settings import ModelSettings

COMPATIBLE = "openai-compatible"
CONNECT_SECONDS = 5


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One provider. `keys`: the variables its key may stand in, the first set one counts; none means: needs no key."""

    extra: str
    keys: tuple[str, ...] = ()
    address: str | None = None
    """Where a server of one's own listens by default."""
    addresses: tuple[str, ...] = ()
    """Variables that hold another address."""
    keyless: bool = False
    """Works without a key: a server of one's own, or one that finds its credentials elsewhere."""


PROVIDERS: Mapping[str, Spec] = {
    "anthropic": Spec(extra="anthropic", keys=("ANTHROPIC_API_KEY",), addresses=("ANTHROPIC_BASE_URL",)),
    "openai": Spec(extra="openai", keys=("OPENAI_API_KEY",), addresses=("OPENAI_BASE_URL",)),
    "openai-chat": Spec(extra="openai", keys=("OPENAI_API_KEY",), addresses=("OPENAI_BASE_URL",)),
    "openai-responses": Spec(extra="openai", keys=("OPENAI_API_KEY",), addresses=("OPENAI_BASE_URL",)),
    "google": Spec(extra="google", keys=("GOOGLE_API_KEY", "GEMINI_API_KEY"), addresses=("GOOGLE_GEMINI_BASE_URL",)),
    "google-cloud": Spec(extra="google", keyless=True),
    "ollama": Spec(
        extra="openai",
        keys=("OLLAMA_API_KEY",),
        address="http://localhost:11434/v1",
        addresses=("OLLAMA_BASE_URL",),
        keyless=True,
    ),
    "vllm": Spec(
        extra="openai",
        keys=("VLLM_API_KEY",),
        address="http://localhost:8000/v1",
        addresses=("VLLM_BASE_URL",),
        keyless=True,
    ),
    "llama.cpp": Spec(
        extra="openai",
        keys=("LLAMA_API_KEY",),
        address="http://localhost:8080/v1",
        addresses=("LLAMA_BASE_URL",),
        keyless=True,
    ),
    COMPATIBLE: Spec(extra="openai", keys=("OPENAI_API_KEY",), addresses=("OPENAI_BASE_URL",), keyless=True),
    "azure": Spec(extra="openai", keys=("AZURE_OPENAI_API_KEY",), addresses=("AZURE_OPENAI_ENDPOINT",)),
    "bedrock": Spec(extra="bedrock", keys=("AWS_BEARER_TOKEN_BEDROCK",), keyless=True),
    "mistral": Spec(extra="mistral", keys=("MISTRAL_API_KEY",)),
    "groq": Spec(extra="groq", keys=("GROQ_API_KEY",), addresses=("GROQ_BASE_URL",)),
    "cohere": Spec(extra="cohere", keys=("CO_API_KEY",), addresses=("CO_BASE_URL",)),
    "huggingface": Spec(extra="huggingface", keys=("HF_TOKEN",)),
    "deepseek": Spec(extra="openai", keys=("DEEPSEEK_API_KEY",)),
    "openrouter": Spec(extra="openai", keys=("OPENROUTER_API_KEY",)),
    "together": Spec(extra="openai", keys=("TOGETHER_API_KEY",)),
    "fireworks": Spec(extra="openai", keys=("FIREWORKS_API_KEY",)),
    "cerebras": Spec(extra="openai", keys=("CEREBRAS_API_KEY",)),
    "moonshotai": Spec(extra="openai", keys=("MOONSHOTAI_API_KEY",), addresses=("MOONSHOTAI_BASE_URL",)),
    "alibaba": Spec(extra="openai", keys=("ALIBABA_API_KEY", "DASHSCOPE_API_KEY")),
    "sambanova": Spec(extra="openai", keys=("SAMBANOVA_API_KEY",), addresses=("SAMBANOVA_BASE_URL",)),
    "nebius": Spec(extra="openai", keys=("NEBIUS_API_KEY",)),
    "ovhcloud": Spec(extra="openai", keys=("OVHCLOUD_API_KEY",)),
    "heroku": Spec(extra="openai", keys=("HEROKU_INFERENCE_KEY",), addresses=("HEROKU_INFERENCE_URL",)),
    "vercel": Spec(extra="openai", keys=("VERCEL_AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN")),
    "zai": Spec(extra="openai", keys=("ZAI_API_KEY",)),
}
_ALIASES = {
    "google-gla": "google",
    "google-vertex": "google-cloud",
    "gemini": "google",
    "claude": "anthropic",
    "llamacpp": "llama.cpp",
    "llama-cpp": "llama.cpp",
}
_LOCAL = frozenset({"ollama", "vllm", "llama.cpp"})
"""Servers that people run themselves."""


def split_name(text: str) -> tuple[str, str]:
    """(provider, model) of 'provider:model'. Raises ConfigError, with the nearest known name."""
    provider, _, name = text.partition(":")
    provider = _ALIASES.get(provider, provider)
    if provider in PROVIDERS and name.strip():
        return provider, name.strip()
    if provider in PROVIDERS:
        raise ConfigError(f"model {text!r} names no model: write '{provider}:' and the model's name")
    hint = _nearest(provider, name) or "use 'offline' or 'provider:name', as in 'anthropic:claude-sonnet-5'"
    raise ConfigError(f"model {text!r} is not known: {hint}; providers: {', '.join(PROVIDERS)}")


def _nearest(provider: str, name: str) -> str | None:
    """A question that names what was probably meant."""
    if not name:
        from pydantic_ai.models import known_model_names

        known = [k for k in known_model_names() if not k.startswith("gateway/") and k.partition(":")[0] in PROVIDERS]
        models = {k.partition(":")[2]: k for k in reversed(sorted(known))}
        near = difflib.get_close_matches(provider.lower(), models, n=1, cutoff=0.75)
        maker = provider_of(provider)
        if maker in PROVIDERS:
            return f"did you mean '{maker}:{provider}'?"
        return f"did you mean '{models[near[0]]}'?" if near else None
    near = difflib.get_close_matches(provider.lower(), [*PROVIDERS, *_ALIASES], n=1, cutoff=0.6)
    return f"did you mean '{_ALIASES.get(near[0], near[0])}:{name}'?" if near else None


def address_of(config: ModelConfig, provider: str) -> str | None:
    """The address that was given or is usual for a server of one's own; None: the provider's public one."""
    spec = PROVIDERS[provider]
    given = config.base_url or next((v for n in spec.addresses if (v := os.environ.get(n, "").strip())), None)
    return (given or spec.address or "").rstrip("/") or None


def key_variables(config: ModelConfig, provider: str) -> tuple[str, ...]:
    """The environment variables in which the key is looked for, in this order."""
    return (config.api_key_env,) if config.api_key_env else PROVIDERS[provider].keys


def key_of(config: ModelConfig, provider: str) -> str | None:
    """The key, from the environment only."""
    names = key_variables(config, provider)
    return next((value for n in names if (value := os.environ.get(n, "").strip())), None)


def needs_key(config: ModelConfig, provider: str) -> bool:
    """False for servers of one's own, and for whatever listens on this machine."""
    return not PROVIDERS[provider].keyless and not is_here(address_of(config, provider))


def is_here(address: str | None) -> bool:
    """True for an address on this machine."""
    host = _host(address)
    if host is None:
        return False
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def is_own(provider: str, address: str | None) -> bool:
    """True for a model server of one's own on this machine or a private network: nobody bills for its tokens."""
    host = _host(address)
    if provider not in _LOCAL or host is None:
        return False
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return "." not in host or host.endswith((".localhost", ".local", ".internal", ".lan"))


def _host(address: str | None) -> str | None:
    try:
        return urlsplit(address or "").hostname
    except ValueError:
        return None


def build(config: ModelConfig, provider: str, name: str) -> Model:
    """The pydantic-ai model. Raises ConfigError when its package or its key is missing, or the address is no use."""
    from pydantic_ai.exceptions import UserError

    full = f"{provider}:{name}"
    address = address_of(config, provider)
    if address is None and provider == COMPATIBLE:
        raise ConfigError(f"model {full!r} needs base_url under [model]: the address of its API")
    if address is not None and (urlsplit(address).scheme not in ("http", "https") or _host(address) is None):
        raise ConfigError(f"model {full!r} has the base_url {address!r}: write it as http://HOST:PORT/v1 or https://…")
    key = key_of(config, provider)
    if key is None and needs_key(config, provider):
        names = " or ".join(key_variables(config, provider))
        raise ConfigError(f"model {full!r} needs a key: set {names} in the environment, or use --model offline")
    try:
        return _model(config, provider, name, address=address, key=key)
    except ImportError as problem:
        extra = PROVIDERS[provider].extra
        raise ConfigError(
            f"model {full!r} needs a package that is not installed: pip install 'citehound[{extra}]'"
        ) from problem
    except (UserError, ValueError, TypeError) as problem:
        raise ConfigError(f"model {full!r} cannot be opened: {' '.join(str(problem).split())}") from problem


def _model(config: ModelConfig, provider: str, name: str, *, address: str | None, key: str | None) -> Model:
    from pydantic_ai.models import infer_model
    from pydantic_ai.providers import infer_provider_class

    if provider in (COMPATIBLE, "llama.cpp"):
        from pydantic_ai.providers.openai import OpenAIProvider

        return _chat(name, OpenAIProvider(base_url=address, api_key=key or "none"))
    if provider == "bedrock":
        return _bedrock(config, name, address=address)
    made = infer_provider_class(provider)
    takes = inspect.signature(made.__init__).parameters
    options: dict[str, Any] = {}
    if key is not None or (address is not None and not needs_key(config, provider)):
        options["api_key"] = key or "none"
    if address is not None:
        parameter = next((p for p in ("base_url", "azure_endpoint", "api_base") if p in takes), None)
        if parameter is None:
            raise ConfigError(f"{provider} takes no base_url: use '{COMPATIBLE}:{name}' for another address")
        options[parameter] = address
    built = made(**options)
    if provider in ("ollama", "vllm"):
        return _chat(name, built)
    if provider == "openai" and address is not None and _host(address) != "api.openai.com":
        return _chat(name, built)  # what stands in for OpenAI speaks Chat Completions, and seldom Responses
    if provider == "anthropic":
        from .anthropic import LenientAnthropicModel

        return LenientAnthropicModel(name, provider=built)
    return infer_model(f"{provider}:{name}", provider_factory=lambda _: built)


def _chat(name: str, provider: Provider[Any]) -> Model:
    from pydantic_ai.models.ollama import OllamaModel
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile

    # Every server knows max_tokens; one that ignores max_completion_tokens would write without end.
    profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)
    kind = OllamaModel if provider.name == "ollama" else OpenAIChatModel
    return kind(name, provider=provider, profile=profile)


def _bedrock(config: ModelConfig, name: str, *, address: str | None) -> Model:
    boto3: Any = importlib.import_module("boto3")
    botocore: Any = importlib.import_module("botocore.config")
    from pydantic_ai.models.bedrock import BedrockConverseModel
    from pydantic_ai.providers.bedrock import BedrockProvider

    once = botocore.Config(
        retries={"total_max_attempts": 1}, connect_timeout=CONNECT_SECONDS, read_timeout=math.ceil(config.timeout)
    )
    try:
        client = boto3.client("bedrock-runtime", config=once, endpoint_url=address)
    except importlib.import_module("botocore.exceptions").NoRegionError as problem:
        raise ConfigError(f"model 'bedrock:{name}' needs a region: set AWS_DEFAULT_REGION") from problem
    return BedrockConverseModel(name, provider=BedrockProvider(bedrock_client=client))


def settings_for(config: ModelConfig, model: Model) -> ModelSettings:
    """What each request is sent with: one attempt only, a limit on silence, the prompt cache, and how much to think."""
    settings: ModelSettings = {"timeout": config.timeout, "cache": True}
    if not _counts_retries(model):  # else the client does it, and a request that says so would be sent by a copy of it
        settings["max_retries"] = 0
    profile = model.profile
    thinks = profile.get("thinking_always_enabled", False) or profile.get("thinking_enabled_by_default", False)
    if config.thinking != "auto" and thinks:
        settings["thinking"] = cast("Any", config.thinking)
        budget = _GEMINI_TOKENS.get(config.thinking)
        if model.system.startswith("google") and not profile.get("google_supports_thinking_level", True) and budget:
            # Gemini 2.5 takes tokens, and "low" stands for more of them than a turn may have in all.
            cast("dict[str, Any]", settings)["google_thinking_config"] = {"thinking_budget": budget}
    return settings


_GEMINI_TOKENS = {"minimal": 128, "low": 512}


def no_sdk_retries(model: Model) -> None:
    """Our own retries reserve money first; a client that retries by itself would spend behind the meter's back."""
    if _counts_retries(model):
        cast("Any", model).client.max_retries = 0


def _counts_retries(model: Model) -> bool:
    """True for a client that retries as often as an attribute of its own says."""
    return isinstance(getattr(getattr(model, "client", None), "max_retries", None), int)


def remember_schemas(model: Model, *, most: int = 8) -> None:
    """Tools are turned into a provider's schemas once, not for every request: that takes as long as sending one."""
    customize = model.customize_request_parameters
    known: list[tuple[ModelRequestParameters, ModelRequestParameters]] = []

    def remembered(model_request_parameters: ModelRequestParameters) -> ModelRequestParameters:
        for given, made in known:
            if given == model_request_parameters:
                return made
        made = customize(model_request_parameters)
        known[:] = [*known[-most + 1 :], (model_request_parameters, made)]
        return made

    model.customize_request_parameters = remembered


def streams(model: Model) -> bool:
    """True when replies can be read as they come."""
    from pydantic_ai.models import Model as Base

    return type(model).request_stream is not Base.request_stream
