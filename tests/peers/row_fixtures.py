"""The ids and masks that rows of text become, by transformers' tokenizers and TRL's rule for completions: writes
tests/data/rows/fixtures/tokenized.json (every tokenizer of tests/data/tokenizer) and those of expected.json's rows that are text.

    python tests/peers/row_fixtures.py          (transformers 5.24, tokenizers 0.23)

A text is tokenizer(text + end token), a completion tokenizer(prompt + completion + end token), with two differences that the program
documents: no special token stands twice where the text has it, and the end token that the text was given is not put again by the
post-processor. Masks are by offsets; the script says where TRL's SFTTrainer (1.x: the completion begins where the ids of the prompt and of
both part) has another one, which is where the prompt alone is cut otherwise, before the token that holds its last byte.
"""

import json
import pathlib

from transformers import PreTrainedTokenizerFast

DATA = pathlib.Path(__file__).parent.parent / "data"
NAMED = {  # which tokens a configuration would name: the first and the last of a text
    "bert-style": (None, None),
    "gemma-style": ("<s>", "</s>"),
    "gpt2-style": (None, "<|endoftext|>"),
    "llama2-style": ("<s>", "</s>"),
    "llama3-style": ("<|begin_of_text|>", "<|end_of_text|>"),
    "mistral-style": ("<s>", "</s>"),
    "t5-style": (None, "</s>"),
    "xlmr-style": ("<s>", "</s>"),
    "chat": ("<|begin_of_text|>", "<|end_of_text|>"),
}
TEXTS = ["In the beginning God created the heaven and the earth.", "café 😀\nsecond line\t\"q\"", "", " spaces around ", "{bos}In the beginning",
         "In the beginning{eos}", "{bos}In the beginning{eos}", "In the{eos} beginning"]
COMPLETIONS = [("Who made it?\n", "God made it."), ("Q: ", "Answer."), ("Who built the ark? ", "Noah."), ("Jesus", " wept."),
               ("the beginn", "ing of the world"), ("", "no prompt"), ("no completion", ""), ("你好", " 😀!"), ("And God said\n", "\nLet there be light"),
               ("{bos}Who?", " God.{eos}"), ("Who?{eos}", " God.")]
ALPACA = [
    {"instruction": "Name a prophet.", "input": "", "output": "Elijah"},
    {"instruction": "Translate.", "input": "Fiat lux", "output": "Let there be light"},
    {"instruction": "Again?", "output": "Yes.", "system": "Be brief."},
    {"instruction": "And then?", "input": "", "output": "Light.", "history": [["What was first?", "The earth."], ["And?", "The heaven."]]},
    {"instruction": "Why?", "output": "So.", "system": "Be brief.", "history": [["Who?", "God."]]},
]
BELOW = "Below is an instruction that describes a task{}. Write a response that appropriately completes the request."


def asked(instruction, given):
    return "### Instruction:\n" + instruction + "\n\n" + ("### Input:\n" + given + "\n\n" if given else "") + "### Response:\n"


def alpaca_parts(row, eos):
    """[(text, whether it counts)] of one text, as LLaMA-Factory's template alpaca joins them."""
    given = row.get("input") or ""
    first = row.get("system") or BELOW.format(", paired with an input that provides further context" if given else "")
    parts, lead = [], first + "\n\n"
    for question, answer in row.get("history", []):
        parts += [(lead + asked(question, ""), False), (answer + (eos or ""), True)]
        lead = "\n\n"
    return parts + [(lead + asked(row["instruction"], given), False), (row["output"], True)]


def tokenized(tokenizer, parts, bos, eos):
    """Of parts of one text: ids, and 1 for each token that counts."""
    ends = bool(eos) and "".join(t for t, _ in parts[-1:]).endswith(eos)
    parts = parts if not eos or ends else parts[:-1] + [(parts[-1][0] + eos, parts[-1][1])]
    text = "".join(t for t, _ in parts)
    counted, at = [], 0
    for t, counts in parts:
        if counts:
            counted.append((at, at + len(t)))
        at += len(t)
    both = tokenizer(text, return_offsets_mapping=True, return_special_tokens_mask=True)
    empty = tokenizer("")["input_ids"]
    plain = tokenizer(text, add_special_tokens=False)["input_ids"]
    begin = next(i for i in range(len(both["input_ids"]) + 1) if both["input_ids"][i : i + len(plain)] == plain)
    before, behind = both["input_ids"][:begin], both["input_ids"][begin + len(plain) :]
    assert before + behind == empty, (before, behind, empty)
    mask = [0] * len(before)
    for i in range(begin, begin + len(plain)):
        a, b = both["offset_mapping"][i]
        mask.append(int(any(a < e and s < b for s, e in counted)))
    mask += [1] * len(behind)
    ids = list(both["input_ids"])
    if before and ids[len(before)] == before[-1]:
        ids, mask = ids[1:], mask[1:]
    if behind and len(ids) > len(behind) and ids[-1 - len(behind)] == behind[0]:
        ids, mask = ids[:-1], mask[:-1]
    return ids, mask


def trl_mask(tokenizer, prompt, ids, behind):
    alone = tokenizer(prompt)["input_ids"]
    alone = alone[: len(alone) - behind] if behind else alone
    n = 0
    while n < min(len(alone), len(ids)) and alone[n] == ids[n]:
        n += 1
    return [0] * n + [1] * (len(ids) - n)


def text_of(mask):
    return "".join(map(str, mask))


def main():
    out, differ = {}, 0
    for style, (bos, eos) in NAMED.items():
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(DATA / "tokenizer" / style / "tokenizer.json"))
        behind = len([i for i in tokenizer("")["input_ids"] if eos and i == tokenizer.convert_tokens_to_ids(eos)])
        written = lambda t: t.replace("{bos}", bos or "").replace("{eos}", eos or "")
        rows = []
        for text in map(written, TEXTS):
            ids, _ = tokenized(tokenizer, [(text, True)], bos, eos)
            rows.append({"row": {"text": text}, "ids": ids, "mask": "1" * len(ids)})
        for prompt, completion in COMPLETIONS:
            prompt, completion = written(prompt), written(completion)
            ids, mask = tokenized(tokenizer, [(prompt, False), (completion, True)], bos, eos)
            theirs = trl_mask(tokenizer, prompt, ids, behind)
            if theirs[1:] != mask[1:]:
                differ += 1
                print(style, repr(prompt), repr(completion), "ours", text_of(mask), "TRL", text_of(theirs), tokenizer.convert_ids_to_tokens(ids))
            rows.append({"row": {"prompt": prompt, "completion": completion}, "ids": ids, "mask": text_of(mask)})
        for row in ALPACA:
            ids, mask = tokenized(tokenizer, alpaca_parts(row, eos), bos, eos)
            rows.append({"row": row, "ids": ids, "mask": text_of(mask)})
        end = tokenizer.convert_tokens_to_ids(eos) if eos else None
        out[style] = {"end_token": end, "rows": rows}
    print("masks that differ from TRL's:", differ)
    with open(DATA / "rows/fixtures/tokenized.json", "w", encoding="utf-8") as file:
        file.write("{\n")
        for i, (style, one) in enumerate(out.items()):
            lines = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in one["rows"])
            file.write(f' "{style}": {{"end_token": {json.dumps(one["end_token"])}, "rows": [\n{lines}]}}{"," if i + 1 < len(out) else ""}\n')
        file.write("}\n")
    expected = json.loads((DATA / "rows/fixtures/expected.json").read_text(encoding="utf-8"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(DATA / "tokenizer/chat/tokenizer.json"))
    for case in expected["cases"]:
        if "messages" in case:
            continue
        line = json.loads((DATA / "rows/fixtures" / case["file"]).read_text(encoding="utf-8").split("\n")[case["line"] - 1])
        parts = [(line["text"], True)] if "text" in line else [(case["prompt"], False), (case["completion"], True)]
        ids, mask = tokenized(tokenizer, parts, *NAMED["chat"])
        case["ids"], case["mask"] = ids, "1" * len(ids) if "text" in line else text_of(mask)
        case.pop("joint_ids", None)
    cases = ",\n".join(json.dumps(case, ensure_ascii=False) for case in expected.pop("cases"))
    head = json.dumps(expected, ensure_ascii=False).removesuffix("}")
    (DATA / "rows/fixtures/expected.json").write_text(f'{head}, "cases": [\n{cases}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
