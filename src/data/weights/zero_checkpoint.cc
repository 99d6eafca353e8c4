#include "data/weights/zero_checkpoint.h"

#include <fmt/format.h>

#include <set>

#include "data/weights/zero_parts.h"

namespace spillway::data {

struct ZeroCheckpoint::State {
  explicit State(const std::filesystem::path& folder) : parts(zero_parts(folder)) {
    for (const ZeroWeight& weight : parts.weights) {
      by_name.emplace(weight.info.name, infos.size());
      infos.push_back(weight.info);
      for (const auto& [array, pieces] : weight.arrays) arrays.insert(array);
    }
  }

  const ZeroWeight& weight(const TensorInfo& tensor) const { return parts.weights[by_name.at(tensor.name)]; }

  ZeroParts parts;
  std::vector<TensorInfo> infos;
  std::map<std::string, size_t> by_name;
  std::set<std::string> arrays;
};

ZeroCheckpoint::ZeroCheckpoint(const std::filesystem::path& folder) : state_(std::make_unique<State>(folder)) {}
ZeroCheckpoint::ZeroCheckpoint(ZeroCheckpoint&&) noexcept = default;
ZeroCheckpoint::~ZeroCheckpoint() = default;

const std::filesystem::path& ZeroCheckpoint::folder() const { return state_->parts.folder; }
const std::vector<TensorInfo>& ZeroCheckpoint::tensors() const { return state_->infos; }
const ZeroCheckpoint::Standing& ZeroCheckpoint::standing() const { return state_->parts.standing; }

const TensorInfo* ZeroCheckpoint::find(const std::string& name) const {
  const auto found = state_->by_name.find(name);
  return found == state_->by_name.end() ? nullptr : &state_->infos[found->second];
}

void ZeroCheckpoint::read_wide(const TensorInfo& tensor, i64 begin, std::span<double> out) const {
  if (!tensor.foreign.empty() || !is_floating(tensor.dtype))
    reject_zero(folder(), fmt::format("tensor {}: expected floating-point numbers", tensor.name));
  state_->parts.tensors.read(state_->weight(tensor).values, begin, out);
}

std::vector<std::string> ZeroCheckpoint::arrays() const { return {state_->arrays.begin(), state_->arrays.end()}; }

bool ZeroCheckpoint::has_array(const TensorInfo& tensor, const std::string& array) const {
  return state_->weight(tensor).arrays.contains(array);
}

void ZeroCheckpoint::read_array(const TensorInfo& tensor, const std::string& array, i64 begin, std::span<double> out) const {
  state_->parts.tensors.read(state_->weight(tensor).arrays.at(array), begin, out);
}

}  // namespace spillway::data
