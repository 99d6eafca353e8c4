#!/usr/bin/env python3
"""The Python module beside PyTorch and transformers: a tiny GPT-2 and a tiny Llama with random weights lie in PyTorch's memory, which the
model takes over by DLPack. Loss and every gradient of one step agree within fp32's bounds, the addresses are PyTorch's, and after a step of
spillway.AdamW PyTorch's own modules have the weights that torch.optim.AdamW gives. Tensors go both ways without a copy, bf16 too.

  PYTHONPATH=build/release/python python tests/peers/python_module.py     # where torch and transformers are
"""

import sys
import tempfile
import time

import numpy as np
import spillway
import torch
import transformers


def worst(ours, theirs):
    """Of the difference, relative to the largest element."""
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-30))


def check(name, value, bound):
    print(f"  {name}: {value:.2e} (bound {bound:.0e})")
    if not value <= bound:
        sys.exit(f"{name}: expected at most {bound}, got {value}")


def arrays():
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.int64, torch.uint8, torch.bool):
        t = torch.ones(3, 4).to(dtype)
        x = spillway.Tensor(t)
        back = torch.from_dlpack(x)
        assert x.data_ptr() == t.data_ptr() == back.data_ptr() and back.dtype == dtype and torch.equal(back, t), dtype
    try:
        spillway.Tensor(torch.nn.Parameter(torch.ones(2)))
    except TypeError as error:
        assert "detach" in str(error)
    else:
        sys.exit("a tensor that requires a gradient was taken")
    print("tensors of 8 types: the same address there and back")


def model(name, peer):
    print(name)
    tokens = torch.from_numpy(np.random.default_rng(0).integers(0, 200, (3, 20)))
    with tempfile.TemporaryDirectory() as folder:
        peer.save_pretrained(folder)
        ours = spillway.Model(folder, from_scratch=True, seed=9)
    theirs = dict(peer.named_parameters())
    ours.load_state_dict(peer.state_dict(), share=True)
    same = [p.data_ptr() == theirs[n].data_ptr() for n, p in ours.named_parameters()]
    print(f"  {sum(same)} of {len(same)} parameters at PyTorch's address")
    assert all(same)
    loss = ours.loss(tokens)
    loss.backward()
    expected = peer(tokens, labels=tokens).loss
    expected.backward()
    check("loss", abs(loss.item() - expected.item()) / expected.item(), 1e-6)
    check("gradients", max(worst(torch.from_dlpack(p.grad), theirs[n].grad) for n, p in ours.named_parameters()), 2e-5)
    before = {n: p.detach().clone() for n, p in theirs.items()}
    spillway.AdamW(ours, lr=1e-3).step()
    stepped = {n: p.detach().clone() for n, p in theirs.items()}
    with torch.no_grad():
        for n, p in theirs.items():
            p.copy_(before[n])
            p.grad.copy_(torch.from_dlpack(ours[n].grad))
    torch.optim.AdamW(peer.parameters(), lr=1e-3).step()
    check("weights after a step", max(worst(stepped[n], p.detach()) for n, p in theirs.items()), 1e-6)


def main():
    torch.manual_seed(0)
    arrays()
    small = dict(vocab_size=211, attn_implementation="eager")
    model("gpt2", transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=48, n_layer=3, n_head=4, n_positions=32, attn_pdrop=0, embd_pdrop=0,
                                                                      resid_pdrop=0, **small)))
    model("llama", transformers.LlamaForCausalLM(transformers.LlamaConfig(hidden_size=48, intermediate_size=96, num_hidden_layers=3,
                                                                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
                                                                         **small)))
    start = time.perf_counter()
    t = torch.ones(8)
    for _ in range(10000):
        torch.from_dlpack(spillway.Tensor(t))
    print(f"there and back: {(time.perf_counter() - start) / 10000 * 1e6:.1f} us")


if __name__ == "__main__":
    main()
