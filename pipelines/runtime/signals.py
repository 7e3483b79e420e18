"""Signals that wait until a training step is over, so that its state can be saved first."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class DeferredSignals:
    """The signal that came while signals were held back; a second one is not held."""

    def __init__(self) -> None:
        self.received: int | None = None
        self.handlers: dict[int, Any] = {}

    def deliver(self) -> None:
        """Do, once, what the signal that came would have done; nothing if none came."""
        received, self.received = self.received, None
        if received is not None:
            self._handle(received, None)

    def _hold(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            self._handle(number, frame)
        self.received = number

    def _handle(self, number: int, frame: FrameType | None) -> None:
        handler = self.handlers[number]
        if callable(handler):
            handler(number, frame)
        raise SystemExit(128 + number)


@contextmanager
def defer() -> Iterator[DeferredSignals]:
    """Hold back Ctrl-C, SIGTERM and SIGHUP for as long as the block lasts; main thread only."""
    deferred = DeferredSignals()
    if threading.current_thread() is not threading.main_thread():
        yield deferred
        return
    for number in map(int, SIGNALS):
        handler = signal.getsignal(number)
        if handler is not signal.SIG_IGN:  # nohup asks us to go on
            deferred.handlers[number] = signal.signal(number, deferred._hold)
    try:
        yield deferred
    finally:
        for held_back, handler in deferred.handlers.items():
            signal.signal(held_back, handler)
        deferred.deliver()  # whatever else has ended the block
