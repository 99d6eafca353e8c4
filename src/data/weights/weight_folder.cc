#include "data/weights/weight_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "data/files/file.h"
#include "data/safetensors/safetensors_header.h"
#include "data/safetensors/wide.h"
#include "data/weights/zero_files.h"

namespace spillway::data {
namespace {

using nlohmann::json;

// The ending that turns the name of the unsharded file into the name of the index of shards.
constexpr const char* kIndexEnd = ".index.json";
constexpr const char* kSafetensors = "model.safetensors";
constexpr const char* kTorch = "pytorch_model.bin";
constexpr i64 kIndexLimitBytes = 64 * kMiB;  // the limit on an index file: seven times the size of the index of the largest published model

json parse_index(const std::filesystem::path& path) {
  const File file = File::open(path);
  if (file.size_bytes() > kIndexLimitBytes) reject_safetensors(path, fmt::format("{} bytes are too many for an index", file.size_bytes()));
  const std::string text = file.text();
  JsonFault fault;
  json index = parse_json(text, &fault, RepeatedKeys::refuse);
  if (index.is_discarded()) reject_safetensors(path, fault.in_words(text));
  return index;
}

std::map<std::string, std::string> weight_map(const std::filesystem::path& path) {
  const json index = parse_index(path);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    reject_safetensors(path, "expected a JSON object under the key \"weight_map\"");
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

constexpr std::string_view kWrappers[] = {"module", "_orig_mod", "_fsdp_wrapped_module", "_fpw_module", "_checkpoint_wrapped_module"};

}  // namespace

std::string bare_name(std::string_view name) {
  std::string bare;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t dot = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, dot - begin);
    begin = dot + 1;
    const bool is_last = dot == name.size();
    if (!is_last && std::ranges::find(kWrappers, part) != std::end(kWrappers)) continue;
    bare += part;
    if (!is_last) bare += '.';
  }
  return bare;
}

bool has_weights(const std::filesystem::path& folder) {
  for (const std::string whole : {kSafetensors, kOwnWeights, kTorch}) {
    if (std::filesystem::exists(folder / whole) || std::filesystem::exists(folder / (whole + kIndexEnd))) return true;
  }
  return is_zero_checkpoint(folder) || !distributed_checkpoint_in(folder).empty();
}

WeightFolder::WeightFolder(const std::filesystem::path& folder)
    : path_(folder), checksums_(FolderChecksums::of(std::filesystem::is_regular_file(folder) ? parent_of(folder) : folder)) {
  open_files();
  for (const auto& file : files_) take_all(*file);
}

void WeightFolder::open_files() {
  if (std::filesystem::is_regular_file(path_)) return open(path_);
  for (const std::string whole : {kSafetensors, kOwnWeights, kTorch}) {
    if (std::filesystem::exists(path_ / whole)) return open(path_ / whole);
    if (const auto index = path_ / (whole + kIndexEnd); std::filesystem::exists(index)) return open_shards(index);
  }
  if (is_zero_checkpoint(path_)) {
    files_.push_back(std::make_unique<ZeroCheckpoint>(path_));
  } else if (const auto distributed = distributed_checkpoint_in(path_); !distributed.empty()) {
    files_.push_back(std::make_unique<DistributedCheckpoint>(distributed));
  } else {
    reject_safetensors(
        path_, fmt::format("expected {0}, {0}{1}, {2} or {2}{1} in this folder, found none of them", kSafetensors, kIndexEnd, kTorch));
  }
}

void WeightFolder::open(const std::filesystem::path& file) {
  if (is_llm_c_file(file)) {
    files_.push_back(std::make_unique<LlmCFile>(file));
  } else if (is_torch_file(file) || file.extension() == ".bin") {
    files_.push_back(std::make_unique<TorchFile>(file));
  } else {
    files_.push_back(std::make_unique<SafetensorsReader>(file, checksums_.find(file.filename().string())));
  }
}

void WeightFolder::open_shards(const std::filesystem::path& index) {
  std::map<std::string, size_t> opened;
  for (auto& [name, shard] : weight_map(index)) {
    const auto [entry, is_new] = opened.emplace(shard, files_.size());
    if (is_new) open(index.parent_path() / shard);
    if (files_[entry->second]->find(name) == nullptr)
      reject_safetensors(index, fmt::format("the index says that tensor {} is in {}, but that file does not hold the tensor",
                                            in_quotes(name), in_quotes(shard)));
  }
}

void WeightFolder::take_all(const TensorReader& file) {
  for (const TensorInfo& tensor : file.tensors()) {
    const auto [place, is_new] = places_.emplace(bare_name(tensor.name), Place{&file, &tensor});
    if (is_new) continue;
    const std::string& other = place->second.info->name;
    reject_safetensors(
        path_,
        other == tensor.name
            ? fmt::format("tensor {} is in two files of this folder: expected each tensor in one file only", in_quotes(tensor.name))
            : fmt::format("tensors {} and {} have the same name without the prefixes of PyTorch's wrappers: expected only one of them",
                          in_quotes(other), in_quotes(tensor.name)));
  }
}

std::vector<std::string> WeightFolder::names() const {
  std::vector<std::string> names;
  for (auto& [name, place] : places_) names.push_back(name);
  return names;
}

std::string WeightFolder::wrappers_note() const {
  const std::pair<const std::string, Place>* first = nullptr;
  size_t count = 0;
  for (const auto& entry : places_) {
    if (entry.second.info->name == entry.first) continue;
    if (first == nullptr) first = &entry;
    ++count;
  }
  if (count == 0) return "";
  return fmt::format("{} of {} tensors in {} have names with the prefix of a PyTorch wrapper, which is removed: {} is read as {}", count,
                     places_.size(), path_.string(), first->second.info->name, first->first);
}

const TensorInfo* WeightFolder::find(const std::string& name) const {
  const auto entry = places_.find(name);
  return entry == places_.end() ? nullptr : entry->second.info;
}

const WeightFolder::Place& WeightFolder::place_of(const std::string& name) const {
  const auto entry = places_.find(name);
  if (entry == places_.end()) throw Error(ErrorCode::data, "[safetensors] there is no tensor " + in_quotes(name));
  return entry->second;
}

void WeightFolder::read(const std::string& name, i64 begin, std::span<double> out) const {
  const Place& place = place_of(name);
  place.file->read_wide(*place.info, begin, out);
}

void WeightFolder::read_as(const std::string& name, i64 begin, DType dtype, std::span<std::byte> out) const {
  const Place& place = place_of(name);
  if (place.info->foreign.empty() && place.info->dtype == dtype && place.file->read_bytes(*place.info, begin, out)) return;
  const auto read_wide = [&](i64 at, std::span<double> wide) { place.file->read_wide(*place.info, begin + at, wide); };
  read_narrowed(read_wide, dtype, out);
}

bool WeightFolder::equal(const std::string& one, const std::string& other) const {
  constexpr i64 kPiece = 8192;
  const TensorInfo *a = find(one), *b = find(other);
  require(a != nullptr && b != nullptr, "[weights] expected two tensors of this folder to compare");
  if (!(a->shape == b->shape)) return false;
  std::vector<double> values(kPiece), others(kPiece);
  for (i64 at = 0; at < a->shape.elems(); at += kPiece) {
    const auto count = static_cast<size_t>(std::min(kPiece, a->shape.elems() - at));
    read(one, at, std::span(values).first(count));
    read(other, at, std::span(others).first(count));
    if (!std::equal(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count), others.begin())) return false;
  }
  return true;
}

}  // namespace spillway::data
