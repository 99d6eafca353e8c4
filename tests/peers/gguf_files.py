"""Writes what tests/models/gguf reads, with ggml's own Python package: `llama-tiny.gguf` of tests/data/llama-tiny, as q8_0 where its rows are
whole blocks; for each kind of tokenizer a file with the metadata that it becomes; and `q8_0.f32`, numbers with `q8_0.bytes`, their blocks.

    python tests/peers/gguf_files.py        # needs gguf, numpy and safetensors
"""
import json
import pathlib

import gguf
import numpy as np
from gguf.quants import quantize
from safetensors.numpy import load_file

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
OUT = DATA / "gguf"
Q8, F16, F32 = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.F16, gguf.GGMLQuantizationType.F32


def interleaved(weight, heads):
    """A head's two halves, row by row beside each other: what llama.cpp's kind of rotary positions turns."""
    width = len(weight) // heads
    rows = [h * width + half * (width // 2) + i for h in range(heads) for i in range(width // 2) for half in (0, 1)]
    return weight[rows]


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def model():
    folder = DATA / "llama-tiny"
    config, weights = json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(OUT / "llama-tiny.gguf", "llama")
    writer.add_type("model")
    writer.add_name("a name")
    writer.add_vocab_size(config["vocab_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(groups)
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_tokenizer_model("none")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    order = ["model.embed_tokens"]
    for layer in range(config["num_hidden_layers"]):
        order += [f"model.layers.{layer}.{part}" for part in (
            "input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "post_attention_layernorm",
            "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")]
    for module in order + ["model.norm", "lm_head"]:
        weight = weights[module + ".weight"]
        if module.endswith("q_proj"):
            weight = interleaved(weight, heads)
        if module.endswith("k_proj"):
            weight = interleaved(weight, groups)
        kind = F32 if weight.ndim == 1 else Q8 if weight.shape[-1] % 32 == 0 else F16
        writer.add_tensor(names.get_name(module) + ".weight", quantize(weight, kind), raw_dtype=kind)
    finish(writer)


def tokenizer(style, vocabulary, rule, begin, end):
    read = json.loads((DATA / "tokenizer" / style / "tokenizer.json").read_text())
    model = read["model"]
    tokens, kinds = [f"[PAD{i}]" for i in range(vocabulary)], [gguf.TokenType.UNUSED] * vocabulary
    for token, at in model["vocab"].items():
        byte = model["byte_fallback"] and len(token) == 6 and token.startswith("<0x")
        tokens[at], kinds[at] = token, gguf.TokenType.BYTE if byte else gguf.TokenType.NORMAL
    for token in read["added_tokens"]:
        tokens[token["id"]] = token["content"]
        kinds[token["id"]] = gguf.TokenType.CONTROL if token["special"] else gguf.TokenType.USER_DEFINED
    unknown = None if rule else model["vocab"][model["unk_token"]]
    if unknown is not None:
        kinds[unknown] = gguf.TokenType.UNKNOWN
    writer = gguf.GGUFWriter(OUT / f"{style}.gguf", "llama")
    writer.add_tokenizer_model("gpt2" if rule else "llama")
    writer.add_tokenizer_pre(rule or "default")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    merges = [merge if isinstance(merge, list) else merge.split(" ") for merge in model["merges"]]
    if rule:
        writer.add_token_merges([" ".join(merge) for merge in merges])
    else:
        ranks = {}
        for rank, (left, right) in enumerate(merges):
            ranks.setdefault(left + right, rank)
        last = -float(len(merges)) - 1
        writer.add_token_scores([-1.0 - ranks[token] if token in ranks else last if kind == gguf.TokenType.NORMAL else 0.0
                                 for token, kind in zip(tokens, kinds)])
        first = json.dumps(read["normalizer"]) + json.dumps(read["pre_tokenizer"])
        writer.add_add_space_prefix("Prepend" in first or "prepend_scheme" in first)
    if begin is not None:
        writer.add_bos_token_id(begin)
    writer.add_eos_token_id(end)
    if unknown is not None:
        writer.add_unk_token_id(unknown)
    writer.add_add_bos_token("TemplateProcessing" in json.dumps(read["post_processor"]))
    writer.add_add_eos_token(False)
    writer.add_tensor("x.weight", np.arange(8, dtype=np.float32))
    finish(writer)


def blocks():
    random = np.random.default_rng(8)
    block = lambda scale: (random.standard_normal(32) * scale).astype(np.float32)
    some = [block(s) for s in (1, 1e-3, 1e3, 2e6, 1e-6, 1e-10, 1e-30, 3e-37)]
    some += [np.zeros(32, np.float32), np.full(32, -0.0, np.float32), np.full(32, 7.0, np.float32), -np.full(32, 7.0, np.float32)]
    halves = np.arange(-16, 16, dtype=np.float32) + np.float32(0.5)  # a scale of one: all of them lie between two numbers
    halves[0] = 127
    some += [halves, np.nextafter(halves, np.float32(0)), np.nextafter(halves, np.float32(1e9))]
    spike = np.full(32, 1e-5, np.float32)
    spike[17] = -8.3e6
    tiny = np.full(32, 1e-44, np.float32)  # the least numbers, beside one whose scale is an ordinary number, and one whose scale is not
    for largest in (2e-36, 8e-37):
        tiny[3] = largest
        some.append(tiny.copy())
    some += [spike] + [block(10.0 ** e) for e in range(-8, 6)]
    values = np.concatenate(some)
    values.tofile(OUT / "q8_0.f32")
    quantize(values.reshape(-1, 32), Q8).tofile(OUT / "q8_0.bytes")


model()
tokenizer("gpt2-style", 520, "gpt-2", None, 0)
tokenizer("llama3-style", 648, "dbrx", 640, 641)
tokenizer("llama2-style", 600, None, 1, 2)
tokenizer("gemma-style", 603, None, 1, 2)
blocks()
