#!/usr/bin/env python3
"""`export --format gguf` of every family that it takes, from random configurations with each kind of tokenizer: the tensors as ggml's Python
package reads them, in each element type, beside those of transformers; and, where cyllama (llama.cpp in a wheel) can be imported, what
llama.cpp makes of the file: its logits beside transformers', tokens of texts beside those of Hugging Face's tokenizers, and greedy text
beside `spillway generate`; then the rules by which published tokenizers cut words, under llama.cpp's names.

    python tests/peers/gguf_models.py build/release/spillway [FAMILY ...]

Needs torch, transformers, tokenizers, safetensors, numpy, gguf; cyllama for the second half. Prints one line a model; exit status 1 if one
does not hold. llama.cpp's GELU comes out of a table of half precision, so that logits of GPT-2 and Gemma agree to fewer digits.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import gguf
import numpy as np
import torch
import transformers
from gguf.quants import dequantize, quantize
from safetensors.numpy import load_file
from tokenizers import Tokenizer

try:
    import cyllama.llama.llama_cpp as cpp

    cpp.disable_logging()
    cpp.llama_backend_init()
except ImportError:
    cpp = None

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()
torch.set_num_threads(2)

TOKENIZERS = pathlib.Path(__file__).resolve().parent.parent / "data" / "tokenizer"
VOCABULARY, POSITIONS = 704, 64
TEXTS = ["And God said, Let there be light", "", " ", "  two  spaces", "In 1234567 days, isn't it?", "naïve café – 🦙 and 日本\n\n\tEnd ", "THE LORD'S"]
COMMON = dict(vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
              max_position_embeddings=POSITIONS, rms_norm_eps=1e-5)
LLAMA2 = dict(bos_token_id=1, eos_token_id=2)
LLAMA3 = dict(bos_token_id=640, eos_token_id=641)
GPT2 = dict(bos_token_id=0, eos_token_id=0)


def rope(kind, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **more}}


YARN = rope("yarn", factor=4.0, original_max_position_embeddings=16)
LLAMA3_ROPE = rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
CASES = {
    "gpt2": ("gpt2", "gpt2-style", lambda: transformers.GPT2Config(vocab_size=VOCABULARY, n_embd=64, n_layer=3, n_head=4, n_inner=96,
                                                                   n_positions=POSITIONS, **GPT2)),
    "llama": ("llama", "llama2-style", lambda: transformers.LlamaConfig(**COMMON, **LLAMA2, attention_bias=True, mlp_bias=True)),
    "llama, tied, llama3": ("llama", "llama3-style", lambda: transformers.LlamaConfig(**COMMON, **LLAMA3, tie_word_embeddings=True, **LLAMA3_ROPE)),
    "llama, linear": ("llama", "mistral-style", lambda: transformers.LlamaConfig(**COMMON, **LLAMA2, **rope("linear", factor=2.0))),
    "llama, yarn": ("llama", "mistral-style", lambda: transformers.LlamaConfig(**COMMON, **LLAMA2, **YARN)),
    "llama, yarn, more": ("llama", "mistral-style", lambda: transformers.LlamaConfig(**COMMON, **LLAMA2, **rope(
        "yarn", factor=4.0, original_max_position_embeddings=16, attention_factor=1.3, beta_fast=16.0, beta_slow=2.0))),
    "mistral": ("llama", "mistral-style", lambda: transformers.MistralConfig(**dict(COMMON, head_dim=32), **LLAMA2, sliding_window=None)),
    "mixtral": ("llama", "mistral-style", lambda: transformers.MixtralConfig(**COMMON, **LLAMA2, num_local_experts=4, num_experts_per_tok=2,
                                                                            sliding_window=None)),
    "qwen2": ("qwen2", "llama3-style", lambda: transformers.Qwen2Config(**COMMON, **LLAMA3)),
    "qwen2, yarn": ("qwen2", "llama3-style", lambda: transformers.Qwen2Config(**COMMON, **LLAMA3, **YARN)),
    "qwen3": ("qwen3", "llama3-style", lambda: transformers.Qwen3Config(**dict(COMMON, head_dim=32), **LLAMA3)),
    "qwen3_moe": ("qwen3moe", "llama3-style", lambda: transformers.Qwen3MoeConfig(
        **dict(COMMON, head_dim=32), **LLAMA3, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True)),
    "gemma2": ("gemma2", "gemma-style", lambda: transformers.Gemma2Config(**dict(COMMON, head_dim=32), **LLAMA2, sliding_window=8,
                                                                          query_pre_attn_scalar=20)),
    "gemma3": ("gemma3", "gemma-style", lambda: transformers.Gemma3TextConfig(
        **dict(COMMON, head_dim=32, num_hidden_layers=7), **LLAMA2, sliding_window=8, query_pre_attn_scalar=20)),
    "gemma3, linear": ("gemma3", "gemma-style", lambda: transformers.Gemma3TextConfig(
        **dict(COMMON, head_dim=32), **LLAMA2, sliding_window=8, sliding_window_pattern=2, query_pre_attn_scalar=32,
        rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})),
    "phi3": ("phi3", "llama2-style", lambda: transformers.Phi3Config(**COMMON, **LLAMA2, pad_token_id=None, partial_rotary_factor=0.5,
                                                                     original_max_position_embeddings=POSITIONS)),
    "olmo2": ("olmo2", "llama3-style", lambda: transformers.Olmo2Config(**COMMON, **LLAMA3)),
    "olmo2, tied": ("olmo2", "gpt2-style", lambda: transformers.Olmo2Config(**COMMON, **GPT2, tie_word_embeddings=True)),
}
LOOSE = ("gpt2", "gemma")


def interleaved(weight, heads):
    return weight.reshape(heads, 2, len(weight) // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def expected_tensors(folder, config, architecture):
    """What llama.cpp's tensors are of a Hugging Face folder's, in fp32."""
    arch = next(a for a, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    tensors, experts = {}, {}
    for name, weight in load_file(folder / "model.safetensors").items():
        module, kind = name.rsplit(".", 1)
        if architecture == "llama" and module.endswith((".q_proj", ".k_proj")):
            weight = interleaved(weight, config.num_attention_heads if module.endswith("q_proj") else config.num_key_value_heads)
        if architecture == "gpt2" and weight.ndim == 2 and ".h." in module:
            weight = weight.T
        if architecture.startswith("gemma"):
            scaled = (architecture, module.rsplit(".", 1)[-1]) in (("gemma2", "q_proj"), ("gemma3", "q_norm"))
            scale = np.sqrt(config.head_dim / config.query_pre_attn_scalar) if scaled else 1
            weight = ((weight.astype(np.float64) + module.endswith("norm")) * scale).astype(np.float32)
        if ".experts." in module:
            start, number, part = module.rsplit(".", 2)
            start = start.replace("model.layers", "layers").replace("block_sparse_moe", "feed_forward") if "w" in part and "proj" not in part else start
            experts.setdefault(f"{start}.{part}", {})[int(number)] = weight
            continue
        tensors[f"{names.get_name(module)}.{kind}"] = weight
    for module, parts in experts.items():
        tensors[names.get_name(module) + ".weight"] = np.stack([parts[i] for i in range(len(parts))])
    if architecture == "olmo2" and "output.weight" not in tensors:
        tensors["output.weight"] = tensors["token_embd.weight"]
    return tensors


def check_tensors(path, expected, dtype):
    """The worst difference from what ggml itself makes of the expected numbers: 0."""
    kinds = {"fp32": "F32", "fp16": "F16", "bf16": "BF16", "q8_0": "Q8_0"}
    found = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    extra = set(found) - set(expected) - {"rope_freqs.weight"}
    assert not extra and not set(expected) - set(found), (extra, set(expected) - set(found))
    for name, want in expected.items():
        tensor = found[name]
        kind = tensor.tensor_type
        narrow = want.ndim < 2 or name.endswith(("_norm.weight", "ffn_gate_inp.weight")) or name.startswith("position_embd")
        assert kind.name == ("F32" if narrow else kinds[dtype]), (name, kind)
        got = dequantize(tensor.data, kind) if kind.name != "F32" else tensor.data
        want = dequantize(quantize(np.ascontiguousarray(want), kind), kind) if kind.name != "F32" else want
        assert got.shape == want.shape and np.array_equal(got, want), (name, np.abs(got - want).max())
    return len(expected)


class Cpp:
    """A file in llama.cpp."""

    def __init__(self, path):
        class Model(cpp.LlamaModel):
            n_vocab = VOCABULARY  # which its Python asks for under this name

        self.model = Model(str(path), verbose=False)
        self.vocabulary = self.model.get_vocab()

    def logits(self, tokens):
        params = cpp.LlamaContextParams()
        params.n_ctx, params.type_k, params.type_v, params.flash_attn_type, params.swa_full = POSITIONS, 0, 0, 0, True
        context = cpp.LlamaContext(self.model, params, verbose=False)
        batch = cpp.LlamaBatch(n_tokens=len(tokens), embd=0, n_seq_max=1)
        for at, token in enumerate(tokens):
            batch.add(int(token), at, [0], True)
        context.decode(batch)
        return np.array([context.get_logits_ith(at) for at in range(len(tokens))])

    def greedy(self, tokens, count):
        tokens = list(tokens)
        for _ in range(count):
            tokens.append(int(self.logits(tokens)[-1].argmax()))
        return tokens

    def tokens(self, text):
        return list(self.vocabulary.tokenize(text, True, True))


def check(program, name):
    architecture, style, make = CASES[name]
    torch.manual_seed(sum(map(ord, name)))
    with tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)
        config = make()
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager", experts_implementation="eager").eval()
        with torch.no_grad():
            for p in model.parameters():
                p.add_(0.2 * torch.randn_like(p)) if p.dim() < 2 else p.mul_(4)
        model.save_pretrained(where / "hf")
        shutil.copy(TOKENIZERS / style / "tokenizer.json", where / "hf")
        expected = expected_tensors(where / "hf", config, architecture)
        counted = {}
        for dtype in ("fp32", "fp16", "bf16", "q8_0"):
            done = subprocess.run([program, "export", where / "hf", "--out", where / dtype, "--format", "gguf", "--dtype", dtype], capture_output=True,
                                  text=True)
            assert done.returncode == 0, done.stderr
            counted[dtype] = check_tensors(where / dtype / "model.gguf", expected, dtype)
        line, bad = f"{name}: {counted['fp32']} tensors in four types equal", []
        if cpp:
            rows = torch.randint(3, 590, (1, 40))
            with torch.no_grad():
                want = model(input_ids=rows).logits[0].double().numpy()
            worst = {}
            for dtype in ("fp32", "q8_0"):
                got = Cpp(where / dtype / "model.gguf").logits(rows[0])
                worst[dtype] = float(np.abs(got - want).max() / np.abs(want).max())
            # In 8 bits a token may go to another expert.
            bounds = {"fp32": 5e-3 if name.startswith(LOOSE) else 2e-5, "q8_0": 0.5 if hasattr(config, "num_local_experts") or hasattr(config, "num_experts") else 0.1}
            bad += [f"logits in {dtype}" for dtype in worst if not worst[dtype] <= bounds[dtype]]
            there, tokenizer = Cpp(where / "fp32" / "model.gguf"), Tokenizer.from_file(str(where / "hf" / "tokenizer.json"))
            # llama.cpp puts a space before a text that begins with one too, where `prepend_scheme` does not.
            texts = [text for text in TEXTS if style != "mistral-style" or not text.startswith(" ")]
            for text in texts:
                if there.tokens(text) != tokenizer.encode(text).ids:
                    bad.append(f"tokens of {text!r}: {there.tokens(text)} for {tokenizer.encode(text).ids}")
            prompt = TEXTS[0]
            written = subprocess.run([program, "generate", "--model", where / "hf", "--prompt", prompt, "--temperature", "0", "--max-tokens", "20",
                                      "--json", "--quiet"], capture_output=True, text=True)
            assert written.returncode == 0, written.stderr
            ours = json.loads(written.stdout.splitlines()[-1])
            begun = tokenizer.encode(prompt, add_special_tokens=False).ids
            theirs = there.greedy(begun, 20)[len(begun):]
            end = theirs.index(config.eos_token_id) + 1 if config.eos_token_id in theirs else len(theirs)
            if ours["tokens"] != theirs[: len(ours["tokens"])] or len(ours["tokens"]) < end - 1:
                bad.append(f"greedy tokens {ours['tokens']} for {theirs}")
            line += f"; in llama.cpp logits within {worst['fp32']:.1e} (q8_0 {worst['q8_0']:.1e}), tokens of {len(texts)} texts, 20 greedy tokens"
    print(line + (f"  FAILED: {'; '.join(bad)}" if bad else ""), flush=True)
    return not bad


CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def cased(behind):
    return rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{behind}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{behind}"


# How published tokenizers cut words, and what llama.cpp calls it: the step before the byte-level one, and ignore_merges.
RULES = {
    "llama-bpe": (CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + REST, True),
    "dbrx": (CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + REST, False),
    "qwen2": (CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + REST, False),
    "tekken": (cased("") + r"|\p{N}" + REST.replace(r"[\r\n]*", r"[\r\n/]*"), False),
    "gpt-4o": (cased(CONTRACTIONS + "?") + r"|\p{N}{1,3}" + REST.replace(r"[\r\n]*", r"[\r\n/]*"), False),
    "smollm": ({"type": "Digits", "individual_digits": True}, False),
    "gpt-2": (None, False),
}


def check_rules(program):
    """Each rule by its name, and where llama.cpp is here the tokens that it gives."""
    bad = []
    for name, (pattern, ignore_merges) in RULES.items():
        with tempfile.TemporaryDirectory() as folder:
            where = pathlib.Path(folder)
            transformers.LlamaForCausalLM(transformers.LlamaConfig(**COMMON, **LLAMA3)).save_pretrained(where / "hf")
            read = json.loads((TOKENIZERS / "llama3-style" / "tokenizer.json").read_text())
            own = pattern is None or isinstance(pattern, dict)
            split = pattern if own else {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
            bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": own}
            read["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, bytes_]} if split else bytes_
            read["model"]["ignore_merges"] = ignore_merges
            (where / "hf" / "tokenizer.json").write_text(json.dumps(read))
            subprocess.run([program, "export", where / "hf", "--out", where / "out", "--format", "gguf"], check=True, capture_output=True)
            field = gguf.GGUFReader(where / "out" / "model.gguf").get_field("tokenizer.ggml.pre")
            if field.contents() != name:
                bad.append(f"{field.contents()} for {name}")
            if cpp:
                there, tokenizer = Cpp(where / "out" / "model.gguf"), Tokenizer.from_file(str(where / "hf" / "tokenizer.json"))
                bad += [f"{name}: tokens of {text!r}" for text in TEXTS if there.tokens(text) != tokenizer.encode(text).ids]
    print(f"{len(RULES)} rules that cut words" + (f"  FAILED: {'; '.join(bad)}" if bad else ""), flush=True)
    return not bad


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    names = sys.argv[2:] or list(CASES)
    print("llama.cpp: " + (f"of cyllama, ggml {cpp.ggml_version()}" if cpp else "not here (pip install cyllama)"))
    held = [check(program, name) for name in names]
    if not sys.argv[2:]:
        held.append(check_rules(program))
    print(f"{sum(held)} of {len(held)} hold")
    sys.exit(0 if all(held) else 1)


main()
