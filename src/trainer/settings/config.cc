#include "trainer/settings/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "trainer/settings/placement_settings.h"
#include "trainer/settings/run_settings.h"

namespace spillway::trainer {

template <class T>
Held<T>::Held() : value_(new T) {}
template <class T>
Held<T>::Held(const Held& other) : value_(new T(*other.value_)) {}
template <class T>
Held<T>& Held<T>::operator=(const Held& other) {
  *value_ = *other.value_;
  return *this;
}
template <class T>
Held<T>::~Held() {
  delete value_;
}

template class Held<PlacementSettings>;
template class Held<RunSettings>;

i64 default_warmup_steps(optim::Schedule::Kind kind, i64 steps) {
  return kind == optim::Schedule::Kind::onecycle ? 0 : std::min<i64>(2000, steps / 100);
}

optim::Schedule schedule_over(const TrainConfig& config, i64 steps) {
  const optim::Schedule::Kind kind = config.lr_schedule;
  const bool follows = !config.schedule_steps && config.warmup_steps == default_warmup_steps(kind, *config.steps);
  optim::Schedule schedule{.kind = kind, .learning_rate = *config.learning_rate, .steps = steps, .min_lr_ratio = config.min_lr_ratio};
  schedule.warmup_steps = follows ? default_warmup_steps(kind, steps) : *config.warmup_steps;
  schedule.decay_steps = config.lr_decay_steps.value_or(std::max<i64>(1, steps / 10));
  schedule.step_size = config.lr_step_size.value_or(schedule.step_size);
  schedule.gamma = config.lr_gamma.value_or(schedule.gamma);
  schedule.power = config.lr_power.value_or(schedule.power);
  schedule.pct_start = config.lr_pct_start.value_or(schedule.pct_start);
  return schedule;
}

DType weight_dtype(Precision precision) {
  switch (precision) {
    case Precision::fp64:
      return DType::f64;
    case Precision::bf16:
    case Precision::fp8:
      return DType::bf16;
    case Precision::fp16:
      return DType::f16;
    case Precision::fp32:
    case Precision::tf32:
      break;
  }
  return DType::f32;
}

i64 TrainConfig::micro_batches(i64 data_parallel_ranks) const {
  if (!global_batch_size) return gradient_accumulation_steps.value_or(1);
  const i64 each = micro_batch_rows(), rows = each * data_parallel_ranks;
  if (*global_batch_size % rows == 0) return *global_batch_size / rows;
  const i64 below = *global_batch_size / rows * rows;
  throw Error(ErrorCode::usage,
              fmt::format("[--global-batch-size] expected a multiple of {} (--micro-batch-size {} on {} data-parallel rank{}), got {}; "
                          "the nearest legal sizes are {}{}",
                          rows, each, data_parallel_ranks, data_parallel_ranks == 1 ? "" : "s", *global_batch_size,
                          below > 0 ? std::to_string(below) + " and " : "", below + rows));
}

// Computes FNV-1a, with its 64 bits folded to 32. The hash is part of folder names, so it must be short and must never change between
// versions. It does not need to resist attacks.
std::string numbers_hash(const TrainConfig& config) {
  u64 hash = 0xcbf29ce484222325u;
  const auto add = [&](const std::string& text) {
    for (const char c : text) hash = (hash ^ static_cast<u8>(c)) * 0x100000001b3u;
    hash = (hash ^ 0xffu) * 0x100000001b3u;
  };
  for (const NumberKey& key : number_keys(config)) {
    if (key.absent) continue;
    add(key.key);
    add(key.value);
  }
  return fmt::format("{:08x}", static_cast<u32>(hash ^ hash >> 32));
}

std::string default_out(const TrainConfig& config) {
  std::filesystem::path model = std::filesystem::path(config.model).lexically_normal();
  if (!model.has_filename()) model = model.parent_path();
  std::string name = model.filename().string();
  if (name.empty() || name == "." || name == "..") name = "model";
  return "runs/" + name + "-" + numbers_hash(config);
}

bool uses_tier(const PlacementSettings& wishes, Tier tier) {
  return std::ranges::any_of(std::array{&wishes.parameters, &wishes.gradients, &wishes.optimizer, &wishes.activations},
                             [&](const PlacementWish* wish) { return wish->uses(tier); });
}

bool may_use_tier(const PlacementSettings& wishes, Tier tier) {
  return uses_tier(wishes, tier) || wishes.parameters.automatic || wishes.gradients.automatic || wishes.optimizer.automatic ||
         wishes.activations.automatic;
}

}  // namespace spillway::trainer
