#!/usr/bin/env python3
"""Asks Hugging Face's tokenizers about every code point, and writes what it says.

Its parts come from Rust crates with tables of several Unicode versions: accents and normal forms are of about Unicode 9, Bert's of 8, lower
case, digits and the regex crate of 16, Oniguruma's classes of 16. Needs Python 3.11 (whose unicodedata is of Unicode 14, as are the PCRE2
and utf8proc that Spillway asks for the rest) and tokenizers 0.23. Usage: unicode_tables.py; takes some minutes. It writes
src/data/text/unicode_tables.cc, and tests/data/tokenizer/unicode.json with checksums of what each part makes of all code points.
"""
import base64
import json
import pathlib
import struct
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
BETWEEN = "\u2420"
assert unicodedata.unidata_version == "14.0.0"


def ranges(codes):
    out = []
    for c in sorted(codes):
        # Over the surrogates, which no text has.
        if out and (out[-1][1] == c - 1 or (out[-1][1] == 0xD7FF and c == 0xE000)):
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def blocks(codes):
    codes = sorted(codes)
    return [codes[i : i + 4096] for i in range(0, len(codes), 4096)]


def normalized(normalizer, before="", behind=""):
    """What becomes of each character; a symbol that all leave as it is, and none becomes, parts them."""
    out = {ord(BETWEEN): before + BETWEEN + behind}
    for block in blocks(c for c in ALL if c != ord(BETWEEN)):
        out.update(zip(block, normalizer.normalize_str(BETWEEN.join(before + chr(c) + behind for c in block)).split(BETWEEN), strict=True))
    return out


def pieces(pre_tokenizer):
    """What lies between an a and a b: "apart" as a piece of its own, "gone", or "joined" with its neighbours."""
    out = {}
    for block in blocks(ALL):
        found = [span for _, span in pre_tokenizer.pre_tokenize_str("".join("a" + chr(c) + "b" for c in block))]
        alone = {begin for begin, end in found if end == begin + 1}
        covered = {i for begin, end in found for i in range(begin, end)}
        out.update((c, "apart" if 3 * i + 1 in alone else "joined" if 3 * i + 1 in covered else "gone") for i, c in enumerate(block))
    return out


def matched(pattern, codes):
    replace = normalizers.Replace(Regex(pattern), "")
    return {c for block in blocks(codes) for c in set(block) - {ord(rest) for rest in replace.normalize_str("".join(map(chr, block)))}}


def bert(**flags):
    return normalizers.BertNormalizer(**{**dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False), **flags})


def takes_part_in_normal_forms():
    """What decomposes, is a part of such, or is reordered. All else stays as it is, also where younger tables know better."""
    forms = [normalized(getattr(normalizers, name)()) for name in ("NFC", "NFD", "NFKC", "NFKD")]
    found = {c for c in ALL if any(form[c] != chr(c) for form in forms)}
    found |= {ord(part) for c in list(found) for form in forms for part in form[c]}
    for before, behind in (("a\u0345", ""), ("a", "\u0334")):  # U+0334 has the least class, U+0345 the largest
        found |= {c for c, text in normalized(normalizers.NFD(), before, behind).items() if text != before + chr(c) + behind}
    return found


def map_of_a():
    """SentencePiece's map, in which A is !."""
    units = [0] * 512
    units[0] = 256 << 10
    units[256 ^ 65] = 65 | 1 << 8 | (256 ^ 65 ^ 400) << 10
    units[400] = 1 << 31
    trie = struct.pack("<512I", *units)
    return struct.pack("<I", len(trie)) + trie + b"!\0"


def joins_what_is_before():
    """What belongs to the grapheme cluster of the letter before it: a map of A alone then replaces both."""
    precompiled = normalizers.Precompiled(map_of_a())
    assert precompiled.normalize_str("AxA") == "!x!"
    return {c for c, text in normalized(precompiled, "A").items() if text == "!"}


def lower_case():
    """First, last, distance and stride of letters whose lower case Unicode 14 does not know."""
    lower = normalized(normalizers.Lowercase())
    rows = []
    for c in ALL:
        if lower[c] == chr(c).lower():
            continue
        assert len(lower[c]) == 1
        distance = ord(lower[c]) - c
        if rows and rows[-1][2] == distance and (c - rows[-1][1] == rows[-1][3] or rows[-1][0] == rows[-1][1] and c - rows[-1][1] <= 2):
            rows[-1][3] = c - rows[-1][1]
            rows[-1][1] = c
        else:
            rows.append([c, c, distance, 1])
    return rows


def stand_in(category, size, han):
    """A character of Unicode 3.2 with this category and as many bytes, which no pattern names."""
    if han:
        return 0x20000
    old = unicodedata.ucd_3_2_0
    wanted = [c for c in ALL if len(chr(c).encode()) == size and old.category(chr(c)) == category == unicodedata.category(chr(c))]
    wanted = wanted or [c for c in ALL if len(chr(c).encode()) == size and unicodedata.category(chr(c)) == category]
    return next(c for c in wanted if "CJK" not in unicodedata.name(chr(c), "") and "HANGUL" not in unicodedata.name(chr(c), ""))


def stand_ins():
    """First, last and stand-in of characters whose category Unicode 14 does not know."""
    rows = []
    for category in CATEGORIES:
        got = matched(rf"\p{{{category}}}", ALL)
        news = {c for c in got if unicodedata.category(chr(c)) != category}
        han = matched(r"\p{Han}", news)
        for is_han, some in ((True, han), (False, news - han)):
            for first, last in ranges(some):
                rows.append([first, last, stand_in(category, len(chr(first).encode()), is_han)])
    known = set().union(*(range(first, last + 1) for first, last, _ in rows))
    assert not matched(r"\p{Cn}", {c for c in ALL if unicodedata.category(chr(c)) != "Cn"}) - known
    return sorted(rows)


def checksums(texts, between):
    """FNV-1a of 64 bits over UTF-8, of each 0x4000 code points; `between` ends each text."""
    sums, h = [], None
    for i, text in enumerate(texts):
        if i % 0x4000 == 0:
            sums.append(h)
            h = 0xCBF29CE484222325
        for byte in text.encode() + between:
            h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return [f"{h:016x}" for h in [*sums[1:], h]]


def rows_of(name, kind, rows, note):
    cells = ["{" + ",".join(map(str, row)) + "}" for row in rows]
    return f"// {note}\nconstexpr {kind} {name}[] = {{{','.join(cells)}}};\n"


def write_tables():
    cut = lambda name, kind, *options: ranges(c for c, got in pieces(getattr(pre_tokenizers, name)(*options)).items() if got == kind)
    tables = [
        ("kMarks", "CodeRange", ranges(c for c, text in normalized(normalizers.StripAccents()).items() if text == ""), "Characters that StripAccents drops.", "marks"),
        ("kBertAccents", "CodeRange", ranges(c for c, text in normalized(bert(strip_accents=True)).items() if text == ""), "Characters that BertNormalizer drops as accents.", "bert_accents"),
        ("kControls", "CodeRange", ranges(c for c, text in normalized(bert(clean_text=True)).items() if text == "" and c not in (0, 0xFFFD)), "Characters that BertNormalizer drops as control characters.", "controls"),
        ("kPunctuation", "CodeRange", cut("Punctuation", "apart"), "Characters that Punctuation and BertPreTokenizer cut out as tokens of their own.", "punctuation"),
        ("kNumbers", "CodeRange", cut("Digits", "apart", True), "Characters that Digits cuts out.", "numbers"),
        ("kWords", "CodeRange", cut("Whitespace", "joined"), "Characters that Whitespace takes for part of a word.", "words"),
        ("kNormalized", "CodeRange", ranges(takes_part_in_normal_forms()), "Characters that normal forms may change: they decompose, compose or are reordered.", "normalized"),
        ("kJoining", "CodeRange", ranges(joins_what_is_before()), "Characters that belong to the grapheme cluster of the character before them.", "joining"),
        ("kLowerCase", "LowerCase", lower_case(), "Letters whose lower case was added after Unicode 14.", "lower_case"),
        ("kStandIns", "StandIn", stand_ins(), "Characters whose category was added after Unicode 14, each with an older one of the same category and length.", "stand_ins"),
    ]
    text = "// Generated by tests/peers/unicode_tables.py: the classes that Hugging Face's tokenizers 0.23 puts every code point into.\n"
    text += '#include "data/text/unicode_tables.h"\n\nnamespace spillway::data::unicode_tables {\nnamespace {\n\n// clang-format off\n'
    text += "\n".join(rows_of(name, kind, rows, note) for name, kind, rows, note, _ in tables)
    text += "// clang-format on\n\n}  // namespace\n\n"
    text += "".join(f"std::span<const {kind}> {function}() {{ return {name}; }}\n" for name, kind, _, _, function in tables)
    text += "\n}  // namespace spillway::data::unicode_tables\n"
    out = []
    for line in text.split("\n"):  # at most 140 columns
        while len(line) > 138:
            cut = line.rfind("},", 0, 138) + 2
            out.append(line[:cut])
            line = "    " + line[cut:]
        out.append(line)
    (ROOT / "src/data/text/unicode_tables.cc").write_text("\n".join(out))


def write_checksums():
    """Of the planes with many letters, and of what is younger beyond. Accents and neighbours show what composes and what is cut."""
    codes = [c for c in ALL if c < 0x20000 or 0x2EB00 <= c < 0x2F000 or 0x2F800 <= c < 0x2FB00 or 0x31000 <= c < 0x33000 or 0xE0000 <= c < 0xE0200]
    steps = {
        **{name: getattr(normalizers, name)() for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt")},
        **{f"BertNormalizer {flag}": bert(**{flag: True}) for flag in ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")},
        "Precompiled": normalizers.Precompiled(map_of_a()),
    }
    normal = {name: checksums((step.normalize_str("A" + chr(c) + "\u0301b") for c in codes), b"") for name, step in steps.items()}
    cutters = {name: getattr(pre_tokenizers, name)() for name in ("Whitespace", "WhitespaceSplit", "Punctuation", "BertPreTokenizer")}
    cutters["Digits"] = pre_tokenizers.Digits(True)
    for pattern in (r"\p{L}+", r"\p{N}", r"\s+", r"[^\s\p{L}\p{N}]+", r"\p{M}", r"\p{P}", r"\p{S}", r"\p{Lu}", r"\p{Ll}", r"\w+", r"\d", r"\p{Han}"):
        cutters["Split " + pattern] = pre_tokenizers.Split(Regex(pattern), "isolated")
    pieces = {name: checksums(("".join(piece + "\n" for piece, _ in step.pre_tokenize_str("?" + chr(c) + "b")) for c in codes), b"\xff") for name, step in cutters.items()}
    out = {"codes": ranges(codes), "map": base64.b64encode(map_of_a()).decode(), "normalizers": normal, "pre_tokenizers": pieces}
    (ROOT / "tests/data/tokenizer/unicode.json").write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    write_tables()
    write_checksums()
