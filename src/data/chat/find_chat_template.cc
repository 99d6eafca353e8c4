#include "data/chat/find_chat_template.h"

#include <fmt/format.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/line_column.h"

namespace spillway::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uintmax_t kMostBytes = std::uintmax_t{256} << 20;  // a tokenizer_config.json with all its added tokens

[[noreturn]] void reject(const fs::path& file, const std::string& why) {
  throw Error(ErrorCode::data, fmt::format("[chat template] {}: {}", file.string(), why));
}

// Nothing when there is no such file.
std::optional<std::string> read_text(const fs::path& file) {
  std::error_code failed;
  if (!fs::exists(file, failed)) return {};
  if (!fs::is_regular_file(file, failed)) reject(file, "expected a file, got something else");
  const auto bytes = fs::file_size(file, failed);
  if (failed) reject(file, "expected a file that can be read, got " + failed.message());
  if (bytes > kMostBytes) reject(file, fmt::format("expected at most {} bytes, got {}", kMostBytes, bytes));
  std::string text(bytes, '\0');
  std::ifstream in(file, std::ios::binary);
  if (!in.read(text.data(), static_cast<std::streamsize>(bytes))) reject(file, "expected a file that can be read, got an error");
  return text;
}

// An object; an empty one when there is no such file.
Json read_object(const fs::path& file) {
  const auto text = read_text(file);
  if (!text) return Json::object();
  Json json;
  try {
    json = Json::parse(*text);
  } catch (const Json::parse_error& error) {
    reject(file, fmt::format("expected JSON, got an error at {}", line_and_column(*text, error.byte)));
  }
  if (!json.is_object()) reject(file, std::string("expected an object, got ") + json.type_name());
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

// Those of a JSON file's `chat_template`.
std::map<std::string, Source> keys_of(const fs::path& file) {
  std::map<std::string, Source> sources;
  const Json json = read_object(file);
  const auto found = json.find("chat_template");
  if (found == json.end() || found->is_null()) return sources;
  if (found->is_string()) {
    sources["default"] = {found->get<std::string>(), file.string()};
    return sources;
  }
  if (!found->is_array()) reject(file, std::string("expected a text or a list as `chat_template`, got ") + found->type_name());
  for (const Json& named : *found) {
    if (!named.is_object() || !named.contains("name") || !named["name"].is_string() || !named.contains("template") ||
        !named["template"].is_string()) {
      reject(file, "expected a `name` and a `template` in each item of `chat_template`, got another");
    }
    const auto name = named["name"].get<std::string>();
    sources[name] = {named["template"].get<std::string>(), fmt::format("{} ({})", file.string(), name)};
  }
  return sources;
}

std::map<std::string, Source> sources_of(const fs::path& folder) {
  auto sources = files_of(folder);
  if (sources.empty()) sources = keys_of(folder / "chat_template.json");
  if (sources.empty()) sources = keys_of(folder / "tokenizer_config.json");
  return sources;
}

void put_token(Json& variables, const std::string& name, const Json& token) {
  if (token.is_string()) variables[name] = token;
  if (token.is_object() && token.contains("content") && token["content"].is_string()) variables[name] = token["content"];
}

void put_tokens(Json& variables, const Json& config) {
  for (const auto& [name, token] : config.items()) {
    if (name.ends_with("_token")) put_token(variables, name, token);
  }
  const auto extra = config.find("extra_special_tokens");
  if (extra == config.end() || !extra->is_object()) return;
  for (const auto& [name, token] : extra->items()) put_token(variables, name, token);
}

}  // namespace

std::optional<ChatTemplate> find_chat_template(const fs::path& folder, const std::string& name) {
  auto sources = sources_of(folder);
  const auto found = sources.find(name);
  if (found == sources.end()) return {};
  return ChatTemplate(std::move(found->second.text), std::move(found->second.file));
}

std::vector<std::string> chat_template_names(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& [name, source] : sources_of(folder)) names.push_back(name);
  return names;
}

Json special_token_variables(const fs::path& folder) {
  const Json config = read_object(folder / "tokenizer_config.json");
  Json variables = Json::object();
  put_tokens(variables, config);
  // transformers reads the map only for tokenizers saved before added tokens stood in the configuration.
  if (!config.contains("added_tokens_decoder")) put_tokens(variables, read_object(folder / "special_tokens_map.json"));
  return variables;
}

}  // namespace spillway::data
