// Finds the chat template in a model's folder, and the special tokens that it reads.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/chat/chat_template.h"

namespace spillway::data {

/// The template called `name` of a Hugging Face folder; where there is none, nothing. Without a name it is the one called "default", which
/// leaves conversations with tools to the one called "tool_use" where there is one. Looked for as AutoTokenizer of transformers does:
/// chat_template.jinja (the default) and additional_chat_templates/NAME.jinja; if there is neither, `chat_template` of
/// tokenizer_config.json: a text, an object of texts by name, or a list of {name, template}. A folder that has only a processor's
/// chat_template.json uses that. Error(data) for files that are there and cannot be read, and for what is no template.
std::optional<ChatTemplate> find_chat_template(const std::filesystem::path& folder, const std::string& name = "");

/// The names of the templates there, sorted: what to say where find_chat_template() finds nothing.
std::vector<std::string> chat_template_names(const std::filesystem::path& folder);

/// The variables that transformers gives every template: bos_token, eos_token and whatever else ends in _token, and the tokens that
/// `extra_special_tokens` or `model_specific_special_tokens` name, from tokenizer_config.json and special_tokens_map.json; a token is a
/// text, or an object with `content`. Those that are null or absent are left out, and so are those that only the tokenizer's class in
/// Python knows. Error(data) for files that are there and cannot be read.
nlohmann::ordered_json special_token_variables(const std::filesystem::path& folder);

}  // namespace spillway::data
