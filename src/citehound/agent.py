"""The `agent` strategy: a model in the budgeted loop with the tools of a corpus; the loop itself is in `loop`."""

from __future__ import annotations

from collections.abc import Sequence

from .config import SourceConfig
from .loop import Conversation, Outcome, converse
from .prompts import agent_instructions


async def run_agent(conversation: Conversation, *, sources: Sequence[SourceConfig]) -> Outcome:
    """Answers the conversation's question with its toolbox. Raises nothing but cancellation."""
    return await converse(conversation, prompt=conversation.question, instructions=agent_instructions(sources))
