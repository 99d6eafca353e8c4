#!/usr/bin/env python3
"""Compares the tokenizer room with Hugging Face's tokenizers, text by text: the fixtures, tokenizers trained here, every normalizer,
pre-tokenizer and decoder by itself, and the trainer; with --speed, their speed.

Needs: the package tokenizers (0.23), the program bible (Debian: bible-kjv), and tests/peers/compare_tokenizers.cc built:
  g++ -std=c++20 -O2 -I. -Isrc tests/peers/compare_tokenizers.cc build/rel/libspillway_data_tokenizer.a -lpcre2-8 -lutf8proc -lpthread -o PROGRAM
Usage: compare_tokenizers.py PROGRAM [--texts 2000] [--seed 1] [--speed] [--only NAME]"""
import argparse
import json
import os
import random
import subprocess
import tempfile
import time
import unicodedata

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers, AddedToken, Regex

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(HERE, "..", "data", "tokenizer")
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
GPT4O = ("|".join([r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + CONTRACTIONS + "?",
                   r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + CONTRACTIONS + "?",
                   r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"]))
TIKTOKEN = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"


class Ours:
    def __init__(self, program, text):
        self.folder = tempfile.TemporaryDirectory()
        self.file = os.path.join(self.folder.name, "tokenizer.json")
        with open(self.file, "w", encoding="utf-8") as f:
            f.write(text)
        self.process = subprocess.Popen([program, self.file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"the program died at: {line[:200]}")
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def kjv():
    return subprocess.run(["bible", "-f", "gen1:1-rev22:21"], capture_output=True, text=True, check=True).stdout.splitlines(keepends=True)


# Characters as old as Unicode 3.2 that have not changed their category, and emoji: about younger ones the tables of Hugging Face's parts
# (Unicode 9 to 16), of PCRE2 and of utf8proc are not of one mind.
ASSIGNED = [c for c in map(chr, range(0x110000)) if unicodedata.ucd_3_2_0.category(c) == unicodedata.category(c) not in ("Cs", "Cn") or 0x1F300 <= ord(c) < 0x1F650]
RANGES = [(0, 0x80), (0x80, 0x250), (0x300, 0x370), (0x370, 0x530), (0x590, 0x780), (0x900, 0xE80), (0x1100, 0x1200), (0x1E00, 0x2000), (0x2000, 0x2070),
          (0x2070, 0x2C00), (0x3000, 0x3130), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xFB00, 0x10000), (0x1F000, 0x1FB00)]
BY_RANGE = [[c for c in ASSIGNED if low <= ord(c) < high] for low, high in RANGES]
SNIPPETS = ["I'll don't we've IT'S 'ſ", "  \n\n \t x", "   ", "\r\n", "a\u0301e\u0308", "👩‍👩‍👧", "🇩🇪", "１２３", "12345678", "\u2581", "\u200b", "<0x0A>",
            "for (int i = 0; i < n; ++i) {\n\treturn;\n}", "\u180e", "\u0085", "\xa0", "\x00", "\x7f", "İ", "ß", "ﬁ", "\u1e0b\u0323", "각", "ㄱ", "ﬃ", "don't 's",
            "\ufffd", "世界", "naïve", "Ⅷ", "²", "\u2028", "\u3000", "!!", "...", "http://a.b/c?d=e", "word", "Word ", " the", "</s>", "[MASK]", "\u0f73", "\u0344", "ＡＢ"]

KNOWN = set(ASSIGNED) | set("".join(SNIPPETS))


def random_text(rng, lines, special):
    kind = rng.randrange(8)
    if kind == 0:
        return "".join(rng.choice(ASSIGNED) for _ in range(rng.randrange(1, 30)))
    if kind == 1:
        return "".join(rng.sample(lines, rng.randrange(1, 4)))
    parts = []
    for _ in range(rng.randrange(0, 14)):
        pick = rng.randrange(7)
        if pick == 0 and special:
            parts.append(rng.choice(special))
        elif pick == 1:
            parts.append(" " * rng.randrange(1, 5))
        elif pick == 2:
            parts.append("".join(rng.choice(rng.choice(BY_RANGE)) for _ in range(rng.randrange(1, 6))))
        elif pick == 3:
            block = rng.choice(BY_RANGE)
            parts.append("".join(rng.choice(block) for _ in range(rng.randrange(1, 8))))
        elif pick == 4:
            line = rng.choice(lines)
            at = rng.randrange(len(line))
            parts.append(line[at:at + rng.randrange(1, 30)])
        else:
            parts.append(rng.choice(SNIPPETS))
    return "".join(parts)


def random_bytes(rng, lines, special):
    raw = bytearray(random_text(rng, lines, special).encode("utf-8"))
    for _ in range(rng.randrange(0, 4) if rng.randrange(4) == 0 else 0):
        at = rng.randrange(len(raw) + 1)
        raw[at:at + rng.randrange(2)] = bytes([rng.choice([0x80, 0xC3, 0xE2, 0xF0, 0xFF, rng.randrange(256)])])
    return bytes(raw)


def rounded_out(raw, ranges):
    """To whole characters of the replaced text, as character numbers."""
    starts, number = {}, 0
    bounds = []  # of each character of the text, in bytes of raw
    at = 0
    while at < len(raw):
        for size in (1, 2, 3, 4):
            try:
                if len(raw[at:at + size].decode("utf-8")) == 1:
                    break
            except UnicodeDecodeError:
                pass
        else:
            size = 1
            while size < 3 and at + size < len(raw) and raw[at:at + size + 1].decode("utf-8", "replace") == "\ufffd":
                size += 1
        bounds.append((at, at + size))
        at += size
    owner = [i for i, (b, e) in enumerate(bounds) for _ in range(b, e)]
    return [(owner[b], owner[e - 1] + 1) if e > b else None for b, e in ranges]


class Comparison:
    def __init__(self, options, lines):
        self.options, self.lines, self.failed, self.texts = options, lines, 0, 0

    def texts_of(self, name, theirs, texts, offsets="equal", special=()):
        """offsets: "equal", "inside" (ours cover whole clusters where a normalizer joined some, theirs the first character), or None."""
        if self.options.only and self.options.only not in name:
            return
        rng = random.Random(f"{self.options.seed} {name}")
        ours = Ours(self.options.program, theirs.to_str())
        differ = {}
        for _ in range(texts):
            raw = random_bytes(rng, self.lines, list(special))
            text = raw.decode("utf-8", "replace")
            if not KNOWN.issuperset(text):  # made by broken bytes
                continue
            self.texts += 1
            try:
                want = theirs.encode(text, add_special_tokens=False)
            except Exception:
                continue
            got = ours.ask("e " + raw.hex())
            if "error" in got:
                differ.setdefault("error", []).append((text, got["error"], ""))
                break
            wanted = {"ids": want.ids, "special": theirs.encode(text, add_special_tokens=True).ids, "text": theirs.decode(want.ids, skip_special_tokens=False),
                      "skipped": theirs.decode(want.ids, skip_special_tokens=True), "stream": True, "same": True}
            for key, value in wanted.items():
                if got[key] != value:
                    differ.setdefault(key, []).append((text, got[key], value))
            if offsets and got["ids"] == want.ids:
                mine = rounded_out(raw, got["ranges"])
                bad = [(m, o) for m, o in zip(mine, want.offsets) if m is not None and m != tuple(o) and not (offsets == "inside" and m[0] <= o[0] and o[1] <= m[1])]
                if bad:
                    differ.setdefault("offsets", []).append((text, mine, want.offsets))
            cut = ours.ask("c " + raw.hex())
            if not cut["same"]:
                differ.setdefault("cut", []).append((text, cut, ""))
        ours.close()
        self.report(name, texts, differ)

    def ids_of(self, name, theirs, count, rounds):
        """Decodes random ids."""
        if self.options.only and self.options.only not in name:
            return
        rng = random.Random(f"{self.options.seed} {name}")
        ours = Ours(self.options.program, theirs.to_str())
        differ = {}
        for _ in range(rounds):
            ids = [rng.randrange(count) for _ in range(rng.randrange(0, 12))]
            self.texts += 1
            try:
                want = theirs.decode(ids, skip_special_tokens=False)
            except BaseException:
                continue
            got = ours.ask("d " + " ".join(map(str, ids)))
            if "error" in got or got["text"] != want or not got["stream"]:
                differ.setdefault("decode", []).append(([theirs.id_to_token(i) for i in ids], got, want))
                if "error" in got:
                    break
        ours.close()
        self.report(name, rounds, differ)

    def report(self, name, count, differ):
        print(f"{name:44} {count:6} texts  " + (", ".join(f"{k}: {len(v)} differ" for k, v in differ.items()) or "equal"))
        for key, cases in differ.items():
            self.failed += len(cases)
            for text, got, want in sorted(cases, key=lambda c: len(str(c[0])))[:2]:
                print(f"    {key} of {ascii(text)[:300]}\n      ours   {ascii(got)[:400]}\n      theirs {ascii(want)[:400]}")


def seeing(normalizer=None, pre_tokenizer=None):
    """A model that shows each byte of each piece, and where pieces begin."""
    vocab = {f"<0x{b:02X}>": b for b in range(256)}
    t = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True, continuing_subword_prefix="##"))
    if normalizer is not None:
        t.normalizer = normalizer
    if pre_tokenizer is not None:
        t.pre_tokenizer = pre_tokenizer
    return t


def trained(lines, pattern, normalizer=None, size=4000):
    t = Tokenizer(models.BPE())
    if pattern is None:
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
                                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    if normalizer is not None:
        t.normalizer = normalizer
    t.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=size, special_tokens=["<|endoftext|>", "<|im_start|>"], show_progress=False,
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return t


def with_odd_tokens(t):
    t.add_special_tokens([AddedToken("<mask>", lstrip=True), AddedToken("<r>", rstrip=True), AddedToken("<both>", lstrip=True, rstrip=True)])
    t.add_tokens([AddedToken("lord", single_word=True), AddedToken("God", single_word=False), AddedToken("the Lord"), AddedToken("é", normalized=True),
                  AddedToken("  ", normalized=False), AddedToken("<|im", normalized=False)])
    return ["<mask>", " <mask> ", "<r>  ", " <both> ", "lord", "xlord", "God", "the Lord", "é", "e\u0301", "  ", "<|im_start|>", "<|im", "<|endoftext|>"]


def components():
    n, p = normalizers, pre_tokenizers
    for name, value in {
            "NFC": n.NFC(), "NFD": n.NFD(), "NFKC": n.NFKC(), "NFKD": n.NFKD(), "Lowercase": n.Lowercase(), "StripAccents": n.StripAccents(),
            "Strip": n.Strip(), "StripLeft": n.Strip(right=False), "Prepend": n.Prepend("ab"), "Nmt": n.Nmt(), "ByteLevel": n.ByteLevel(),
            "Bert": n.BertNormalizer(), "BertCased": n.BertNormalizer(lowercase=False), "BertRaw": n.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False),
            "ReplaceString": n.Replace("th", "\u2581\u2581"), "ReplaceRegex": n.Replace(Regex(r"\s{2,}|\d+"), "x"), "ReplaceEmpty": n.Replace(Regex("x*"), "-"),
            "NFKDStrip": n.Sequence([n.NFKD(), n.StripAccents(), n.Lowercase(), n.Strip()])}.items():
        yield "normalizer " + name, seeing(normalizer=value)
    behaviours = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
    cases = {"ByteLevel": p.ByteLevel(), "Whitespace": p.Whitespace(), "WhitespaceSplit": p.WhitespaceSplit(), "Bert": p.BertPreTokenizer(), "Digits": p.Digits(),
             "DigitsApart": p.Digits(individual_digits=True), "CharDelimiter": p.CharDelimiterSplit("e"),
             "Sequence": p.Sequence([p.Digits(individual_digits=True), p.Split(Regex(QWEN2), "isolated"), p.ByteLevel(use_regex=False)])}
    for b in behaviours:
        cases["Punctuation " + b] = p.Punctuation(b)
        cases["Split string " + b] = p.Split(" ", b)
        cases["Split regex " + b] = p.Split(Regex(r"\s+|\d"), b)
        cases["Split inverted " + b] = p.Split(Regex(r"\w+"), b, invert=True)
    for scheme in ("always", "first", "never"):
        for split in (True, False):
            cases[f"Metaspace {scheme} {split}"] = p.Metaspace(prepend_scheme=scheme, split=split)
    regexes = {"GPT-4o": GPT4O, "tiktoken": TIKTOKEN, "spaces": r"\s", "no spaces": r"\S+", "words": r"\w+", "no words": r"\W+", "digits": r"\d+", "borders": r"\b",
               "classes": r"[\w.]+|[^\S\n]+", "any": r".", "lines": r"^.|.$", "look behind": r"(?<=\p{Lu})\p{Ll}+|(?<!a)b", "scripts": r"\p{Han}+|\p{Greek}+|\p{Hiragana}",
               "case": r"(?i)straße|K+|σ", "dot": r"(?m:a.)", "repeat": r"\p{N}{2}+", "hex": r"\h+", "bare": r"a{,2}b", "categories": r"[\p{P}\p{S}]|\p{M}+", "negated": r"\P{L}+|\p{^N}", "nested": r" ?[^(\s|[.,!?…。，、।۔،])]+"}
    for name, regex in regexes.items():
        cases["Regex " + name] = p.Split(Regex(regex), "isolated")
    for name, value in cases.items():
        yield "pre-tokenizer " + name, seeing(pre_tokenizer=value)


def decoder_cases():
    d = decoders
    cases = {"none": None, "ByteLevel": d.ByteLevel(), "ByteFallback": d.ByteFallback(), "Fuse": d.Fuse(), "Strip": d.Strip("a", 2, 0), "StripStop": d.Sequence([d.Fuse(), d.Strip("a", 1, 1)]),
             "Replace": d.Replace("ab", "X"), "ReplaceFused": d.Sequence([d.Fuse(), d.Replace("aba", "")]), "ReplaceRegex": d.Replace(Regex("a+"), "<>"),
             "Metaspace": d.Metaspace(), "MetaspaceNever": d.Metaspace(prepend_scheme="never"), "WordPiece": d.WordPiece(), "WordPieceRaw": d.WordPiece("a", cleanup=False),
             "BPE": d.BPEDecoder(), "Llama": d.Sequence([d.Replace("\u2581", " "), d.ByteFallback(), d.Fuse(), d.Strip(" ", 1, 0)]),
             "Mixed": d.Sequence([d.ByteFallback(), d.Metaspace(), d.Replace(" ", "ab"), d.Fuse(), d.Replace("ba", "")])}
    tokens = [f"<0x{b:02X}>" for b in (0x41, 0xC3, 0xA9, 0xE2, 0x96, 0x81, 0xF0, 0x9F)] + ["<0x+F>", "<0xgg>", "a", "ab", "aba", "b", "aa", "##a", "##", "a</w>", "</w>", "\u2581", "\u2581a", "a\u2581b", " ", " a",
             ".", " .", "n't", " n't", "do not", "'", "' ", "\u0120", "\u0120a", "\u00e9", "\u4e16", "\u0122", "\u0122\u0122", "\u00c3", "\u00a9", "\u00e2", "a\u4e16"]
    for name, value in cases.items():
        t = Tokenizer(models.WordLevel({x: i for i, x in enumerate(tokens)}, unk_token="a"))
        if value is not None:
            t.decoder = value
        yield "decoder " + name, t, len(tokens)


def same_training(options, lines):
    """Both trainers on the same lines."""
    with tempfile.TemporaryDirectory() as folder:
        text, file = os.path.join(folder, "text"), os.path.join(folder, "trained.json")
        with open(text, "w", encoding="utf-8") as f:
            f.write("".join(lines))
        ours = Ours(options.program, seeing().to_str())
        ours.ask(f"v {text} 8000 {file}")
        ours.close()
        t = Tokenizer(models.BPE())
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        t.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=8000, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False,
                                                         initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        mine, theirs = (json.loads(x.to_str())["model"] for x in (Tokenizer.from_file(file), t))
    same = mine["vocab"] == theirs["vocab"] and mine["merges"] == theirs["merges"]
    print(f"training: {len(theirs['merges'])} merges, " + ("equal" if same else "different"))
    return same


def speed(options, lines):
    t = trained(lines, None, size=8000)
    for name, tokenizer in {"byte-level BPE, 8000": t, **{s: Tokenizer.from_file(os.path.join(FIXTURES, s, "tokenizer.json")) for s in ("llama2-style", "bert-style", "xlmr-style")}}.items():
        many = lines * 12
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as f:
            f.write("".join(many))
            f.flush()
            size = os.path.getsize(f.name) / 1e6
            ours = Ours(options.program, tokenizer.to_str())
            for jobs in (1, 2):
                start = time.time()
                answer = ours.ask(f"t {f.name} {jobs}")
                print(f"{name:24} ours, {jobs} threads:   {size / answer['seconds']:8.1f} MB/s, {answer['tokens']} tokens")
            ours.close()
        start = time.time()
        tokens = sum(len(e.ids) for e in tokenizer.encode_batch_fast(many, add_special_tokens=False))
        print(f"{name:24} theirs, {os.environ['RAYON_NUM_THREADS']} threads: {size / (time.time() - start):8.1f} MB/s, {tokens} tokens")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--only")
    options = parser.parse_args()
    os.environ.setdefault("RAYON_NUM_THREADS", "2")
    lines = kjv()
    if options.speed:
        return speed(options, lines)
    c = Comparison(options, lines)
    for style in sorted(os.listdir(FIXTURES)):
        file = os.path.join(FIXTURES, style, "tokenizer.json")
        if os.path.exists(file):
            theirs = Tokenizer.from_file(file)
            special = [t.content for t in theirs.get_added_tokens_decoder().values()]
            c.texts_of(style, theirs, options.texts, {"bert-style": "inside", "t5-style": None, "xlmr-style": None}.get(style, "equal"), special)
    for name, pattern, normalizer in (("gpt2", None, None), ("llama3", LLAMA3, None), ("qwen2", QWEN2, normalizers.NFC()), ("gpt4o", GPT4O, None)):
        theirs = trained(lines, pattern, normalizer)
        c.texts_of("trained " + name, theirs, options.texts, "equal" if normalizer is None else "inside", special=["<|endoftext|>", "<|im_start|>"])
        special = with_odd_tokens(theirs)
        c.texts_of("odd tokens " + name, theirs, options.texts, offsets=None, special=special)
    for name, theirs in components():
        c.texts_of(name, theirs, options.texts // 2, offsets=None)
    for name, theirs, count in decoder_cases():
        c.ids_of(name, theirs, count, options.texts)
    if not options.only:
        c.failed += not same_training(options, lines)
    print(f"{c.texts} texts, {c.failed} differences")
    raise SystemExit(1 if c.failed else 0)


if __name__ == "__main__":
    main()
