#include "trainer/checkpoints/generation_ends.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/tokenizer/json_fields.h"

namespace spillway::trainer {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

i64 token_of(const json& id, i64 vocabulary, const fs::path& file) {
  if (id.is_number_integer() && id >= 0 && id < vocabulary) return id.get<i64>();
  throw Error(ErrorCode::data,
              fmt::format("[generate] {}: expected `eos_token_id` to be a token of the model's vocabulary of {}, or a list "
                          "of such tokens, got {}: fix the file, or delete it so that config.json is used",
                          file.string(), vocabulary, id.dump(-1, ' ', false, json::error_handler_t::replace)));
}

}  // namespace

std::optional<fs::path> generation_config_of(const ModelSource& source) {
  for (const auto& folder : {source.adapter, source.folder}) {
    if (folder && fs::is_regular_file(*folder / kGenerationConfigName)) return *folder / kGenerationConfigName;
  }
  return {};
}

std::optional<std::vector<i64>> generation_ends(const ModelSource& source) {
  const auto file = generation_config_of(source);
  if (!file || source.config.reads_images()) return {};
  const json config = data::read_json(*file);
  if (!config.is_object())
    throw Error(ErrorCode::data, fmt::format("[generate] {}: expected an object, got {}", file->string(), config.type_name()));
  const auto ends = config.find("eos_token_id");
  if (ends == config.end() || ends->is_null() || *ends == -1) return {};
  std::vector<i64> ids;
  for (const json& id : ends->is_array() ? *ends : json::array({*ends})) ids.push_back(token_of(id, source.config.vocabulary, *file));
  return ids;
}

}  // namespace spillway::trainer
