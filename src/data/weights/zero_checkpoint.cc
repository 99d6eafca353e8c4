#include "data/weights/zero_checkpoint.h"

#include <fmt/format.h>

#include <set>

#include "data/files/file.h"
#include "data/weights/tensor_index.h"
#include "data/weights/zero_parts.h"

namespace spillway::data {

struct ZeroCheckpoint::State {
  explicit State(const std::filesystem::path& folder) : parts(zero_parts(folder)), index("[deepspeed] " + parts.folder.string()) {
    for (const ZeroWeight& weight : parts.weights) {
      index.add(weight.info);
      for (const auto& [array, pieces] : weight.arrays) arrays.insert(array);
    }
  }

  const ZeroWeight& weight(const TensorInfo& tensor) const { return parts.weights[index.number(tensor.name)]; }

  ZeroParts parts;
  TensorIndex index;
  std::set<std::string> arrays;
};

ZeroCheckpoint::ZeroCheckpoint(const std::filesystem::path& folder) : state_(std::make_unique<State>(folder)) {}
ZeroCheckpoint::ZeroCheckpoint(ZeroCheckpoint&&) noexcept = default;
ZeroCheckpoint::~ZeroCheckpoint() = default;

const std::filesystem::path& ZeroCheckpoint::folder() const { return state_->parts.folder; }
const std::vector<TensorInfo>& ZeroCheckpoint::tensors() const { return state_->index.all(); }
const ZeroCheckpoint::Standing& ZeroCheckpoint::standing() const { return state_->parts.standing; }

const TensorInfo* ZeroCheckpoint::find(const std::string& name) const { return state_->index.find(name); }

void ZeroCheckpoint::read_wide(const TensorInfo& tensor, i64 begin, std::span<double> out) const {
  if (!tensor.foreign.empty() || !is_floating(tensor.dtype))
    reject_zero(folder(), fmt::format("tensor {}: expected floating-point numbers, got another type", in_quotes(tensor.name)));
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
