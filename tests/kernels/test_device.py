"""bf16 kernels at true sizes on a device, and graphs that are captured while others use it.

|out - reference| / |reference| over all values; the reference is fp32 of the same bf16 operands.
One rounding of the output is 2e-3; sums are fp32.
"""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch import Tensor

from playhead.engine.graphs import DeviceEvent, PinnedRing, Recorder
from playhead.kernels import attention, conv, sampler, twins_codec, twins_frame
from playhead.kernels.conv import ConvScratch, ConvWeight, Rows, Snake
from tests.kernels.interpreter import ON_DEVICE

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not ON_DEVICE, reason="needs a CUDA device"),
]
TOLERANCE = 5e-3
EPS = 1e-6


def drawn(*shape: int, scale: float = 1.0) -> Tensor:
    return (torch.randn(*shape, device="cuda") * scale).to(torch.bfloat16)


def error(got: Tensor, wanted: Tensor) -> float:
    """Return the relative error; NaN never passes a comparison."""
    return float((got.float() - wanted.float()).norm() / wanted.float().norm())


@pytest.mark.parametrize("last", [0, 63, 511])
def test_paged_attention_at_true_heads(last: int) -> None:
    rows, heads, kv_heads, dim, pages = 8, 16, 8, 128, 36
    qkv, x = drawn(rows, (heads + 2 * kv_heads) * dim), drawn(rows, 2048, scale=3.0)
    cache = drawn(rows * pages + 1, 2, kv_heads, attention.PAGE, dim)
    table = torch.randperm(rows * pages, device="cuda").view(rows, pages).int() + 1
    table = torch.cat([torch.zeros_like(table[:1]), table])
    slots = torch.arange(rows, 0, -1, dtype=torch.int32, device="cuda")
    positions = torch.full((rows,), last, dtype=torch.int32, device="cuda")
    angle = torch.arange(576)[:, None] / 1e4 ** (torch.arange(64) / 64)
    rope = torch.cat([angle.cos(), angle.sin()], 1).cuda()
    norms = (1 + torch.rand(dim, device="cuda"), 1 + torch.rand(dim, device="cuda"))
    q, k, v = twins_frame.rotated_heads(qkv.float(), positions, norms, rope, heads, EPS, x.float())
    theirs = cache.float()
    twins_frame.write_kv(k, v, theirs, table, slots, positions)
    wanted = twins_frame.paged_attention(q, theirs, table, slots, positions)
    out = torch.full((rows, heads * dim), float("nan"), dtype=torch.bfloat16, device="cuda")
    scratch = attention.SplitScratch(rows, heads, kv_heads, dim, 3, out)
    for _ in range(2):  # counters must be clean for the next launch
        attention.paged_attention(
            qkv, cache, table, slots, positions, norms, rope, out, scratch, EPS, x
        )
    assert error(out, wanted) < 2 * TOLERANCE  # keys, values and shares are rounded too
    assert not scratch.arrived.any()


@pytest.mark.parametrize("num", [4, 160])
@pytest.mark.parametrize(("channels", "taps"), [(768, 7), (96, 7), (96, 1)])
def test_convolution_at_true_sizes(num: int, channels: int, taps: int) -> None:
    streams, past = 8, taps - 1
    held = Rows(drawn(streams, past + num, channels), past)
    matrix = drawn(taps * channels, channels, scale=(taps * channels) ** -0.5)
    weight = ConvWeight(matrix, torch.randn(channels, device="cuda"), taps, 1)
    snake = Snake(torch.rand(channels, device="cuda") + 0.5, torch.rand(channels, device="cuda"))
    plain = Rows(torch.full((streams, num, channels), float("nan")).bfloat16().cuda(), 0)
    curved = Rows(plain.buffer.clone(), 0)
    scratch = ConvScratch(matrix)
    conv.causal_conv(held, weight, plain, curved, snake, scratch=scratch)
    wanted = twins_codec.causal_conv(held.buffer.float(), matrix.float(), weight.bias, taps, 1)
    assert error(plain.buffer, wanted) < TOLERANCE
    bent = twins_codec.snake(wanted, snake.alpha, snake.inverse_beta)
    assert error(curved.buffer, bent) < TOLERANCE and not scratch.arrived.any()


@pytest.mark.parametrize("top_k", [1, 50, 0, 2048])
def test_sampler_at_true_sizes(top_k: int) -> None:
    """The same codes: the noise and both thresholds are exact."""
    rows, num_codes = 8, 2048
    reals = torch.tensor([[1 / 0.9, 0.95, 1, 1.05] * 2], device="cuda").repeat(rows + 1, 1)
    wholes = torch.zeros(rows + 1, 8, dtype=torch.int32, device="cuda")
    wholes[:, 1], wholes[:, 2] = top_k, torch.arange(rows + 1)
    seen = torch.zeros(rows + 1, num_codes // 32, dtype=torch.int32, device="cuda")
    slots = torch.arange(1, rows + 1, dtype=torch.int32, device="cuda")
    logits = drawn(rows, num_codes, scale=3.0)
    codes = torch.full((rows, 17), -1, dtype=torch.int32, device="cuda")
    sampler.choose_codes(logits, slots, slots, reals, wholes, seen, codes, 3, num_codes, 2)
    at = slots.long()
    wanted = twins_frame.choose(
        logits, at, torch.zeros_like(at), 3, reals[at, 4], wholes[at, 1].long(), reals[at, 5],
        reals[at, 6],
    )  # fmt: skip
    assert torch.equal(codes[:, 3].long(), wanted)


def test_graphs_are_captured_while_another_thread_allocates() -> None:
    recorder, stop, failures = Recorder(torch.device("cuda")), threading.Event(), []
    x, total = torch.ones(64, device="cuda"), torch.zeros(64, device="cuda")

    def disturb() -> None:
        size = 1 << 20
        while not stop.is_set():
            try:
                torch.empty(size, device="cuda").fill_(1.0)
                torch.cuda.current_stream().synchronize()
            except RuntimeError as error:
                failures.append(error)
            size += 1 << 20

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        replays = [recorder.capture(lambda: total.add_(x * 2).sub_(x)) for _ in range(4)]
    finally:
        stop.set()
        thread.join()
    assert not failures and recorder.captures == 4
    torch.cuda.synchronize()
    total.zero_()
    torch.cuda.synchronize()
    for replay in replays:
        replay()
    assert torch.equal(total, 4 * x)


def test_a_ring_brings_values_to_the_device_and_back() -> None:
    """As many copies in flight as the ring has buffers: none overwrites another."""
    ring, stream = PinnedRing(3, 1024, torch.int32, pin=True), torch.cuda.Stream()
    device = torch.zeros(3, 1024, dtype=torch.int32, device="cuda")
    landing = torch.empty(3, 1024, dtype=torch.int32, pin_memory=True)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)  # ~10 ms: nothing is copied before all are launched
        for turn in range(3):
            staged = ring.next()
            staged.fill_(turn + 1)
            device[turn].copy_(staged, non_blocking=True)
        landing.copy_(device, non_blocking=True)
        event = DeviceEvent()  # type: ignore[no-untyped-call]
        event.record(stream)
        at_once = event.query()
    event.synchronize()
    assert not at_once and landing.float().mean(1).tolist() == [1.0, 2.0, 3.0]


FAULTS = Path(__file__).parents[1] / "worker" / "faults"
BREAK = """
import torch
from nowhere import write_nowhere
from playhead.engine.errors import DeviceFault
from playhead.engine.graphs import DeviceEvent

began, ended = DeviceEvent(enable_timing=True), DeviceEvent(enable_timing=True)
began.record()
write_nowhere()
ended.record()
for ask in (ended.synchronize, ended.query, lambda: began.elapsed_time(ended)):
    try:
        print("answered", ask())
    except DeviceFault as fault:
        print("told", fault)
"""


def test_events_of_a_broken_device_raise_device_faults() -> None:
    """In a process of its own: nothing on its device can be used afterwards."""
    code = f"import sys; sys.path.insert(0, {str(FAULTS)!r})\n{BREAK}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    told = [line.split()[0] for line in done.stdout.splitlines() if line.split()]
    assert done.returncode == 0, done.stderr[-3000:]
    assert told.count("told") == 3 and "answered" not in told, done.stdout
