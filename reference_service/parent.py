"""Dying with the process that started us, however it dies."""

from __future__ import annotations

import os
import signal
import threading
import time

from .errors import StartError

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
WATCH_SECONDS = 0.1


def die_with(parent: int) -> None:
    """Arrange that this process is killed (SIGKILL) when process ``parent`` ends.

    The spawner gives its own pid. Without it the kernel's promise would have a hole: a parent
    that died before we asked is never reported. Raises StartError ``PARENT_GONE`` then.

    On Linux the signal is sent when the parent's *thread* that forked us ends. A spawner must
    start the service from a thread that lives as long as it wants the service to.
    """
    if not _ask_kernel():
        threading.Thread(target=_watch, args=(parent,), name="parent-watch", daemon=True).start()
    if os.getppid() != parent:
        raise StartError("PARENT_GONE", f"process {parent}, which is to be our parent, is not")


def _ask_kernel() -> bool:
    """Whether the kernel took on the watch; other systems than Linux have no such call."""
    import ctypes  # 3 ms that a service which stands on its own need not pay

    try:
        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (OSError, AttributeError):
        return False
    return bool(prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) == 0)


def _watch(parent: int) -> None:
    """Where the kernel does not tell, look: an orphan is given another parent."""
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)
