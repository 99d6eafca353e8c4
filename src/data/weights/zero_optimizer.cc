#include "data/weights/zero_optimizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/weights/zero_files.h"
#include "data/weights/zero_model.h"

namespace spillway::data {
namespace {

using Kind = PickleNode::Kind;

// Returns the states of the optimizer's groups in order. DeepSpeed stores them in one of two ways: as the "state" of torch.optim's
// state_dict, numbered from 0, or as a list (elastic_checkpoint).
std::vector<const PickleNode*> states_of(const TorchTree& tree, const PickleNode* optimizer) {
  std::vector<const PickleNode*> states;
  if (optimizer != nullptr && optimizer->kind == Kind::list) {
    tree.hold(optimizer->count * sizeof(states[0]));
    for (const PickleRef ref : tree.elements(optimizer)) states.push_back(&tree.at(ref));
    return states;
  }
  std::map<i64, const PickleNode*> numbered;
  const PickleNode* all = tree.find(optimizer, "state");
  const auto entries = all == nullptr ? std::span<const PickleRef>() : tree.entries(*all);
  for (size_t i = 0; i + 1 < entries.size(); i += 2) {
    if (tree.at(entries[i]).kind != Kind::integer) continue;
    tree.hold(sizeof(decltype(numbered)::value_type) + kMapNodeBytes);
    numbered.emplace(tree.at(entries[i]).integer(), &tree.at(entries[i + 1]));
  }
  for (const auto& [number, state] : numbered) states.push_back(state);
  return states;
}

std::vector<TorchTensor> tensors_of(const TorchTree& tree, const PickleNode* list, const std::string& name) {
  std::vector<TorchTensor> tensors;
  i64 left = tree.archive().bytes();
  for (const PickleRef ref : tree.elements(list)) {
    auto tensor = tree.tensor(tree.at(ref), name);
    if (!tensor || !tensor->foreign.empty() || !is_floating(tensor->dtype))
      reject_zero(tree.archive().path(), fmt::format("expected floating-point tensors in {}", name));
    // No two tensors of the list may share elements, so together they must have at most as many bytes as the file.
    if (tensor->elems > left / size_of(tensor->dtype))
      reject_zero(tree.archive().path(), fmt::format("{} have more elements than fit into the file", name));
    left -= tensor->elems * size_of(tensor->dtype);
    tensors.push_back(std::move(*tensor));
  }
  return tensors;
}

// Collects the state arrays of one group: every floating-point tensor in the group's state. The elements of
// an array correspond to those of the group's weights, except for padding at the end of the last partition.
void take_arrays(const TorchTree& tree, const PickleNode& state, std::map<std::string, std::vector<TorchTensor>>& arrays) {
  const auto entries = tree.entries(state);
  for (size_t i = 0; i + 1 < entries.size(); i += 2) {
    const PickleNode& key = tree.at(entries[i]);
    if (key.kind != Kind::text || tree.text(key) == "step") continue;
    auto tensor = tree.tensor(tree.at(entries[i + 1]), tree.text(key));
    if (!tensor || !tensor->foreign.empty() || !is_floating(tensor->dtype)) continue;
    arrays[std::string(tree.text(key))].push_back(std::move(*tensor));
  }
}

std::optional<i64> updates_of(const TorchTree& tree, const PickleNode* dictionary, const PickleNode* optimizer,
                              const std::vector<const PickleNode*>& states) {
  if (const PickleNode* step = tree.find(dictionary, "base_optimizer_state_step")) return whole_number(tree, *step);
  for (const PickleNode* state : states) {
    if (const PickleNode* step = tree.find(state, "step")) return whole_number(tree, *step);
  }
  const auto groups = tree.elements(tree.find(optimizer, "param_groups"));
  if (groups.empty()) return {};
  const PickleNode* step = tree.find(&tree.at(groups[0]), "step");
  return step == nullptr ? std::nullopt : whole_number(tree, *step);
}

// Reads the loss scale from the attributes of DeepSpeed's scaler object.
std::optional<ZeroCheckpoint::Scale> scale_of(const TorchTree& tree, const PickleNode* scaler) {
  const PickleNode *scale = tree.attribute(scaler, "cur_scale"), *iteration = tree.attribute(scaler, "cur_iter"),
                   *overflow = tree.attribute(scaler, "last_overflow_iter");
  if (scale == nullptr || iteration == nullptr || overflow == nullptr || iteration->kind != Kind::integer ||
      overflow->kind != Kind::integer)
    return {};
  if (scale->kind != Kind::integer && scale->kind != Kind::real) return {};
  const double value = scale->kind == Kind::integer ? static_cast<double>(scale->integer()) : scale->real();
  const i64 at = iteration->integer(), last = overflow->integer();
  if (!(value >= 1) || value > 0x1p64 || at < 0 || last < -1 || last >= at) return {};
  return ZeroCheckpoint::Scale{value, at - last - 1};
}

std::vector<i64> whole_numbers(const TorchTree& tree, const PickleNode& list) {
  std::vector<i64> numbers;
  for (const PickleRef ref : tree.elements(&list)) {
    tree.hold(sizeof(i64));
    numbers.push_back(std::min(whole_number(tree, tree.at(ref)).value_or(0), i64{1} << 40));
  }
  return numbers;
}

std::vector<std::vector<i64>> paddings_of(const TorchTree& tree, const PickleNode* groups) {
  std::vector<std::vector<i64>> paddings;
  for (const PickleRef ref : tree.elements(groups)) {
    tree.hold(sizeof(paddings[0]));
    paddings.push_back(whole_numbers(tree, tree.at(ref)));
  }
  return paddings;
}

// Reads the ZeRO stage, which the file holds as a number such as 3 or as ZeroStageEnum(3).
int stage_of(const TorchTree& tree, const PickleNode* node) {
  if (node != nullptr && node->kind == Kind::object) {
    const auto arguments = tree.elements(&tree.arguments(*node));
    node = arguments.size() == 1 ? &tree.at(arguments[0]) : nullptr;
  }
  return node != nullptr && node->kind == Kind::integer ? static_cast<int>(std::clamp<i64>(node->integer(), 0, 4)) : 0;
}

}  // namespace

std::optional<i64> whole_number(const TorchTree& tree, const PickleNode& node) {
  if (node.kind == Kind::integer) return std::max<i64>(node.integer(), 0);
  const auto tensor = tree.tensor(node, "step");
  if (!tensor || tensor->elems != 1 || !tensor->foreign.empty() || !is_floating(tensor->dtype)) return {};
  double value = 0;
  read_wide(tree.archive(), *tensor, 0, std::span(&value, 1));
  return value >= 0 && value < 0x1p53 ? std::optional(static_cast<i64>(value)) : std::nullopt;
}

ZeroOptimizer zero_optimizer(const std::filesystem::path& path, const TorchArchive& archive) {
  const TorchTree tree(archive, belongs_to_deepspeed, kDeepSpeedCure);
  const PickleNode* dictionary = tree.find(&tree.root(), "optimizer_state_dict");
  ZeroOptimizer read;
  read.stage = stage_of(tree, tree.find(dictionary, "zero_stage"));
  if (read.stage < 1 || read.stage > 3)
    reject_zero(path, "expected `optimizer_state_dict` with `zero_stage` 1, 2 or 3, got something else");
  const PickleNode* count = tree.find(dictionary, "partition_count");
  if (count != nullptr) {
    std::vector<i64> counts = whole_numbers(tree, *count);  // the number of partitions of each parameter group
    counts.push_back(whole_number(tree, *count).value_or(0));
    read.ranks = std::ranges::max(counts);
  }
  const bool whole = read.stage < 3;
  read.weights =
      tensors_of(tree, tree.find(dictionary, whole ? "single_partition_of_fp32_groups" : "fp32_flat_groups"), "the fp32 weights");
  if (read.weights.empty()) reject_zero(path, "the file has no fp32 weights");
  const PickleNode* optimizer = tree.find(dictionary, whole ? "base_optimizer_state" : "optimizer_state_dict");
  const std::vector<const PickleNode*> states = states_of(tree, optimizer);
  for (const PickleNode* state : states) take_arrays(tree, *state, read.arrays);
  std::erase_if(read.arrays, [&](const auto& array) { return array.second.size() != read.weights.size(); });
  read.updates = updates_of(tree, dictionary, optimizer, states);
  read.loss_scale = scale_of(tree, tree.find(dictionary, "loss_scaler"));
  read.paddings = paddings_of(tree, tree.find(dictionary, "param_alignment_paddings"));
  return read;
}

}  // namespace spillway::data
