#include "data/template/find_chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/line_column.h"

namespace spillway::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// the largest file that is read; enough for a tokenizer_config.json that lists all added tokens
constexpr std::uintmax_t kMostBytes = std::uintmax_t{256} << 20;

[[noreturn]] void reject(const fs::path& file, const std::string& why) {
  throw Error(ErrorCode::data, fmt::format("[chat template] {}: {}", file.string(), why));
}

// Reads a file. Returns nothing if the file does not exist.
std::optional<std::string> read_text(const fs::path& file) {
  std::error_code failed;
  if (!fs::exists(file, failed)) return {};
  if (!fs::is_regular_file(file, failed)) reject(file, "expected a regular file, got a folder or something else");
  const auto bytes = fs::file_size(file, failed);
  if (failed) reject(file, "expected a file that can be read, got " + failed.message());
  if (bytes > kMostBytes) reject(file, fmt::format("expected at most {} bytes, got {}", kMostBytes, bytes));
  std::string text(bytes, '\0');
  std::ifstream in(file, std::ios::binary);
  if (!in.read(text.data(), static_cast<std::streamsize>(bytes))) reject(file, "expected a file that can be read, got a read error");
  return text;
}

// Reads a JSON object from a file. Returns an empty object if the file does not exist.
Json read_object(const fs::path& file) {
  const auto text = read_text(file);
  if (!text) return Json::object();
  JsonFault fault;
  Json json = parse_ordered_json(*text, &fault);
  if (json.is_discarded()) reject(file, fault.in_words(*text));
  if (!json.is_object()) reject(file, std::string("expected a JSON object, got ") + json.type_name());
  return json;
}

struct Source {
  std::string text, file;
};

std::map<std::string, Source> files_of(const fs::path& folder) {
  std::map<std::string, Source> sources;
  const fs::path main = folder / "chat_template.jinja", others = folder / "additional_chat_templates";
  if (auto text = read_text(main)) sources["default"] = {std::move(*text), main.string()};
  std::error_code failed;
  if (!fs::is_directory(others, failed)) return sources;
  fs::directory_iterator entries(others, failed);
  if (failed) reject(others, "expected a folder that can be read, got " + failed.message());
  for (const auto& entry : entries) {
    if (entry.path().extension() != ".jinja") continue;
    if (auto text = read_text(entry.path())) sources[entry.path().stem().string()] = {std::move(*text), entry.path().string()};
  }
  return sources;
}

// Returns the templates that a JSON file holds under `chat_template`, by name.
std::map<std::string, Source> keys_of(const fs::path& file) {
  std::map<std::string, Source> sources;
  const Json json = read_object(file);
  const auto found = json.find("chat_template");
  if (found == json.end() || found->is_null()) return sources;
  if (found->is_string()) {
    sources["default"] = {found->get<std::string>(), file.string()};
    return sources;
  }
  if (found->is_object()) {
    for (const auto& [name, text] : found->items()) {
      if (!text.is_string())
        reject(file, fmt::format("expected a text for every name in `chat_template`, got {} for `{}`", text.type_name(), name));
      sources[name] = {text.get<std::string>(), fmt::format("{} ({})", file.string(), name)};
    }
    return sources;
  }
  if (!found->is_array()) reject(file, std::string("expected a text, a list or an object as `chat_template`, got ") + found->type_name());
  for (const Json& named : *found) {
    if (!named.is_object() || !named.contains("name") || !named["name"].is_string() || !named.contains("template") ||
        !named["template"].is_string()) {
      reject(file, "expected a `name` and a `template` in each item of `chat_template`, got an item without both");
    }
    const auto name = named["name"].get<std::string>();
    sources[name] = {named["template"].get<std::string>(), fmt::format("{} ({})", file.string(), name)};
  }
  return sources;
}

std::map<std::string, Source> sources_of(const fs::path& folder) {
  auto sources = files_of(folder);
  if (sources.empty()) sources = keys_of(folder / "tokenizer_config.json");
  if (sources.empty()) sources = keys_of(folder / "chat_template.json");
  return sources;
}

void put_token(Json& variables, const std::string& name, const Json& token) {
  if (token.is_string()) variables[name] = token;
  if (token.is_object() && token.contains("content") && token["content"].is_string()) variables[name] = token["content"];
}

// Returns true for the names of the tokens that every transformers tokenizer
// has. A model may define further tokens, under other names that end in _token.
bool is_of_every_tokenizer(std::string_view name) {
  constexpr std::array<std::string_view, 7> kNames = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                      "pad_token", "cls_token", "mask_token"};
  return std::ranges::find(kNames, name) != kNames.end();
}

// Adds the extra tokens of `config` that have names. If the configuration lists the tokens without names, nothing is added.
void put_named_tokens(Json& variables, const Json& config) {
  for (const char* key : {"extra_special_tokens", "additional_special_tokens"}) {
    const auto extra = config.find(key);
    if (extra == config.end() || extra->is_null() || extra->empty()) continue;
    if (!extra->is_object()) return;
    for (const auto& [name, token] : extra->items()) put_token(variables, name, token);
    return;
  }
}

// Returns the tokens that tokenizer_config.json defines for this model only. Those in
// `model_specific_special_tokens` are returned only if no other key defines such tokens.
Json tokens_of_the_model(const Json& config) {
  Json tokens = Json::object();
  for (const auto& [name, token] : config.items()) {
    if (name.ends_with("_token") && !is_of_every_tokenizer(name) && token.is_string()) tokens[name] = token;
  }
  put_named_tokens(tokens, config);
  const auto specific = config.find("model_specific_special_tokens");
  if (!tokens.empty() || specific == config.end() || !specific->is_object()) return tokens;
  for (const auto& [name, token] : specific->items()) put_token(tokens, name, token);
  return tokens;
}

}  // namespace

std::optional<ChatTemplate> find_chat_template(const fs::path& folder, const std::string& name) {
  auto sources = sources_of(folder);
  const auto made = [&](const std::string& wanted) -> std::optional<ChatTemplate> {
    const auto found = sources.find(wanted);
    if (found == sources.end()) return {};
    return ChatTemplate(std::move(found->second.text), std::move(found->second.file));
  };
  if (!name.empty()) return made(name);
  auto chat = made("default");
  if (auto for_tools = chat ? made("tool_use") : std::nullopt) chat->use_for_tools(std::move(*for_tools));
  return chat;
}

std::vector<std::string> chat_template_names(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& [name, source] : sources_of(folder)) names.push_back(name);
  return names;
}

Json special_token_variables(const fs::path& folder) {
  const Json config = read_object(folder / "tokenizer_config.json");
  // transformers reads special_tokens_map.json only for old tokenizers,
  // which are those whose configuration does not contain the added tokens.
  const Json map = config.contains("added_tokens_decoder") ? Json::object() : read_object(folder / "special_tokens_map.json");
  Json variables = Json::object();
  for (const auto& [name, token] : config.items()) {
    const bool typed = token.is_object() && token.contains("__type");
    if (name.ends_with("_token") && (is_of_every_tokenizer(name) || typed)) put_token(variables, name, token);
  }
  for (const auto& [name, token] : map.items()) {
    if (name.ends_with("_token")) put_token(variables, name, token);
  }
  Json own = tokens_of_the_model(config);
  put_named_tokens(own, map);
  variables.update(own);
  return variables;
}

}  // namespace spillway::data
