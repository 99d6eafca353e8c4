#include "data/weights/zero_checkpoint.h"

#include <set>

#include "data/weights/zero_parts.h"

namespace spillway::data {

struct ZeroCheckpoint::State {
  explicit State(const std::filesystem::path& folder) : parts(zero_parts(folder)), index("[deepspeed] " + parts.folder.string()) {
    for (const ZeroWeight& weight : parts.weights) {
      index.add(weight.info);
      for (const auto& [array, pieces] : weight.arrays) arrays.insert(array);
    }
  }

  ZeroParts parts;
  TensorIndex index;
  std::set<std::string> arrays;
};

ZeroCheckpoint::ZeroCheckpoint(const std::filesystem::path& folder) : state_(std::make_unique<State>(folder)) {
  hold(std::move(state_->index));
}
ZeroCheckpoint::~ZeroCheckpoint() = default;

const std::filesystem::path& ZeroCheckpoint::folder() const { return state_->parts.folder; }
const ZeroCheckpoint::Standing& ZeroCheckpoint::standing() const { return state_->parts.standing; }

void ZeroCheckpoint::widen(const TensorInfo& tensor, i64 begin, std::span<double> out) const {
  state_->parts.tensors.read(state_->parts.weights[number_of(tensor)].values, begin, out);
}

std::vector<std::string> ZeroCheckpoint::arrays() const { return {state_->arrays.begin(), state_->arrays.end()}; }

bool ZeroCheckpoint::has_array(const TensorInfo& tensor, const std::string& array) const {
  return state_->parts.weights[number_of(tensor)].arrays.contains(array);
}

void ZeroCheckpoint::read_array(const TensorInfo& tensor, const std::string& array, i64 begin, std::span<double> out) const {
  state_->parts.tensors.read(state_->parts.weights[number_of(tensor)].arrays.at(array), begin, out);
}

}  // namespace spillway::data
