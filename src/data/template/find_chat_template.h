// Finds the chat template in a model's folder, and the special tokens that the template reads.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/template/chat_template.h"

namespace spillway::data {

/// Returns the chat template called `name` from a Hugging Face folder, or nothing if there is none. Without a name,
/// returns the template "default"; if there is a template "tool_use" too, that one renders conversations with tools.
/// The templates are searched as AutoTokenizer in transformers does. First come chat_template.jinja (the default)
/// and additional_chat_templates/NAME.jinja. If neither exists, `chat_template` in tokenizer_config.json is used: a
/// text, an object of texts by name, or a list of {name, template}. A processor's chat_template.json is used only if
/// the folder has nothing else. Throws Error(data) for files that cannot be read and for invalid templates.
std::optional<ChatTemplate> find_chat_template(const std::filesystem::path& folder, const std::string& name = "");

/// Returns the names of the folder's templates, sorted, for the error message after a find_chat_template() that found nothing.
std::vector<std::string> chat_template_names(const std::filesystem::path& folder);

/// Returns the variables that transformers gives to every template: bos_token, eos_token and the other tokens whose names end in _token,
/// and the tokens that `extra_special_tokens` or `model_specific_special_tokens` name. They are read from tokenizer_config.json and
/// special_tokens_map.json. A token is a text or an object with `content`. Null and missing tokens are left out, and so are tokens that
/// only the tokenizer's Python class knows. Throws Error(data) for files that cannot be read.
nlohmann::ordered_json special_token_variables(const std::filesystem::path& folder);

}  // namespace spillway::data
