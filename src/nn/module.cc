#include "nn/module.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "autograd/anomaly.h"
#include "base/error.h"
#include "ops/losses/row_loss.h"

namespace spillway::nn {
namespace {

[[noreturn]] void refuse(const Parameter& parameter, const std::string& what) {
  throw Error(ErrorCode::bug, "[sequential] parameter " + parameter.name + ": " + what);
}

using Names = std::unordered_map<std::string_view, const Parameter*>;

// Returns whether the model already has this parameter. Throws Error(bug) for a new parameter whose name is taken.
bool is_known(const Names& names, const Parameter& parameter) {
  const auto found = names.find(parameter.name);
  if (found != names.end() && found->second != &parameter) refuse(parameter, "expected a unique name, got the name of another parameter");
  return found != names.end();
}

int listed(const std::vector<ParameterUse>& list, const Parameter* parameter) {
  return static_cast<int>(std::ranges::count(list, parameter, [](const ParameterUse& entry) { return entry.parameter.get(); }));
}

}  // namespace

Variable Context::use(const Parameter& parameter, u8 use) const {
  if (autograd::AnomalyGuard* guard = autograd::AnomalyGuard::current())
    guard->name(*parameter.storage, parameter.name + (parameter.is_plain() ? "" : ", quantized"));
  if (!tape || parameter.frozen) return autograd::Tape::frozen(parameter.value());
  return tape->parameter(parameter.value(), parameter.id, use);
}

Variable Context::loss(const Variable& losses) const {
  if (!batch->row_mask_B.defined())
    throw Error(ErrorCode::usage,
                "[loss] expected a model with inputs of its own (Sequential::inputs), got one that reads tokens or images: "
                "end it in a loss that takes batch->targets_BT, such as ops::cross_entropy_sum");
  return ops::sum_of_rows(losses, batch->row_mask_B, loss_factor);
}

void Sequential::push(std::unique_ptr<Module> block) {
  require(block != nullptr, "[sequential] expected a block, got a null pointer");
  const std::vector<ParameterUse> uses_here = block->parameters();
  std::vector<std::shared_ptr<Parameter>> fresh;
  Names names;
  for (const auto& parameter : parameters) names.emplace(parameter->name, parameter.get());
  for (const ParameterUse& entry : uses_here) {
    require(entry.parameter != nullptr, "[sequential] expected every parameter that the block lists to exist, got a null pointer");
    const Parameter& parameter = *entry.parameter;
    if (listed(uses_here, &parameter) != 1) refuse(parameter, "expected the block to list the parameter once, got it twice");
    const bool known = is_known(names, parameter);
    const int expected = known ? uses(parameter.id) : 0;
    if (entry.use != expected) {
      refuse(parameter, "expected use " + std::to_string(expected) + " (uses count up in block order), got " + std::to_string(entry.use));
    }
    if (known) continue;
    for (const auto& other : fresh) {
      if (other->name == parameter.name) refuse(parameter, "expected a unique name, got the name of another parameter of the block");
    }
    fresh.push_back(entry.parameter);
  }
  for (auto& parameter : fresh) {
    parameter->id = static_cast<u32>(parameters.size());
    parameters.push_back(std::move(parameter));
  }
  blocks.push_back(std::move(block));
}

int Sequential::uses(u32 parameter) const {
  const Parameter* wanted = parameters.at(parameter).get();
  int count = 0;
  for (const auto& block : blocks) count += listed(block->parameters(), wanted);
  return count;
}

i64 Sequential::parameter_elems() const {
  i64 elems = 0;
  for (const auto& parameter : parameters) elems += parameter->statistic ? 0 : parameter->elems();
  return elems;
}

size_t Sequential::first_trained_block() const {
  const auto trained = [](const ParameterUse& use) { return !use.parameter->frozen; };
  const auto found = std::ranges::find_if(blocks, [&](const auto& block) { return std::ranges::any_of(block->parameters(), trained); });
  return static_cast<size_t>(found - blocks.begin());
}

MicroBatch empty_batch(const Sequential& model, i64 rows, i64 positions) {
  MicroBatch batch;
  if (model.reads_images()) {
    const Shape& image = model.image_CHW;
    require(image.rank() == 3 && positions == 1, "[sequential] expected images of three dimensions with one position for each image");
    batch.images_NCHW = empty({rows, image[0], image[1], image[2]}, model.parameters.front()->dtype, "images");
    batch.targets_BT = empty({rows}, DType::int32, "targets");
    return batch;
  }
  if (!model.inputs.empty()) {
    require(positions == 1, "[sequential] expected one position for each sample of a model with inputs of its own");
    return empty_batch(model.inputs, rows);
  }
  for (Tensor* t : {&batch.tokens_BT, &batch.targets_BT, &batch.positions_BT}) *t = empty({rows, positions}, DType::int32, "tokens");
  return batch;
}

}  // namespace spillway::nn
