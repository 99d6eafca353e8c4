#!/usr/bin/env python3
"""PyTorch on this machine's GPU, and our program beside it in the same run. Prints a JSON object a line:
  attention   in bf16, causal: milliseconds and TFLOP/s (of what the mask leaves, as bench_attention_cuda counts) of the forward and the
              backward pass of FlashAttention-2 and of cuDNN's, each as PyTorch's SDPA calls it, and of ours as bench_attention_cuda
              measures it
  training    gpt2-124m and a Llama-shaped model of 1.5 billion parameters, both as torch.compile makes them with fused AdamW under
              autocast to bf16 (fp32 weights, what goes from layer to layer bf16), and as `spillway train --device cuda` runs them:
              tokens/s and TFLOP/s (the model's, as spillway counts them), medians of the steps of all rounds, in turn
Llama's layers are compiled one by one (they are alike), GPT-2 as a whole. PyTorch's weights and state stay on the GPU while ours run (18 GB
of the larger model); what its allocator keeps beyond that is given back before. The last lines are verdicts ("verdict: WHAT: reached, ..."
or "not reached, ...": 90 % of the speed of each attention, 1.1 times PyTorch's tokens/s) and what is missing ("incomplete: ...": then the
exit status is 3). 1 if ours failed.

  gpu_peers.py --programs bin --folder FOLDER [--seconds 120]    begins no round after so many seconds
"""
import argparse
import gc
import json
import math
import statistics
import subprocess
import sys
import time
from pathlib import Path

VOCABULARY, LLAMA_VOCABULARY = 50257, 32000
GPT2 = dict(width=768, layers=12, heads=12)
LLAMA = dict(width=2048, layers=28, heads=16, kv_heads=8, mlp=6144)
LLAMA_CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 2048, "head_dim": 128,
                "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
                "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": False,
                "attention_bias": False, "mlp_bias": False, "vocab_size": LLAMA_VOCABULARY, "bos_token_id": 1, "eos_token_id": 2}
# B, H, heads of k and v, T, D: those of bench/attention.cc.
ATTENTION = {"gpt2-124m/1024": (16, 12, 12, 1024, 64), "llama3-1b/2048": (8, 32, 8, 2048, 64), "llama3-1b/8192": (2, 32, 8, 8192, 64),
             "llama3-8b/2048": (8, 32, 8, 2048, 128), "llama3-8b/8192": (2, 32, 8, 8192, 128)}
SIZES = {"gpt2-124m": (16, 1024), "llama-1.5b": (4, 2048)}  # rows, positions
WARM_STEPS, STEPS = 3, 8
OURS_SECONDS = 90  # after which a run of ours hangs
BACKENDS = {"FlashAttention-2": "FLASH_ATTENTION", "cuDNN": "CUDNN_ATTENTION"}
ATTENTION_PROMISED, TRAINING_PROMISED = 0.9, 1.1  # of each attention's speed, of PyTorch's tokens/s


def say(**row):
    print(json.dumps(row), flush=True)


def first_line(reason):
    return (str(reason).strip().splitlines() or [type(reason).__name__])[0][:300]


def teraflops(shape, which, ms):
    """Of what the causal mask leaves: 4 and 10 B H T^2 D / 2, as in arXiv:2307.08691."""
    B, H, _, T, D = ATTENTION[shape]
    return round({"forward": 2e-9, "gradients": 5e-9}[which] * B * H * T * T * D / ms, 2)


def attention(torch):
    """Milliseconds of PyTorch's: of a backend, by "shape/pass"."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    measured = {who: {} for who in BACKENDS}
    for shape, (B, H, kv_heads, T, D) in ATTENTION.items():
        q = torch.randn(B, H, T, D, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        k, v = (torch.randn(B, kv_heads, T, D, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
        dy = torch.randn_like(q)

        def forward():
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=kv_heads != H)

        for who, backend in BACKENDS.items():
            try:
                with sdpa_kernel(getattr(SDPBackend, backend)):
                    y = forward()
                    measured[who][f"{shape}/forward"] = gpu_ms(torch, forward)
                    measured[who][f"{shape}/gradients"] = gpu_ms(torch, lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True))
            except (RuntimeError, AttributeError) as reason:
                say(what="attention", shape=shape, who=who, unavailable=first_line(reason))
    return measured


def our_attention(given):
    """Milliseconds by "shape/pass"."""
    command = [f"{given.programs}/bench_attention_cuda", "--benchmark_format=json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=OURS_SECONDS)
    if done.returncode:
        raise RuntimeError(done.stderr or f"bench_attention_cuda ended with {done.returncode}")
    try:
        return {row["name"].split("/iterations:")[0]: row.get("ms") for row in json.loads(done.stdout)["benchmarks"]}
    except (ValueError, KeyError, TypeError):
        raise RuntimeError(f"bench_attention_cuda printed no figures: {done.stdout[:100]!r}") from None


def give_back(torch):
    """What PyTorch's allocator keeps and does not use: without it ours is refused where both do not fit."""
    gc.collect()
    torch.cuda.empty_cache()


def attention_beside(torch, given):
    """What keeps it from being whole, and whether ours failed."""
    measured = attention(torch)
    give_back(torch)
    try:
        ours = our_attention(given)
    except Exception as reason:
        say(what="attention", who="spillway", failed=first_line(reason))
        return ["ours of attention"], True
    passes = [f"{shape}/{which}" for shape in ATTENTION for which in ("forward", "gradients")]
    missing = [f"ours of attention {name}" for name in passes if not ours.get(name)]
    for name in passes:
        if ours.get(name):
            say(what="attention", shape=name, who="spillway", ms=round(ours[name], 4), tflops=teraflops(*name.rsplit("/", 1), ours[name]))
    for who, by_name in measured.items():
        below, count = [], 0
        for name in passes:
            if name not in by_name:
                missing.append(f"{who} of attention {name}")
            elif ours.get(name):
                ratio, count = by_name[name] / ours[name], count + 1
                say(what="attention", shape=name, who=who, ms=round(by_name[name], 4),
                    tflops=teraflops(*name.rsplit("/", 1), by_name[name]), over_ours=round(ratio, 3))
                if ratio < ATTENTION_PROMISED:
                    below.append(f"{name} {ratio:.2f}")
        if count:
            print(f"verdict: attention against {who}: {'not ' if below else ''}reached, {count - len(below)} of {count} passes reach "
                  f"{100 * ATTENTION_PROMISED:.0f} % of its speed" + (f" (not: {', '.join(below)})" if below else ""), flush=True)
    return missing, False


def gpu_ms(torch, work, rounds=15, times=10):
    """The median over the rounds, by the GPU's clock."""
    for _ in range(3):
        work()
    all_ms = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(times):
            work()
        end.record()
        end.synchronize()
        all_ms.append(begin.elapsed_time(end) / times)
    return statistics.median(all_ms)


def models(torch):
    nn, F = torch.nn, torch.nn.functional

    class GPT2Layer(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.norm1, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.norm2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x, _):
            b, t, c = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class LlamaLayer(nn.Module):
        def __init__(self, width, heads, kv_heads, mlp):
            super().__init__()
            self.head = width // heads
            kv = kv_heads * self.head
            self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
            self.q, self.k, self.v, self.out = (nn.Linear(width, n, bias=False) for n in (width, kv, kv, width))
            self.gate, self.up, self.down = (nn.Linear(i, o, bias=False) for i, o in ((width, mlp), (width, mlp), (mlp, width)))

        def forward(self, x, angles):
            b, t, c = x.shape
            y = self.norm1(x)
            q, k, v = (f(y).view(b, t, -1, self.head).transpose(1, 2) for f in (self.q, self.k, self.v))
            y = F.scaled_dot_product_attention(turned(q, angles), turned(k, angles), v, is_causal=True, enable_gqa=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
            y = self.norm2(x)
            return x + self.down(F.silu(self.gate(y)) * self.up(y))

    def turned(x, angles):
        a, b = x.float().chunk(2, -1)
        cos, sin = angles
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)

    class Model(nn.Module):
        def __init__(self, vocabulary, width, layers, positions, norm, tied):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(positions, width) if positions else None
            self.layers, self.norm, self.head = nn.ModuleList(layers), norm(width), nn.Linear(width, vocabulary, bias=False)
            for p in self.parameters():
                if p.dim() > 1:
                    nn.init.normal_(p, std=0.02)
            if tied:
                self.head.weight = self.tokens.weight

        def end(self, x, targets):
            return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), targets.flatten())

        def forward(self, tokens, targets, angles):
            x = self.tokens(tokens)
            if self.positions:
                x = x + self.positions(torch.arange(tokens.size(1), device=tokens.device))
            x = x.to(torch.bfloat16)
            for layer in self.layers:
                x = layer(x, angles)
            return self.end(x, targets)

    def gpt2():
        layers = [GPT2Layer(GPT2["width"], GPT2["heads"]) for _ in range(GPT2["layers"])]
        return Model(VOCABULARY, GPT2["width"], layers, 1024, nn.LayerNorm, True)

    def llama():
        layers = [LlamaLayer(LLAMA["width"], LLAMA["heads"], LLAMA["kv_heads"], LLAMA["mlp"]) for _ in range(LLAMA["layers"])]
        return Model(LLAMA_VOCABULARY, LLAMA["width"], layers, 0, nn.RMSNorm, False)

    return gpt2, llama


class Torch:
    """A training that goes on step by step; compiled if this machine can."""

    def __init__(self, torch, make, vocabulary, rows, positions, whole):
        self.torch, self.tokens = torch, rows * positions
        torch.manual_seed(0)
        with torch.device("cuda"):
            self.model = make()
            self.x, self.y = torch.randint(0, vocabulary, (2, rows, positions))
            frequencies = 500000.0 ** (-torch.arange(0, 64) / 64)
            angles = torch.outer(torch.arange(positions), frequencies)
        self.angles = (angles.cos(), angles.sin())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        self.call, self.who, self.compiled = self.model, "PyTorch, torch.compile", True
        try:
            if whole:
                self.call = torch.compile(self.model)
            else:
                for layer in self.model.layers:
                    layer.compile()
                self.model.end = torch.compile(self.model.end)
            self.steps(WARM_STEPS)
        except Exception as reason:  # no C compiler, above all
            say(what="note", text="torch.compile fails here, eager instead: " + first_line(reason))
            for layer in self.model.layers:
                layer._compiled_call_impl = None
            self.model.__dict__.pop("end", None)
            self.optimizer.zero_grad(set_to_none=True)
            self.call, self.who, self.compiled = self.model, "PyTorch, eager (torch.compile fails here)", False
            self.steps(WARM_STEPS)

    def steps(self, count):
        seconds = []
        for _ in range(count):
            self.torch.cuda.synchronize()
            begin = time.perf_counter()
            with self.torch.autocast("cuda", self.torch.bfloat16):
                loss = self.call(self.x, self.y, self.angles)
            loss.backward()
            self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begin)
        return seconds


class Ours:
    who = "spillway"

    def __init__(self, given, model, rows, positions):
        self.run, self.flops_per_s = Path(given.folder) / "peer-run", []
        text = Path(given.folder) / "peer-text.txt"
        text.write_text("in the beginning was the word, and so on to the end of it.\n" * 40000)
        self.command = [f"{given.programs}/spillway", "train", "--model", model, "--from-scratch", "--tokenizer", "bytes", "--data",
                        str(text), "--device", "cuda", "--precision", "bf16", "--sequence-length", str(positions),
                        "--micro-batch-size", str(rows), "--no-final-checkpoint", "--steps", str(WARM_STEPS + STEPS), "--resume", "never",
                        "--recompute", "none"]
        for what in ("parameters", "gradients", "optimizer", "activations"):  # as PyTorch has it: it all fits
            self.command += [f"--place-{what}", "device"]

    def steps(self, _):
        name = f"{self.run}-{time.monotonic_ns()}"
        done = subprocess.run(self.command + ["--out", name], capture_output=True, text=True, timeout=OURS_SECONDS)
        if done.returncode:
            raise RuntimeError((done.stderr.strip().splitlines() or ["it said nothing"])[-1])
        rows = [json.loads(line) for line in (Path(name) / "metrics.jsonl").read_text().splitlines()]
        self.flops_per_s += [row["flops_per_s"] for row in rows[WARM_STEPS:]]
        return [row["step_ms"] / 1e3 for row in rows[WARM_STEPS:]]


def train_beside(torch, given, name, make_torch, make_ours, tokens):
    """Both in turn; what keeps it from being whole, and whether ours failed."""
    sides, seconds, missing = {}, {}, []

    def lost(side, who, reason):
        say(what="training", model=name, who=who, failed=first_line(reason))
        missing.append(f"{side} of {name}")
        sides.pop(side, None)

    for side, make_side in (("torch", make_torch), ("ours", make_ours)):
        try:
            sides[side], seconds[side] = make_side(), []
        except Exception as reason:
            lost(side, side, reason)
    for number in range(given.rounds):
        for side in list(sides):
            if number > 0 and time.monotonic() > given.end:
                continue
            if side == "ours":
                give_back(torch)
            try:
                seconds[side] += sides[side].steps(STEPS)
            except Exception as reason:
                lost(side, sides[side].who, reason)
    rates = {side: tokens / statistics.median(seconds[side]) for side in sides if seconds[side]}
    flops_a_token = statistics.median(sides["ours"].flops_per_s) / rates["ours"] if "ours" in rates else math.nan
    for side, rate in rates.items():
        tflops = {} if math.isnan(flops_a_token) else {"tflops": round(1e-12 * flops_a_token * rate, 2)}
        say(what="training", model=name, who=sides[side].who, tokens_a_step=tokens, tokens_per_s=round(rate),
            step_ms=round(1e3 * statistics.median(seconds[side]), 2), steps=len(seconds[side]), **tflops)
    if len(rates) == 2:
        ratio = rates["ours"] / rates["torch"]
        print(f"verdict: {name} against PyTorch: {'' if ratio >= TRAINING_PROMISED else 'not '}reached, {ratio:.2f} times "
              f"{sides['torch'].who}, promised {TRAINING_PROMISED}", flush=True)
        if not sides["torch"].compiled:
            missing.append(f"torch.compile of {name}")
    return missing, "ours" not in sides


def training(torch, given):
    gpt2, llama = models(torch)
    folder = Path(given.folder) / "llama-1.5b"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(LLAMA_CONFIG))
    missing, failed = [], False
    for name, ours, make, vocabulary, whole in (("gpt2-124m", "gpt2-124m", gpt2, VOCABULARY, True),
                                                ("llama-1.5b", str(folder), llama, LLAMA_VOCABULARY, False)):
        rows, positions = SIZES[name]
        if time.monotonic() > given.end:
            missing.append(f"{name}, for which no time was left")
            continue
        more, lost = train_beside(torch, given, name, lambda: Torch(torch, make, vocabulary, rows, positions, whole),
                                  lambda: Ours(given, ours, rows, positions), rows * positions)
        missing, failed = missing + more, failed or lost
        give_back(torch)
    return missing, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--programs", required=True, help="folder of spillway and bench_attention_cuda")
    parser.add_argument("--folder", required=True)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    given.end = time.monotonic() + given.seconds
    try:
        import torch
    except ImportError as reason:
        print(f"incomplete: no PyTorch here: {first_line(reason)}")
        return 3
    if not torch.cuda.is_available():
        print(f"incomplete: PyTorch {torch.__version__} sees no GPU")
        return 3
    torch.set_float32_matmul_precision("high")
    say(what="machine", torch=torch.__version__, cuda=torch.version.cuda, cudnn=torch.backends.cudnn.version(),
        gpu=torch.cuda.get_device_name())
    missing, failed = training(torch, given)  # first, for it is what matters most where time is short
    more, lost = attention_beside(torch, given)
    missing += more
    for one in missing:
        print(f"incomplete: {one}")
    return 1 if failed or lost else 3 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
