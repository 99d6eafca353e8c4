// Finds the files of a tokenizer and combines their contents.
#include <nlohmann/json.hpp>

#include "data/tokenizer/hugging_face/hugging_face.h"

namespace spillway::data {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

/// Returns the text of the token under `key`. The token may be written as a string or as an object with "content".
std::optional<std::string> token_text(const json& config, const char* key, const JsonPlace& place) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  Fields fields(*found, place.below(key));
  return fields.text("content");
}

/// Looks for `key` in the files in order. Returns the id of the token that the first file with `key` names.
std::optional<i32> named_token(const Tokenizer& tokenizer, const std::vector<std::pair<json, JsonPlace>>& configs, const char* key) {
  for (const auto& [config, place] : configs) {
    const auto text = token_text(config, key, place);
    if (!text || text->empty()) continue;
    const auto id = tokenizer.id_of(*text);
    if (!id) refuse_json(place.below(key), "a token of tokenizer.json", json(*text));
    return id;
  }
  return std::nullopt;
}

}  // namespace

std::unique_ptr<Tokenizer> read_tokenizer(const fs::path& file_or_folder) {
  const fs::path file = fs::is_directory(file_or_folder) ? file_or_folder / "tokenizer.json" : file_or_folder;
  auto tokenizer = std::make_unique<HuggingFaceTokenizer>(read_json(file), JsonPlace{file.string(), ""});
  std::vector<std::pair<json, JsonPlace>> configs;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const fs::path beside = file.parent_path() / name;
    if (!fs::exists(beside)) continue;
    configs.emplace_back(read_json(beside), JsonPlace{beside.string(), ""});
    if (!configs.back().first.is_object()) refuse_json(configs.back().second, "an object", configs.back().first);
  }
  NamedTokens named;
  named.end_of_text = named_token(*tokenizer, configs, "eos_token");
  named.begin_of_text = named_token(*tokenizer, configs, "bos_token");
  named.padding = named_token(*tokenizer, configs, "pad_token");
  named.unknown = named_token(*tokenizer, configs, "unk_token");
  tokenizer->set_named(named);
  return tokenizer;
}

}  // namespace spillway::data
