"""A scripted server for OpenAI Responses and Google generateContent (JSON and SSE), in a thread; a smaller sister of
protocol_server.py, whose replies it plays: tool, tools, draft, final, http, with `thinking`, `say` and `usage`."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Sent:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass(kw_only=True)
class Others:
    """A running server: `openai_url` speaks Responses, `google_url` generateContent."""

    port: int
    sent: list[Sent] = field(default_factory=list[Sent])

    @property
    def google_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def openai_url(self) -> str:
        return f"{self.google_url}/v1"

    def requests(self) -> list[Sent]:
        return list(self.sent)


@contextmanager
def serve_others(script: Sequence[Reply]) -> Generator[Others]:
    """Plays `script`, one reply per request; a request after its end gets a 400."""
    others = Others(port=0)
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with lock:
                number = len(others.sent)
                others.sent.append(Sent(path=self.path, headers=dict(self.headers), body=body))
            reply: Reply = {"kind": "http", "status": 400, "message": "script_exhausted"}
            if number < len(script):
                reply = script[number]
            if reply["kind"] == "http":
                error = {"message": reply.get("message", "fault"), "code": reply["status"], "status": "FAULT"}
                self._answer(json.dumps({"error": error}).encode(), status=reply["status"])
            elif "generateContent" in self.path or "streamGenerateContent" in self.path:
                chunks = list(_google(reply, body, number))
                if "streamGenerateContent" in self.path:
                    events = b"".join(f"data: {json.dumps(c)}\r\n\r\n".encode() for c in chunks)
                    self._answer(events, kind="text/event-stream")
                else:
                    self._answer(json.dumps(_joined(chunks)).encode())
            elif body.get("stream"):
                self._answer(b"".join(_responses_events(_responses(reply, body, number))), kind="text/event-stream")
            else:
                self._answer(json.dumps(_responses(reply, body, number)).encode())

        def _answer(self, data: bytes, *, status: int = 200, kind: str = "application/json") -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    others.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield others
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _calls(reply: Reply, tools: dict[str, dict[str, Any]]) -> tuple[list[tuple[str, dict[str, Any]]], str]:
    """The calls of a reply, and its text."""
    text = reply.get("say", "")
    match reply["kind"]:
        case "tool":
            return [(reply["name"], reply["args"])], text
        case "tools":
            return [(c["name"], c["args"]) for c in reply["calls"]], text
        case "draft":
            answer = next((n for n, schema in tools.items() if "claims" in schema.get("properties", {})), None)
            if answer is None:
                return [], json.dumps(reply["draft"])
            return [(answer, reply["draft"])], text
        case _:
            return [], reply["text"]


def _usage(reply: Reply) -> dict[str, int]:
    made_up = {"input_tokens": 100, "output_tokens": 20, "cached_tokens": 0, "reasoning_tokens": 0}
    return {**made_up, **reply.get("usage", {})}


# OpenAI Responses.


def _responses(reply: Reply, body: dict[str, Any], number: int) -> dict[str, Any]:
    tools = {t["name"]: t["parameters"] for t in body.get("tools", []) if t.get("type") == "function"}
    calls, text = _calls(reply, tools)
    output: list[dict[str, Any]] = []
    if "text" in (thinking := reply.get("thinking", {})):
        summary = [{"type": "summary_text", "text": thinking["text"]}]
        sealed = thinking["signature"]
        output.append({"type": "reasoning", "id": f"rs_{number}", "summary": summary, "encrypted_content": sealed})
    if text:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        message = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed"}
        output.append({**message, "content": content})
    for n, (name, args) in enumerate(calls):
        call = {"type": "function_call", "id": f"fc_{number}_{n}", "call_id": f"call_{number}_{n}", "name": name}
        output.append({**call, "arguments": json.dumps(args), "status": "completed"})
    usage = _usage(reply)
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1767225600,
        "status": "completed",
        "model": body["model"],
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": usage["input_tokens"],
            "input_tokens_details": {"cached_tokens": usage["cached_tokens"]},
            "output_tokens": usage["output_tokens"],
            "output_tokens_details": {"reasoning_tokens": usage["reasoning_tokens"]},
            "total_tokens": usage["input_tokens"] + usage["output_tokens"],
        },
    }


def _responses_events(response: dict[str, Any]) -> Iterator[bytes]:
    count = iter(range(10_000))

    def event(name: str, **data: Any) -> bytes:
        data = {"type": name, "sequence_number": next(count), **data}
        return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()

    yield event("response.created", response={**response, "status": "in_progress", "output": [], "usage": None})
    for index, item in enumerate(response["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        match item["type"]:
            case "reasoning":
                yield event("response.output_item.added", output_index=index, item={**item, "summary": []})
                piece = {**place, "summary_index": 0}
                part = {"type": "summary_text", "text": ""}
                yield event("response.reasoning_summary_part.added", **piece, part=part)
                yield event("response.reasoning_summary_text.delta", **piece, delta=item["summary"][0]["text"])
                yield event("response.reasoning_summary_text.done", **piece, text=item["summary"][0]["text"])
            case "function_call":
                yield event("response.output_item.added", output_index=index, item={**item, "arguments": ""})
                yield event("response.function_call_arguments.delta", **place, delta=item["arguments"])
                yield event("response.function_call_arguments.done", **place, arguments=item["arguments"])
            case _:
                text = item["content"][0]["text"]
                yield event("response.output_item.added", output_index=index, item={**item, "content": []})
                piece = {**place, "content_index": 0}
                part = {"type": "output_text", "text": "", "annotations": []}
                yield event("response.content_part.added", **piece, part=part)
                yield event("response.output_text.delta", **piece, delta=text, logprobs=[])
                yield event("response.output_text.done", **piece, text=text, logprobs=[])
        yield event("response.output_item.done", output_index=index, item=item)
    yield event("response.completed", response=response)


# Google generateContent.


def _google(reply: Reply, body: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    tools: dict[str, dict[str, Any]] = {}
    for group in body.get("tools", []):
        for tool in group.get("functionDeclarations", []):
            tools[tool["name"]] = tool.get("parametersJsonSchema") or tool.get("parameters_json_schema") or {}
    calls, text = _calls(reply, tools)
    parts: list[dict[str, Any]] = []
    thinking = reply.get("thinking", {})
    if "text" in thinking:
        parts.append({"text": thinking["text"], "thought": True})
    if text:
        parts.append({"text": text})
    for n, (name, args) in enumerate(calls):
        part: dict[str, Any] = {"functionCall": {"id": f"fc-{number}-{n}", "name": name, "args": args}}
        if "text" in thinking and n == 0:
            part["thoughtSignature"] = thinking["signature"]
        parts.append(part)
    for at, part in enumerate(parts):
        last = at == len(parts) - 1
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": [part]}, "index": 0}
        chunk: dict[str, Any] = {"candidates": [candidate], "modelVersion": "scripted", "responseId": f"r{number}"}
        if last:
            usage = _usage(reply)
            candidate["finishReason"] = "STOP"
            chunk["usageMetadata"] = {
                "promptTokenCount": usage["input_tokens"],
                "cachedContentTokenCount": usage["cached_tokens"],
                "candidatesTokenCount": usage["output_tokens"] - usage["reasoning_tokens"],
                "thoughtsTokenCount": usage["reasoning_tokens"],
                "totalTokenCount": usage["input_tokens"] + usage["output_tokens"],
            }
        yield chunk


def _joined(chunks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    whole = json.loads(json.dumps(chunks[-1]))
    whole["candidates"][0]["content"]["parts"] = [c["candidates"][0]["content"]["parts"][0] for c in chunks]
    return whole
