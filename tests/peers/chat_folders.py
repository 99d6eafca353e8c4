#!/usr/bin/env python3
"""What transformers finds in folders: the chat template, the one for rows with tools, and the special tokens that templates read.

Needs transformers >= 5.24 and tokenizers. Writes tests/data/chat/folders.json, which the repository's tests read: for each case the files
beside a tokenizer.json, and what AutoTokenizer says, or its error.
"""
import json
import logging
import pathlib
import tempfile
import warnings

from tokenizers import Tokenizer, models
from transformers import AutoTokenizer

logging.disable(logging.CRITICAL)
warnings.filterwarnings("ignore")
DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "chat"
TOOLS = [{"type": "function", "function": {"name": "f"}}]
PLAIN = {"content": "<o>", "lstrip": False, "rstrip": False, "normalized": False, "special": True}
ADDED = {"__type": "AddedToken", **PLAIN}

# The tokenizer_config.json of each case, its special_tokens_map.json (null: none), and other files.
CASES = [
    ({"bos_token": "<s>", "eos_token": ADDED, "unk_token": None}, None, {}),
    ({"bos_token": "<s>", "image_token": "<i>", "add_bos_token": True}, None, {}),
    ({"image_token": ADDED}, None, {}),
    ({"image_token": PLAIN}, None, {}),
    ({"extra_special_tokens": {"img": "<i>", "aud_token": "<a>"}}, None, {}),
    ({"extra_special_tokens": {"img": ADDED}}, None, {}),
    ({"extra_special_tokens": ["x", "y"], "bos_token": "<s>"}, None, {}),
    ({"additional_special_tokens": ["x", "y"]}, None, {}),
    ({"additional_special_tokens": {"q": "<q>"}}, None, {}),
    ({"model_specific_special_tokens": {"img": "<i>", "boi_token": "<b>"}}, None, {}),
    ({"model_specific_special_tokens": {"img": "<i>"}, "audio_token": "<a>"}, None, {}),
    ({"model_specific_special_tokens": {"img": "<i>"}, "extra_special_tokens": {"e": "<e>"}}, None, {}),
    ({"model_specific_special_tokens": {"img": ADDED}}, None, {}),
    ({"model_specific_special_tokens": {"bos_token": "<q>"}, "bos_token": "<s>"}, None, {}),
    ({"extra_special_tokens": {"bos_token": "<q>"}, "bos_token": "<s>"}, None, {}),
    ({"bos_token": "<s>"}, {"bos_token": "<m>", "eos_token": PLAIN, "image_token": "<i>"}, {}),
    ({"bos_token": "<s>", "added_tokens_decoder": {}}, {"bos_token": "<m>", "eos_token": "</m>"}, {}),
    ({"bos_token": "<s>"}, {"extra_special_tokens": {"img": "<i>"}, "image_token": PLAIN}, {}),
    ({"model_specific_special_tokens": {"img": "<i>"}}, {"extra_special_tokens": {"e": "<e>"}, "x_token": "<x>"}, {}),
    ({"audio_token": "<a>"}, {"audio_token": "<j>", "image_token": "<j>"}, {}),
    ({"bos_token": "<s>"}, {"additional_special_tokens": ["d"]}, {}),
    ({"chat_template": "plain"}, None, {}),
    ({"chat_template": {"default": "d", "tool_use": "t", "rag": "r"}}, None, {}),
    ({"chat_template": {"tool_use": "t"}}, None, {}),
    ({"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]}, None, {}),
    ({"chat_template": [{"name": "default", "template": "d"}]}, None, {}),
    ({"chat_template": "config"}, None, {"chat_template.jinja": "jinja\n"}),
    ({"chat_template": {"default": "d", "tool_use": "t"}}, None, {"chat_template.jinja": "jinja"}),
    ({"chat_template": "config"}, None, {"additional_chat_templates/tool_use.jinja": "tools"}),
    ({"chat_template": "config"}, None, {"chat_template.jinja": "jinja", "additional_chat_templates/tool_use.jinja": "tools"}),
    ({}, None, {"chat_template.jinja": "jinja", "additional_chat_templates/rag.jinja": "rag"}),
    ({}, None, {"chat_template.jinja": "jinja", "additional_chat_templates/default.jinja": "other"}),
    ({"chat_template": "config"}, None, {"chat_template.json": '{"chat_template": "processor"}'}),
]


def said(action):
    try:
        return action()
    except Exception:  # whatever transformers says
        return None


def main():
    rows = []
    for config, tokens_map, files in CASES:
        files = {"tokenizer_config.json": json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **config}), **files}
        if tokens_map is not None:
            files["special_tokens_map.json"] = json.dumps(tokens_map)
        with tempfile.TemporaryDirectory() as folder:
            Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]")).save(folder + "/tokenizer.json")
            for name, text in files.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)
            tokenizer = AutoTokenizer.from_pretrained(folder)
        rows.append({"files": files, "tokens": dict(sorted(tokenizer.special_tokens_map.items())), "template": said(tokenizer.get_chat_template),
                     "with_tools": said(lambda: tokenizer.get_chat_template(tools=TOOLS))})
    (DATA / "folders.json").write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()
