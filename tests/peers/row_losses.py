"""Rows at every door against transformers in fp64: which tokens a model sees, and which of them count.

    SPW=build/release/spillway python tests/peers/row_losses.py [OUT]     (torch, transformers 5.24, tokenizers)

Ten tokenizers of five kinds (byte-level BPE, BPE as of Llama 2, Mistral and Gemma, Unigram, WordPiece) with post-processors that put
nothing, a first token, a last token or both around a text, each at eight doors: train's text rows, completions, Alpaca rows,
conversations and .txt, evaluate, generate and inspect. Then packed and padded rows of tokens. Models take turns: Llama, Mistral with a
window, Gemma and Qwen 2, tiny and random. A line says `right` or `WRONG` with both numbers; the exit status is the number of wrong ones.
Losses must agree to 1e-6 relative (transformers rounds norms and
RoPE to fp32; another token is 1e-3 and more), tokens and counts exactly. Masks of completions are TRL's rule (SFTTrainer, common_prefix_length).
"""

import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

import torch
import transformers as tf
from tokenizers import Tokenizer, processors

torch.set_num_threads(1)
tf.utils.logging.set_verbosity_error()
tf.utils.logging.disable_progress_bar()
SPW = os.environ.get("SPW", "build/release/spillway")
OUT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "/tmp/row-losses")
DATA = pathlib.Path(__file__).parent.parent / "data"
CPU = ["--device", "cpu", "--precision", "fp64", "--device-memory", "300MiB", "--host-memory", "100MiB", "--quiet"]
T = 128
wrong = 0

# style: (first token, end-of-text token, what the post-processor puts around a text or None for the file's own)
TOKENIZERS = {
    "gpt2-style": (None, "<|endoftext|>", None),
    "llama3-style": ("<|begin_of_text|>", "<|end_of_text|>", None),
    "llama2-style": ("<s>", "</s>", None),
    "mistral-style": ("<s>", "</s>", None),
    "gemma-style": ("<s>", "</s>", None),
    "t5-style": (None, "</s>", None),
    "xlmr-style": ("<s>", "</s>", None),
    "bert-style": (None, None, None),
    "llama2-style both": ("<s>", "</s>", ("<s>", "</s>")),
    "llama3-style none": ("<|begin_of_text|>", "<|end_of_text|>", ()),
}
CHAT = (
    "{{ bos_token or '' }}{% for m in messages %}[{{ m.role }}] {{ m.content }}"
    "{% if m.role == 'assistant' %}{{ eos_token or ' end' }}{% endif %}{{ '\\n' }}{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}"
)


def say(name, got, want):
    global wrong
    same = got == want if not isinstance(want, float) else isinstance(got, float) and abs(got - want) <= 1e-6 * abs(want)
    wrong += not same
    print("right" if same else "WRONG", name, "" if same else f"spillway {got!r}, transformers {want!r}", flush=True)


def run(*words):
    r = subprocess.run([SPW, *map(str, words)], capture_output=True, text=True)
    return r.stdout if r.returncode == 0 else f"exit {r.returncode}: {(r.stdout + r.stderr)[-400:]}"


def model_of(kind, vocabulary, folder):
    torch.manual_seed(3)
    small = dict(vocab_size=vocabulary, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                 max_position_embeddings=256, bos_token_id=None, eos_token_id=None, pad_token_id=None)
    config = {"llama": lambda: tf.LlamaConfig(**small), "mistral": lambda: tf.MistralConfig(**small, sliding_window=24),
              "gemma": lambda: tf.Gemma2Config(**small, head_dim=8, query_pre_attn_scalar=8, sliding_window=24), "qwen2": lambda: tf.Qwen2Config(**small)}[kind]()
    m = tf.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for p in m.parameters():
            p.normal_(0, 0.3) if p.dim() > 1 else None
    m.save_pretrained(folder)
    return tf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")


def nll(m, ids, mask):
    """The sum of the losses of the tokens of `mask`, but the first, and how many they are."""
    with torch.no_grad():
        logits = m(input_ids=torch.tensor([ids]), use_cache=False).logits[0, :-1]
    losses = torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="none")
    counted = torch.tensor(mask[1:], dtype=torch.bool)
    return losses[counted].sum().item(), int(counted.sum())


def mean(m, documents):
    sums = [nll(m, ids[:T], mask[:T]) for ids, mask in documents]
    return sum(s for s, _ in sums) / sum(n for _, n in sums)


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def first_loss(model, data, rows, *more, packing="off"):
    out = OUT / "run"
    shutil.rmtree(out, ignore_errors=True)
    said = run("train", "--model", model, "--data", data, "--packing", packing, "--data-order", "sequential", "--sequence-length", T, "--steps", 1,
               "--micro-batch-size", rows, "--learning-rate", 0, "--lr-schedule", "constant", "--warmup-steps", 0, "--tensorboard", "off",
               "--no-final-checkpoint", "--out", out, *CPU, *more)
    try:
        return json.loads((out / "metrics.jsonl").read_text().split("\n")[0])["loss"]
    except FileNotFoundError:
        return said


def evaluated(model, data, *more):
    said = run("evaluate", "--model", model, "--data", data, "--packing", "off", "--sequence-length", T, "--json", "--data-cache", OUT / "cache", *CPU, *more)
    return json.loads(said)["loss"] if said.startswith("{") else said


def ended(text, eos):
    return text if not eos or text.endswith(eos) else text + eos


def without_twice(ids, eos_id):
    return ids[:-1] if eos_id is not None and len(ids) > 1 and ids[-1] == ids[-2] == eos_id else ids


def completion_document(t, prompt, completion, eos, eos_id):
    """TRL's SFTTrainer: the completion begins where the prompt's ids and both texts' part; an end token that the post-processor puts again goes."""
    both = without_twice(t(ended(prompt + completion, eos))["input_ids"], eos_id)
    alone, n = t(prompt)["input_ids"], 0
    behind = len(t("")["input_ids"]) and t("")["input_ids"][-1] == eos_id
    alone = alone[:-1] if behind else alone
    while n < min(len(alone), len(both)) and alone[n] == both[n]:
        n += 1
    return both, [0] * n + [1] * (len(both) - n)


def conversation_document(t, messages, eos):
    text = t.apply_chat_template(messages, tokenize=False)
    spans, at = [], 0
    for m in messages:
        if m["role"] == "assistant":
            begin = text.index("[assistant] " + m["content"], at) + len("[assistant] ")
            at = begin + len(m["content"]) + len(eos or " end") + 1
            spans.append((begin, at))
    both = t(text, add_special_tokens=False, return_offsets_mapping=True)
    return both["input_ids"], [int(any(a < e and s < b for s, e in spans)) for a, b in both["offset_mapping"]]


def doors(name, bos, eos, around, kind):
    folder = OUT / name.replace(" ", "-")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    file = Tokenizer.from_file(str(DATA / "tokenizer" / name.split()[0] / "tokenizer.json"))
    if around is not None:
        special = [(x, file.token_to_id(x)) for x in around]
        file.post_processor = processors.TemplateProcessing(single=f"{around[0]} $A {around[1]}" if around else "$A", special_tokens=special)
    file.save(str(folder / "tokenizer.json"))
    named = {k: v for k, v in (("bos_token", bos), ("eos_token", eos)) if v}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": CHAT, **named}))
    m = model_of(kind, file.get_vocab_size(), folder)
    t = tf.PreTrainedTokenizerFast.from_pretrained(folder)
    eos_id = t.eos_token_id
    texts = ["In the beginning God created the heaven and the earth.", "Let there be light", (bos or "") + "And God said" + (eos or "")]

    def whole(text):
        ids = t(ended(text, eos))["input_ids"]
        ids = ids[1:] if bos and text.startswith(bos) and ids[:2] == [t.bos_token_id] * 2 else ids
        return without_twice(ids, eos_id)

    documents = [(ids, [1] * len(ids)) for ids in map(whole, texts)]
    rows = write(folder / "text.jsonl", [{"text": x} for x in texts])
    label = f"{name} ({kind})"
    say(f"{label}: train, text", first_loss(folder, rows, 3), mean(m, documents))
    say(f"{label}: evaluate, text", evaluated(folder, rows), mean(m, documents))
    pairs = [("Who made it?\n", "God made it."), ("Who built the ark? ", "Noah."), ("the beginn", "ing of the world")]
    documents = [completion_document(t, p, c, eos, eos_id) for p, c in pairs]
    rows = write(folder / "completion.jsonl", [{"prompt": p, "completion": c} for p, c in pairs])
    say(f"{label}: train, completion", first_loss(folder, rows, 3), mean(m, documents))
    say(f"{label}: evaluate, completion", evaluated(folder, rows), mean(m, documents))
    prompt = "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n### Instruction:\nWho?\n\n### Response:\n"
    rows = write(folder / "alpaca.jsonl", [{"instruction": "Who?", "input": "", "output": "Miller"}])
    say(f"{label}: train, alpaca", first_loss(folder, rows, 1), mean(m, [completion_document(t, prompt, "Miller", eos, eos_id)]))
    messages = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "God."}, {"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}]
    rows = write(folder / "messages.jsonl", [{"messages": messages}])
    say(f"{label}: train, messages", first_loss(folder, rows, 1), mean(m, [conversation_document(t, messages, eos)]))
    text = "In the beginning God created the heaven and the earth.\nAnd God said, Let there be light.\n" * 12
    (folder / "long.txt").write_text(text)
    ids = whole(text)
    windows = [ids[i : i + T + 1] for i in range(0, len(ids) - T, T)][:2]
    sums = [nll(m, w, [1] * len(w)) for w in windows]
    say(f"{label}: train, .txt", first_loss(folder, folder / "long.txt", len(windows)), sum(s for s, _ in sums) / sum(n for _, n in sums))
    say(f"{label}: generate", greedy(folder, "And God"), greedy_of(m, t("And God")["input_ids"]))
    said = run("inspect", folder / "text.jsonl", "--model", folder, "--json", "--packing", "off", "--sequence-length", T, "--data-cache", OUT / "cache")
    say(f"{label}: inspect", json.loads(said)["tokens"] if said.startswith("{") else said, sum(len(whole(x)) for x in texts))


def greedy(folder, prompt):
    said = run("generate", "--model", folder, "--prompt", prompt, "--max-tokens", 6, "--temperature", 0, "--json", *CPU)
    return json.loads(said)["tokens"] if said.startswith("{") else said


def greedy_of(m, ids):
    out = []
    for _ in range(6):
        with torch.no_grad():
            out.append(int(m(input_ids=torch.tensor([ids + out]), use_cache=False).logits[0, -1].argmax()))
    return out


def packed_and_padded():
    rng = random.Random(2)
    for kind in ("llama", "mistral", "gemma", "qwen2"):
        folder = OUT / f"packed-{kind}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        m = model_of(kind, 97, folder)
        a, b, c = ([rng.randrange(97) for _ in range(n)] for n in (30, 9, 7))
        ids = a + b + c
        counted = [int(rng.random() < 0.7) for _ in ids]
        labels = [i if k else -100 for i, k in zip(ids, counted)]
        parts = [(a, counted[:30]), (b, counted[30:39]), (c, counted[39:])]
        positions = [*range(30), *range(9), *range(7)]
        want = mean(m, parts)
        theirs = labels[:30] + [-100] + labels[31:39] + [-100] + labels[40:]
        with torch.no_grad():
            say(f"{kind}: documents apart are transformers' with position_ids", m(input_ids=torch.tensor([ids]), position_ids=torch.tensor([positions]),
                labels=torch.tensor([theirs]), use_cache=False).loss.item(), want)
        keys = {"position_ids": positions, "seq_lengths": [30, 9, 7], "attention_mask": [1] * 30 + [2] * 9 + [3] * 7}
        for key, value in keys.items():
            rows = write(folder / "rows.jsonl", [{"input_ids": ids, "labels": labels, key: value}])
            say(f"{kind}: packed by {key}", first_loss(folder, rows, 1, "--tokenizer", "bytes"), want)
        padded = [{"input_ids": [0] * k + x + [0] * (5 - k), "labels": [-100] * k + x + [-100] * (5 - k), "attention_mask": [0] * k + [1] * len(x) + [0] * (5 - k)}
                  for k, x in ((0, a), (5, b), (2, c))]
        want = mean(m, [(x, [1] * len(x)) for x in (a, b, c)])
        say(f"{kind}: padded", first_loss(folder, write(folder / "padded.jsonl", padded), 3, "--tokenizer", "bytes"), want)
        say(f"{kind}: padded, packed here", first_loss(folder, folder / "padded.jsonl", 1, "--tokenizer", "bytes", packing="on"), want)
        masks = {"completion_mask": counted, "assistant_masks": counted}
        for key, value in masks.items():
            rows = write(folder / "masked.jsonl", [{"input_ids": ids, key: value}])
            say(f"{kind}: {key}", first_loss(folder, rows, 1, "--tokenizer", "bytes"), mean(m, [(ids, counted)]))


if __name__ == "__main__":
    for (name, (bos, eos, around)), kind in zip(TOKENIZERS.items(), ["llama", "mistral", "gemma", "qwen2"] * 3):
        doors(name, bos, eos, around, kind)
    packed_and_padded()
    print(f"{wrong} wrong")
    sys.exit(min(wrong, 125))
