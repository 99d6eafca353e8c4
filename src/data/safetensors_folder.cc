#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "data/file.h"
#include "data/safetensors.h"
#include "data/safetensors_header.h"

namespace spillway::data {
namespace {

using nlohmann::json;

constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr i64 kIndexLimitBytes = 64 * kMiB;  // seven times that of the largest published model

std::string text_of(const std::filesystem::path& path) {
  const File file = File::open(path);
  if (file.size_bytes() > kIndexLimitBytes) reject_safetensors(path, fmt::format("{} bytes are too many for an index", file.size_bytes()));
  std::string text(static_cast<size_t>(file.size_bytes()), ' ');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

/// The index's JSON without what a document tree of an untrusted text must not do: nest deeply, or say a key twice.
json parse_index(const std::filesystem::path& path) {
  std::array<std::set<std::string>, 3> keys;  // of the open object of each depth
  const json::parser_callback_t guard = [&](int depth, json::parse_event_t event, json& parsed) {
    const auto level = static_cast<size_t>(depth);
    if (level >= keys.size()) reject_safetensors(path, "it nests too deeply for an index");
    if (event == json::parse_event_t::object_start && level + 1 < keys.size()) keys[level + 1].clear();
    if (event == json::parse_event_t::key && !keys[level].insert(parsed.get<std::string>()).second) {
      reject_safetensors(path, "the key " + in_quotes(parsed.get<std::string>()) + " appears twice");
    }
    return true;
  };
  try {
    return json::parse(text_of(path), guard);
  } catch (const json::parse_error& e) {
    reject_safetensors(path, fmt::format("not JSON in UTF-8: it goes wrong at byte {}", e.byte));
  }
}

std::map<std::string, std::string> weight_map(const std::filesystem::path& path) {
  const json index = parse_index(path);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    reject_safetensors(path, "expected an object \"weight_map\"");
  std::map<std::string, std::string> files;
  for (auto& [name, file] : index["weight_map"].items()) {
    if (!file.is_string()) reject_safetensors(path, "tensor " + in_quotes(name) + ": expected a file name");
    const std::string shard = file.get<std::string>();
    if (shard.empty() || shard == "." || shard == ".." || shard.find_first_of(std::string("/\0", 2)) != shard.npos) {
      reject_safetensors(path,
                         "tensor " + in_quotes(name) + ": expected the plain name of a file beside the index, got " + in_quotes(shard));
    }
    files.emplace(name, shard);
  }
  return files;
}

}  // namespace

SafetensorsFolder::SafetensorsFolder(const std::filesystem::path& folder) {
  const FolderChecksums checksums = FolderChecksums::of(folder);
  if (const auto single = folder / kSingleName; std::filesystem::exists(single)) {
    files_.emplace_back(single, checksums.find(kSingleName));
    for (const TensorInfo& t : files_[0].tensors()) places_.emplace(t.name, Place{0, &t});
    return;
  }
  const auto index = folder / kIndexName;
  if (!std::filesystem::exists(index)) reject_safetensors(folder, fmt::format("expected {} or {} in this folder", kSingleName, kIndexName));
  std::map<std::string, size_t> opened;
  for (auto& [name, shard] : weight_map(index)) {
    const auto [entry, is_new] = opened.emplace(shard, files_.size());
    if (is_new) files_.emplace_back(folder / shard, checksums.find(shard));
    const TensorInfo* info = files_[entry->second].find(name);
    if (!info) reject_safetensors(index, fmt::format("it says that tensor {} is in {}, but it is not", in_quotes(name), in_quotes(shard)));
    places_.emplace(name, Place{entry->second, info});
  }
}

std::vector<std::string> SafetensorsFolder::names() const {
  std::vector<std::string> names;
  for (auto& [name, place] : places_) names.push_back(name);
  return names;
}

const TensorInfo* SafetensorsFolder::find(const std::string& name) const {
  const auto entry = places_.find(name);
  return entry == places_.end() ? nullptr : entry->second.info;
}

void SafetensorsFolder::read(const std::string& name, i64 begin, std::span<double> out) const {
  const auto entry = places_.find(name);
  if (entry == places_.end()) throw Error(ErrorCode::data, "[safetensors] there is no tensor " + in_quotes(name));
  files_[entry->second.file].read_wide(*entry->second.info, begin, out);
}

}  // namespace spillway::data
