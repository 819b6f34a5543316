"""The child process: llama.cpp's OpenAI-compatible HTTP server on a loopback port.

Started by :mod:`fulfillment_cli.adapters.local_model` as a file of its own (it imports nothing of
the package). Prints one JSON line when it is ready, ``{"origin": ...}``, or when it gives up,
``{"error": ...}``; then serves until its standard input ends, which is when its parent is gone.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import signal
import sys
from typing import Any, TextIO

KEY_VARIABLE = "FULFIL_LOCAL_MODEL_KEY"

# The packaged weights are a base model without a chat template. This one turns the messages into
# plain pairs, which such a model continues best (docs/decisions has the measurements); the
# system message, written for models that follow instructions, is left out. A file named by
# model_path brings its own template where it has one.
PAIRS_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}Text: {{ message['content'] }}\nJSON: "
    "{% elif message['role'] == 'assistant' %}{{ message['content'] }}\n\n"
    "{% endif %}{% endfor %}"
)


def main() -> int:
    """Serve until standard input ends; 1 where the model cannot be loaded."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is for the parent
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", required=True)
    parser.add_argument("--alias", required=True)
    parser.add_argument("--parent", type=int, required=True, help="pid that this dies with")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--context", type=int, required=True, help="tokens")
    parser.add_argument("--pairs", action="store_true", help="use the template of plain pairs")
    options = parser.parse_args()
    _die_with(options.parent)
    ready = _keep_stdout()
    try:
        server = _serve(options)
    except Exception as error:  # noqa: BLE001 - whatever llama.cpp raises is told to the parent
        _tell(ready, {"error": str(error) or type(error).__name__})
        return 1
    _tell(ready, {"origin": server.listening_address})
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    os._exit(0)  # no wait for a request in flight: nobody is left to read its answer


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent is killed, even while it is loading."""
    if sys.platform == "linux":
        set_parent_death_signal = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)


def _keep_stdout() -> TextIO:
    """The real standard output; what llama.cpp prints to it goes to standard error from here."""
    ready = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return ready


def _tell(ready: TextIO, value: dict[str, str]) -> None:
    with contextlib.suppress(BrokenPipeError), ready:
        print(json.dumps(value), file=ready, flush=True)


def _serve(options: argparse.Namespace) -> Any:
    from xllamacpp import CommonParams, Server

    params = CommonParams()
    params.model.path = options.weights
    params.model_alias = {options.alias}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [os.environ.pop(KEY_VARIABLE)]
    params.n_ctx = options.context
    params.n_parallel = 1
    params.cpuparams.n_threads = options.threads
    params.cpuparams_batch.n_threads = options.threads
    params.n_gpu_layers = 0
    params.cache_ram_mib = 0
    params.warmup = False
    params.verbosity = -1
    params.ui = False
    params.endpoint_slots = False  # it would show the prompts to every process of this machine
    params.offline = True
    if options.pairs:
        params.chat_template = PAIRS_TEMPLATE
    return Server(params)


if __name__ == "__main__":
    sys.exit(main())
