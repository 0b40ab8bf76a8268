"""What a monitor may know, in Prometheus's form. Labels are routes, statuses and nothing that clients can invent."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Figures:
    """Counts of one server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        registry = self._registry
        self._requests = Counter("seqloom_requests", "Requests", ["route", "status"], registry=registry)
        self._seconds = Histogram(
            "seqloom_request_seconds", "Time to the last byte", ["route"], buckets=SECONDS, registry=registry
        )
        self._batches = Histogram("seqloom_batch_texts", "Texts answered together", buckets=SIZES, registry=registry)
        self._waiting = Gauge("seqloom_waiting_texts", "Texts that wait", registry=registry)
        self._reloads = Counter("seqloom_reloads", "Runs loaded anew", ["outcome"], registry=registry)

    def waiting_is(self, count: Callable[[], float]) -> None:
        self._waiting.set_function(count)

    def request(self, route: str, status: int, elapsed: float) -> None:
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(elapsed)

    def batch(self, texts: int) -> None:
        self._batches.observe(texts)

    def reload(self, outcome: str) -> None:
        self._reloads.labels(outcome).inc()

    def text(self) -> bytes:
        return generate_latest(self._registry)
