"""A group of several processes: see `group.py` for what it promises."""

from __future__ import annotations

import atexit
import json
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import accumulate
from types import TracebackType
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.function import FunctionCtx
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from seqloom.errors import SeqloomError
from seqloom.ranks.group import ALONE, Group
from seqloom.ranks.launch import Launch, launched
from seqloom.ranks.meeting import LOOK, meet
from seqloom.ranks.share import Share
from seqloom.ranks.watch import BEAT, GRACE, Watch, ending
from seqloom.shapes import Tensor

T = TypeVar("T")
TIMEOUT = 120.0  # seconds, until the recipe is known
STUCK = 10  # times the timeout: a rank that lives but does not come
BUCKET = 1 << 24  # numbers that are summed at a time
GOES_ON = "the same command goes on from the last checkpoint; torchrun --max-restarts 3 does so by itself"
REASONS = (None, "preempted", "interrupted")


@contextmanager
def joined(fix: str = GOES_ON) -> Iterator[Group]:
    """The group that this process was launched into, or the one that is alone; `fix`: what to do if a rank is lost."""
    launch = launched()
    if launch is None:
        yield ALONE
        return
    with Several(launch, fix) as group:
        yield group


class Several(Group):
    """`with Several(launch) as group:` meets the others, and tells them how this process ended."""

    def __init__(self, launch: Launch, fix: str = GOES_ON) -> None:
        self.launch, self.fix = launch, fix
        self.rank, self.size = launch.rank, launch.size
        self._turns = 0  # of `gather`
        self._vote: tuple[Tensor, dist.Work | None] | None = None

    def __enter__(self) -> Several:
        if torch.cuda.is_available():
            torch.cuda.set_device(self.launch.local % torch.cuda.device_count())
        launch, waits = self.launch, timedelta(seconds=STUCK * TIMEOUT)
        own = launch.leads and not launch.hosted
        try:
            first = TCPStore(launch.address, launch.port, None, own, waits, wait_for_workers=False)
            second = TCPStore(launch.address, launch.port, None, False, waits, wait_for_workers=False)
        except RuntimeError as error:
            what = f"rank {self.rank} cannot meet the others at {launch.address}:{launch.port}: {_first_line(error)}"
            fix = "check MASTER_ADDR, MASTER_PORT and what lies between the machines"
            raise SeqloomError("E_WORKER", what, where="ranks", fix=fix) from None
        place = meet(PrefixStore("seqloom", first), self.rank, self.size, STUCK * TIMEOUT / 2)
        self.store = PrefixStore(place, first)
        self.watch = Watch(launch, PrefixStore(place, second), TIMEOUT, self.fix)
        self.watch.sign()
        for rank in range(self.size):
            self._wait_for(f"sign/{rank}")
        self.watch.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        code, name = ending(error)
        if error is not None:
            atexit.register(_end_at_last)
        self.watch.end(code, name)
        if self.launch.leads:
            if not self.launch.hosted:
                self._stay_for_the_others()
            return
        try:
            if isinstance(error, SeqloomError):
                self._leave_it_to_the_first(error)
        finally:
            with suppress(RuntimeError):  # the meeting place is gone
                self.store.set(f"left/{self.rank}", "")

    def _stay_for_the_others(self) -> None:
        """The meeting place ends with this process: first let the others read how."""
        until = time.monotonic() + 3 * BEAT
        while time.monotonic() < until and not self.store.check([f"left/{rank}" for rank in range(1, self.size)]):
            time.sleep(LOOK)

    def _leave_it_to_the_first(self, error: SeqloomError) -> None:
        """What rank 0 found as well, it says; what is this rank's own carries its number."""
        until = time.monotonic() + GRACE / 2
        while time.monotonic() < until:
            try:
                sign = json.loads(self.store.get("sign/0"))
            except (RuntimeError, ValueError):
                break
            if sign["end"] is not None:
                if sign["code"] == error.code:
                    raise SystemExit(error.exit_code) from None
                break
            time.sleep(LOOK)
        what = error.what if error.where == "ranks" else f"rank {self.rank} ({self.watch.host}): {error.what}"
        raise SeqloomError(error.code, what, where=error.where, fix=error.fix) from None

    def share(self, batches: int, *, rows_only: bool = False) -> Share:
        return Share.of_steps(self.rank, self.size, batches, rows_only=rows_only)

    def share_of_batches(self) -> Share:
        return Share.of_batches(self.rank, self.size)

    # --- by way of the meeting place -----------------------------------------------------------------------------

    def together(self, work: Callable[[], T]) -> T:
        failure: SeqloomError | None = None
        done: list[T] = []
        try:
            done.append(work())
        except SeqloomError as error:
            failure = error
        mine = None if failure is None else [failure.code, failure.what, failure.where, failure.fix]
        for rank, note in enumerate(map(json.loads, self.gather(json.dumps(mine)))):
            if note is not None:
                code, what, where, fix = note
                what = what if rank == 0 else f"rank {rank}: {what}"
                raise self.common(SeqloomError(code, what, where=where, fix=fix))
        return done[0]

    def common(self, error: SeqloomError) -> BaseException:
        return error if self.leads else SystemExit(error.exit_code)

    def gather(self, text: str) -> list[str]:
        self._turns += 1
        self.store.set(f"gather/{self._turns}/{self.rank}", text)
        found = [self._wait_for(f"gather/{self._turns}/{rank}") for rank in range(self.size)]
        if self._turns > 1:  # all are here, so all have read what was there before
            self.store.delete_key(f"gather/{self._turns - 1}/{self.rank}")
        return found

    def tell(self, key: str, text: str) -> None:
        self.store.set(f"told/{key}", text)

    def told(self, key: str) -> str:
        return self._wait_for(f"told/{key}")

    def _wait_for(self, key: str) -> str:
        with self._heard():
            while not self.store.check([key]):
                self.watch.raise_failure()
                time.sleep(LOOK)
            return self.store.get(key).decode()

    def at_step(self, step: int | None) -> None:
        begins, self.watch.step = self.watch.step is None, step
        if begins:
            with self._heard():
                self.watch.sign_now()

    # --- by torch.distributed ------------------------------------------------------------------------------------

    def connect(self, device: torch.device, timeout: float) -> None:
        self.watch.timeout = timeout
        if device.type not in ("cpu", "cuda"):
            what = f"several processes cannot train on {device.type}"
            raise SeqloomError("E_USAGE", what, where="runtime.device", fix="use cpu or cuda")
        alone = device.type == "cuda" and torch.cuda.device_count() >= self.launch.local_size
        backend = "cpu:gloo,cuda:nccl" if alone else "gloo"  # several processes on one GPU: NCCL refuses, gloo copies
        with self._heard():
            dist.init_process_group(
                backend,
                store=PrefixStore("tensors", self.store),
                rank=self.rank,
                world_size=self.size,
                timeout=timedelta(seconds=STUCK * timeout),
            )

    def disconnect(self) -> None:
        self.watch.step = None
        with self._heard():
            self._counted()
            dist.destroy_process_group()

    @contextmanager
    def _heard(self) -> Iterator[None]:
        """A failure between processes becomes one that names a rank."""
        try:
            yield
        except RuntimeError as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            verdict = self.watch.verdict(_first_line(error))
            raise verdict from None

    def sum_gradients(self, parameters: Sequence[nn.Parameter], *, all_there: bool) -> None:
        with self._heard():
            found = [one for one in parameters if one.grad is not None] if all_there else self._of_any(parameters)
            for bucket in _buckets(found):
                gradients = [_gradient(parameter) for parameter in bucket]
                flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
                dist.all_reduce(flat)
                parts = flat.split([gradient.numel() for gradient in gradients])  # type: ignore[no-untyped-call]
                torch._foreach_copy_(gradients, [p.view_as(g) for p, g in zip(parts, gradients, strict=True)])

    def _of_any(self, parameters: Sequence[nn.Parameter]) -> list[nn.Parameter]:
        """Parameters that have a gradient on some rank; where it is missing here, it is 0. One that no rank has stays
        without: an optimiser passes it over, as it would in a single process."""
        there = torch.tensor([parameter.grad is not None for parameter in parameters], dtype=torch.uint8)
        dist.all_reduce(there, op=dist.ReduceOp.MAX)
        found = [parameter for parameter, known in zip(parameters, there.tolist(), strict=True) if known]
        for parameter in found:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        return found

    def sum(self, values: Tensor) -> Tensor:
        with self._heard():
            total = values.clone()
            dist.all_reduce(total)
            return total

    def whole(self, own: Tensor, count: int) -> Tensor:
        found: Tensor = _Whole.apply(own, count, self)  # type: ignore[no-untyped-call]
        return found

    def vote(self, reason: str | None) -> str | None:
        """The answer is that to the vote before, which was counted while a step was computed: nobody waits for it."""
        with self._heard():
            before = self._counted()
            mine = torch.tensor([REASONS.index(reason)])
            self._vote = (mine, dist.all_reduce(mine, op=dist.ReduceOp.MAX, async_op=True))
            return REASONS[before]

    def _counted(self) -> int:
        if self._vote is None:
            return 0
        vote, work = self._vote
        if work is not None:
            work.wait()
        return int(vote)

    def sums(self, values: Sequence[float]) -> list[float]:
        found: list[float] = self.sum(torch.tensor(values, dtype=torch.float64)).tolist()
        return found

    def texts(self, mine: Sequence[str]) -> list[list[str]]:
        with self._heard():
            data = torch.frombuffer(bytearray(json.dumps(list(mine)).encode()), dtype=torch.uint8)
            sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
            dist.all_gather(sizes, torch.tensor([len(data)]))
            longest = max(int(size) for size in sizes)
            found = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.size)]
            dist.all_gather(found, nn.functional.pad(data, (0, longest - len(data))))
            whole = zip(found, sizes, strict=True)
            return [json.loads(text[: int(size)].numpy().tobytes()) for text, size in whole]

    def values(self, mine: Mapping[str, float]) -> dict[str, float]:
        names = sorted(mine)
        tensor = torch.tensor([mine[name] for name in names], dtype=torch.float64)
        self.spread([tensor])
        found = dict(zip(names, tensor.tolist(), strict=True))
        return {name: found[name] for name in mine}

    def spread(self, tensors: Sequence[Tensor]) -> None:
        with self._heard():
            for tensor in tensors:
                whole = tensor.contiguous()
                dist.broadcast(whole, src=0)
                tensor.copy_(whole)

    def join_rows(self, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            own = torch.zeros_like(tensor)
            own[self.rank :: self.size] = tensor[self.rank :: self.size]
            tensor.copy_(self.sum(own))


class _Whole(torch.autograd.Function):
    """Rows of all ranks in one tensor. The loss is the sum of all ranks' losses, so a row's gradient is their sum."""

    @staticmethod
    def forward(ctx: FunctionCtx, own: Tensor, count: int, ranks: Several) -> Tensor:
        ctx.ranks = ranks  # type: ignore[attr-defined]
        found = own.new_zeros(count, *own.shape[1:])
        found[ranks.rank :: ranks.size] = own
        return ranks.sum(found)

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None, None]:
        ranks: Several = ctx.ranks  # type: ignore[attr-defined]
        return ranks.sum(gradient)[ranks.rank :: ranks.size], None, None


def _buckets(parameters: Sequence[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """Parameters of one type and device, so many numbers at a time."""
    kinds: dict[tuple[torch.dtype, torch.device], list[nn.Parameter]] = {}
    for parameter in parameters:
        kinds.setdefault((parameter.dtype, parameter.device), []).append(parameter)
    for kind in kinds.values():
        ends = accumulate(parameter.numel() for parameter in kind)
        numbers = [(end - 1) // BUCKET for end in ends]
        for number in dict.fromkeys(numbers):
            yield [parameter for parameter, own in zip(kind, numbers, strict=True) if own == number]


def _gradient(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


def _end_at_last() -> None:
    """The process ends, and a library may wait for others who will not come: not for long."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(round(2 * GRACE))


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
