#include "trainer/plan/wishes.h"

#include "base/error.h"
#include "trainer/settings/pipeline_wish.h"
#include "trainer/settings/update_rule.h"

namespace spillway::trainer {

optim::StateFormat StateWishes::format(Precision precision) const {
  optim::StateFormat format = optim::plain_format(weight_dtype(precision));
  format.master = master;
  format.moments = moments;
  format.rule = rule;
  format.average = average;
  if (precision == Precision::fp16 && master == optim::Master::split)
    throw Error(ErrorCode::usage,
                "[--master-weights] expected fp32 with --precision fp16, got split: a split master needs bf16 weights, which are half of "
                "it; leave --master-weights out");
  format.check();
  if (round_gradients && precision == Precision::fp64)
    throw Error(ErrorCode::usage,
                "[--gradient-dtype] expected fp32 with --precision fp64, got bf16: gradients rounded to bf16 would waste the precision of "
                "fp64; leave --gradient-dtype out");
  return format;
}

Workload work_of(const TrainConfig& config) {
  return {.micro_batches = config.micro_batches(config.data_ranks()),
          .micro_batch_size = config.micro_batch_rows(),
          .sequence_length = *config.sequence_length,
          .decay_all = config.decay_all};
}

StateWishes state_of(const TrainConfig& config) {
  return {.master = config.master_weights,
          .moments = config.moments,
          .rule = rule_of(update_settings(config)),
          .round_gradients = config.round_gradients,
          .reduce_each = config.reduce_each,
          .average = config.ema.has_value(),
          .freeze = config.freeze,
          .optimizer_groups = update_groups(config),
          .durability = config.durability};
}

}  // namespace spillway::trainer
