"""A scripted chat-completions endpoint: the only fake of the fast suite, and over real HTTP.

In a test: ``with ScriptedModel() as model: model.base_url``. As a process of its own (for child
processes and benchmarks): ``python tests/scripted_model.py`` prints one JSON line with its
``base_url`` and serves until it is killed.

Without a script it answers rightly: the order of a generated request, or the facts of the state
that a session question comes with.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Request = dict[str, Any]


@dataclass
class Reply:
    """One HTTP answer.

    ``body`` is JSON-encoded unless it is bytes; ``delay`` in seconds before it is sent; ``drip``
    in seconds between its single bytes; ``endless`` sends chunks for as long as the client reads.
    """

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    endless: bool = False
    drip: float = 0.0


def completion(content: str | None, **message: Any) -> dict[str, Any]:
    """A chat completion with one choice; ``finish_reason`` and ``usage`` may be overridden."""
    finish = message.pop("finish_reason", "stop")
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 0,
        "model": "scripted",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish,
                "message": {"role": "assistant", "content": content, **message},
            }
        ],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }


def right_answer(request: Request) -> Reply:
    """What a model that makes no mistake would say."""
    texts = [message["content"] for message in request["messages"] if message["role"] == "user"]
    for text in reversed(texts):  # behind a refused answer stands a correction
        state = re.search(r"Current state: (\{.*\})", text)
        if state:
            return Reply(completion(state.group(1)))
        order = re.search(
            r"SKU: (?P<sku>[\w-]+); quantity: (?P<quantity>\d+); "
            r"delivery address: (?P<address>.+)\.",
            text,
        )
        if order:
            answer = {**order.groupdict(), "quantity": int(order["quantity"])}
            return Reply(completion(json.dumps(answer)))
    return Reply(completion("I do not know."))


Script = Callable[[Request], Reply]


class ScriptedModel:
    """The endpoint, on a port of its own.

    Attributes:
        requests: The JSON bodies that arrived, in order.
        authorizations: Their Authorization headers.
        headers: All of their headers, names in lower case.
    """

    def __init__(self, *replies: Reply, script: Script = right_answer, port: int = 0) -> None:
        self.requests: list[Request] = []
        self.authorizations: list[str] = []
        self.headers: list[dict[str, str]] = []
        self._queue = list(replies)
        self._script = script
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def log_message(self, format: str, *arguments: object) -> None:
                pass

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                request = json.loads(self.rfile.read(length))
                headers = {name.lower(): value for name, value in self.headers.items()}
                try:
                    self._send(model._reply(request, headers))
                except OSError:
                    self.close_connection = True  # the client is gone

            def _send(self, reply: Reply) -> None:
                model._stopped.wait(reply.delay)
                body = reply.body
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(reply.status)
                for name, value in ({"Content-Type": "application/json"} | reply.headers).items():
                    self.send_header(name, value)
                if reply.endless:
                    self.send_header("Connection", "close")
                    self.end_headers()
                    while not model._stopped.is_set():
                        self.wfile.write(content or b" " * 65536)
                        self.wfile.flush()
                    return
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if reply.drip:
                    for byte in content:
                        self.wfile.write(bytes([byte]))
                        self.wfile.flush()
                        model._stopped.wait(reply.drip)
                    return
                self.wfile.write(content)
                self.wfile.flush()

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def base_url(self) -> str:
        """What goes into the configuration."""
        return f"{self.origin}/v1"

    def script(self, *replies: Reply, then: Script = right_answer) -> None:
        """Answer with these first, then by the script."""
        self._queue, self._script = list(replies), then

    def _reply(self, request: Request, headers: dict[str, str]) -> Reply:
        with self._lock:
            self.requests.append(request)
            self.headers.append(headers)
            self.authorizations.append(headers.get("authorization", ""))
            return self._queue.pop(0) if self._queue else self._script(request)

    def config(self, *origins: str, **model: Any) -> str:
        """A ditto.yaml (JSON is YAML) whose only provider is this endpoint."""
        return json.dumps(
            {
                "provider": "scripted",
                "providers": {
                    "scripted": {
                        "kind": "openai-compatible",
                        "base_url": self.base_url,
                        "model": "scripted",
                    }
                },
                "model": model,
                "sandbox": {"network": [self.origin, *origins]},
            }
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


if __name__ == "__main__":
    with ScriptedModel() as running:
        print(json.dumps({"base_url": running.base_url, "origin": running.origin}), flush=True)
        while True:
            time.sleep(3600)
