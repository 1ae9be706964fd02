"""The `agent` strategy: a model in the budgeted loop with the tools of a corpus; the loop itself is in `loop`."""

from __future__ import annotations

from collections.abc import Sequence

from .config import SourceConfig
from .loop import Conversation, Outcome, converse
from .prompts import agent_instructions, prefetch_prompt, question_prompt
from .single import Retrieved


async def run_agent(
    conversation: Conversation,
    *,
    sources: Sequence[SourceConfig],
    prefetched: Retrieved | None = None,
    uncovered: Sequence[str] = (),
) -> Outcome:
    """Answers the conversation's question with its toolbox. Raises nothing but cancellation.

    `prefetched` are passages of a first retrieval that is in the ledger already: they go into the prompt whole, and the
    model searches only for what they do not show; `uncovered` names the parts that they are known to leave open.
    """
    prompt = question_prompt(conversation.question)
    if prefetched is not None:
        prompt = prefetch_prompt(
            conversation.question, prefetched.passages, notes=prefetched.notes, uncovered=uncovered
        )
    return await converse(conversation, prompt=prompt, instructions=agent_instructions(sources))
