"""A plain loop on Anthropic's SDK, with Citehound's tools and its check of the answer.

ANTHROPIC_API_KEY=... python examples/loop.py citehound.toml "Does the contract with Alpha comply?"
"""

import json
import os
import sys
from typing import Any

import anthropic

from citehound import Assistant
from citehound.access import OWNER
from citehound.session import CheckedAnswer, Session

MOST_STEPS = 16


def answer(question: str, session: Session, client: anthropic.Anthropic, model: str) -> CheckedAnswer | None:
    """Lets the model search and read until it answers, at most so many steps; what fails goes back to it once."""
    tools: list[Any] = [
        {"name": tool.name, "description": tool.description, "input_schema": tool.parameters} for tool in session.tools
    ]
    messages: list[Any] = [{"role": "user", "content": question}]
    sent_back = False
    for _ in range(MOST_STEPS):
        reply = client.messages.create(
            model=model, max_tokens=4000, system=session.instructions, tools=tools, messages=messages
        )
        messages.append({"role": "assistant", "content": reply.content})
        calls = [block for block in reply.content if block.type == "tool_use"]
        if calls:
            results = [(block.id, session.call_sync(block.name, block.input)) for block in calls]
            messages.append({"role": "user", "content": [as_result(ident, result) for ident, result in results]})
            continue
        checked = session.check_answer(
            "".join(block.text for block in reply.content if block.type == "text"), question=question
        )
        if sent_back or not checked.feedback:
            return checked
        sent_back = True
        messages.append({"role": "user", "content": "This failed the check:\n" + "\n".join(checked.feedback)})
    return None


def as_result(ident: str, result: dict[str, Any]) -> dict[str, Any]:
    said = json.dumps(result, ensure_ascii=False)
    return {"type": "tool_result", "tool_use_id": ident, "content": said, "is_error": "error" in result}


if __name__ == "__main__":
    with Assistant.open(sys.argv[1]) as assistant:
        session = Session(assistant.corpus, principal=OWNER)
        model = os.environ.get("ANTHROPIC_MODEL", "claude-opus-5-5")
        checked = answer(sys.argv[2], session, anthropic.Anthropic(), model)
    if checked is None:
        sys.exit(f"there is no answer after {MOST_STEPS} steps")
    print(f"{checked.text}\nstatus: {checked.status}")
    sys.exit(0 if checked.status in ("complete", "not_found") else 3)
