"""`spillway import` beside what wrote the files. Without a program it writes what tests/models/import_test.cc reads: a GPT-2 of transformers'
and the two model files that llm.c would have of it (its train_gpt2.py's write_model, in the order that its README and code give), and a
ResNet-18 of torchvision's, each tensor one number. With one it imports random models of both kinds and compares every tensor, the logits
with transformers', and torchvision's with load_state_dict(strict=True).

    python tests/peers/imports.py [build/release/spillway]

Needs torch, transformers, torchvision, safetensors and numpy. Exit status 1 if one does not hold.
"""
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.torch import load_file

DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "imports"
NONE = dict(bos_token_id=None, eos_token_id=None)
transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(2)


def gpt2(seed, **sizes):
    torch.manual_seed(seed)
    config = transformers.GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **sizes)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return model.eval()


def write_llm_c(model, path, dtype):
    """One file: a header of 256 int32, the embeddings, then each kind of parameter of all layers, then the last norm."""
    config, weights = model.config, model.state_dict()
    padded = -(-config.vocab_size // 128) * 128
    header = np.zeros(256, np.int32)
    header[:8] = [20240326, 3 if dtype == torch.float32 else 5, config.n_positions, config.vocab_size, config.n_layer, config.n_head, config.n_embd, padded]

    def put(file, tensor):
        tensor = tensor.detach().to(dtype).contiguous()
        file.write(tensor.numpy().tobytes() if dtype == torch.float32 else tensor.view(torch.int16).numpy().tobytes())

    with open(path, "wb") as file:
        file.write(header.tobytes())
        put(file, torch.nn.functional.pad(weights["transformer.wte.weight"], (0, 0, 0, padded - config.vocab_size)))
        put(file, weights["transformer.wpe.weight"])
        for part in ("ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight", "attn.c_proj.bias", "ln_2.weight",
                     "ln_2.bias", "mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias"):
            for layer in range(config.n_layer):
                weight = weights[f"transformer.h.{layer}.{part}"]
                # llm.c's are torch.nn.Linear's, [out, in]; transformers' Conv1D is [in, out].
                put(file, weight.t() if weight.dim() == 2 else weight)
        put(file, weights["transformer.ln_f.weight"])
        put(file, weights["transformer.ln_f.bias"])


def make():
    import torchvision

    DATA.mkdir(exist_ok=True)
    small = gpt2(3, n_layer=2, n_embd=12, n_head=3, vocab_size=61, n_positions=16, **NONE)
    small.save_pretrained(DATA)
    for name in ("config.json", "generation_config.json"):
        (DATA / name).unlink(missing_ok=True)
    write_llm_c(small, DATA / "gpt2.bin", torch.float32)
    write_llm_c(small, DATA / "gpt2_bf16.bin", torch.bfloat16)
    state = torchvision.models.resnet18(num_classes=7).state_dict()
    numbers = {name: torch.full((), i + 1, dtype=t.dtype).expand(t.shape) for i, (name, t) in enumerate(state.items())}
    torch.save(numbers, DATA / "resnet18.pth")


def run(program, *words):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_gpt2(program, where, seed, dtype, **sizes):
    model = gpt2(seed, **sizes).to(dtype).float()
    write_llm_c(model, where / "x.bin", dtype)
    out = where / f"gpt2-{seed}"
    run(program, "import", where / "x.bin", "--out", out)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, attn_implementation="eager").eval()
    want, got = model.state_dict(), loaded.state_dict()
    assert set(want) == set(got) and all(torch.equal(want[n], got[n]) for n in want)
    stored = load_file(out / "model.safetensors")
    assert all(t.dtype == dtype for t in stored.values())
    tokens = torch.randint(0, sizes["vocab_size"], (2, 12))
    with torch.no_grad():
        worst = (model(input_ids=tokens).logits - loaded(input_ids=tokens).logits).abs().max().item()
    print(f"llm.c, {dtype}, {sizes}: {len(want)} tensors equal, logits {'equal' if worst == 0 else worst}", flush=True)
    return worst == 0


def check_torchvision(program, where, name, classes):
    import torchvision

    torch.manual_seed(classes)
    model = getattr(torchvision.models, name)(num_classes=classes, weights=None)
    torch.save(model.state_dict(), where / f"{name}.pth")
    out = where / name
    run(program, "import", where / f"{name}.pth", "--out", out, "--as", name)
    stored = load_file(out / "model.safetensors")
    counts = {n: t for n, t in model.state_dict().items() if n.endswith("num_batches_tracked")}
    again = getattr(torchvision.models, name)(num_classes=classes, weights=None)
    again.load_state_dict({**stored, **counts}, strict=True)
    same = all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), again.state_dict().values()))
    print(f"torchvision's {name}, {classes} classes: {len(stored)} tensors {'equal' if same else 'DIFFER'}", flush=True)
    for file in (where / f"{name}.pth", out / "model.safetensors"):
        file.unlink()
    return same


def main():
    if len(sys.argv) < 2:
        return make()
    program = str(pathlib.Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)
        held = [
            check_gpt2(program, where, 1, torch.float32, n_layer=3, n_embd=48, n_head=4, vocab_size=300, n_positions=64, **NONE),
            check_gpt2(program, where, 2, torch.bfloat16, n_layer=2, n_embd=40, n_head=5, vocab_size=128, n_positions=32, **NONE),
            check_gpt2(program, where, 3, torch.float32, n_layer=2, n_embd=768, n_head=12, vocab_size=50257, n_positions=1024),
            *[check_torchvision(program, where, name, classes) for name, classes in
              (("resnet18", 1000), ("resnet34", 10), ("resnet50", 37), ("alexnet", 10), ("vgg11", 3))],
        ]
    print(f"{sum(held)} of {len(held)} hold")
    sys.exit(0 if all(held) else 1)


main()
