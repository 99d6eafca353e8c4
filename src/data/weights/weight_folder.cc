#include "data/weights/weight_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "data/file.h"
#include "data/safetensors_header.h"
#include "data/weights/zero_files.h"

namespace spillway::data {
namespace {

using nlohmann::json;

constexpr const char* kIndexEnd = ".index.json";  // behind the name of the whole
constexpr const char* kSafetensors = "model.safetensors";
constexpr const char* kTorch = "pytorch_model.bin";
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

bool has_weights(const std::filesystem::path& folder) {
  for (const std::string whole : {kSafetensors, kTorch}) {
    if (std::filesystem::exists(folder / whole) || std::filesystem::exists(folder / (whole + kIndexEnd))) return true;
  }
  return is_zero_checkpoint(folder) || !distributed_checkpoint_in(folder).empty();
}

WeightFolder::WeightFolder(const std::filesystem::path& folder) {
  const auto take_all = [&] {
    const auto& all = std::visit([](const auto& file) -> const std::vector<TensorInfo>& { return file.tensors(); }, files_[0]);
    for (const TensorInfo& t : all) places_.emplace(t.name, Place{0, &t});
  };
  if (std::filesystem::is_regular_file(folder)) {
    if (is_llm_c_file(folder))
      files_.emplace_back(std::in_place_type<LlmCFile>, folder);
    else if (is_torch_file(folder))
      files_.emplace_back(std::in_place_type<TorchFile>, folder);
    else
      files_.emplace_back(std::in_place_type<SafetensorsReader>, folder);
    take_all();
    return;
  }
  const FolderChecksums checksums = FolderChecksums::of(folder);
  const auto open = [&](const std::string& file) {
    if (file.ends_with(".bin"))
      files_.emplace_back(std::in_place_type<TorchFile>, folder / file);
    else
      files_.emplace_back(std::in_place_type<SafetensorsReader>, folder / file, checksums.find(file));
  };
  for (const std::string whole : {kSafetensors, kTorch}) {
    const auto index = folder / (whole + kIndexEnd);
    if (std::filesystem::exists(folder / whole)) {
      open(whole);
      take_all();
      return;
    }
    if (!std::filesystem::exists(index)) continue;
    std::map<std::string, size_t> opened;
    for (auto& [name, shard] : weight_map(index)) {
      const auto [entry, is_new] = opened.emplace(shard, files_.size());
      if (is_new) open(shard);
      const TensorInfo* info = std::visit([&](const auto& file) { return file.find(name); }, files_[entry->second]);
      if (!info)
        reject_safetensors(index, fmt::format("it says that tensor {} is in {}, but it is not", in_quotes(name), in_quotes(shard)));
      places_.emplace(name, Place{entry->second, info});
    }
    return;
  }
  if (is_zero_checkpoint(folder)) {
    files_.emplace_back(std::in_place_type<ZeroCheckpoint>, folder);
    take_all();
    return;
  }
  if (const auto distributed = distributed_checkpoint_in(folder); !distributed.empty()) {
    files_.emplace_back(std::in_place_type<DistributedCheckpoint>, distributed);
    take_all();
    return;
  }
  reject_safetensors(folder, fmt::format("expected {0}, {0}{1}, {2} or {2}{1} in this folder", kSafetensors, kIndexEnd, kTorch));
}

std::vector<std::string> WeightFolder::names() const {
  std::vector<std::string> names;
  for (auto& [name, place] : places_) names.push_back(name);
  return names;
}

const TensorInfo* WeightFolder::find(const std::string& name) const {
  const auto entry = places_.find(name);
  return entry == places_.end() ? nullptr : entry->second.info;
}

void WeightFolder::read(const std::string& name, i64 begin, std::span<double> out) const {
  const auto entry = places_.find(name);
  if (entry == places_.end()) throw Error(ErrorCode::data, "[safetensors] there is no tensor " + in_quotes(name));
  std::visit([&](const auto& file) { file.read_wide(*entry->second.info, begin, out); }, files_[entry->second.file]);
}

}  // namespace spillway::data
