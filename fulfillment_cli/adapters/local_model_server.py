"""The child process that serves a GGUF file over OpenAI-compatible HTTP, on loopback.

``python -P -m fulfillment_cli.adapters.local_model_server MODEL PARENT_PID``; the bearer token
comes in ``FULFIL_LOCAL_MODEL_KEY``. Prints one JSON line when it is ready, and ends with its
parent, however that ends.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys

KEY_VARIABLE = "FULFIL_LOCAL_MODEL_KEY"

CONTEXT_TOKENS = 4096

# The packaged weights are a base model with no chat template of their own. Plain pairs are what
# it continues best (measured), and the protocol stays chat completions.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role == 'user' %}Text: {{ message.content }}\n"
    "{% elif message.role == 'assistant' %}JSON: {{ message.content }}\n\n{% endif %}"
    "{% endfor %}JSON:"
)

_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; end now where it already has.

    Linux delivers it when the *thread* that forked us ends, so we are started from a thread that
    lives as long as we are to.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)


def main() -> None:
    """Serve until killed."""
    model, parent = sys.argv[1], int(sys.argv[2])
    die_with(parent)
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.api_keys = [os.environ.pop(KEY_VARIABLE)]
    parameters.n_ctx = CONTEXT_TOKENS
    parameters.n_parallel = 1
    parameters.use_jinja = True
    parameters.verbosity = -1
    if len(sys.argv) > 3:
        parameters.chat_template = CHAT_TEMPLATE
    server = xllamacpp.Server(parameters)
    print(json.dumps({"origin": server.listening_address}), flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
