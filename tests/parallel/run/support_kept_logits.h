// Makes a small GPT-2 whose output head computes its logits in pieces, as a large one does.
// The model is trained once with its logits kept and once with them recomputed.
#pragma once
#include <gtest/gtest.h>

#include "base/error.h"
#include "models/head.h"
#include "models/model.h"
#include "tests/parallel/run/support_run.h"

namespace spillway::test {

inline nn::Sequential with_small_head(const models::ModelConfig& config, DType dtype) {
  constexpr i64 kSmallHeadBytes = 64 * kKiB;
  nn::Sequential whole = models::build(config, dtype), model;
  const nn::ParameterUse weight{whole.parameters.front(), 1};
  whole.blocks.pop_back();
  for (auto& block : whole.blocks) model.push(std::move(block));
  nn::LayerNorm norm("transformer.ln_f", config.width, dtype, config.norm_eps);
  models::LanguageModelHead<nn::LayerNorm>::Options options;
  options.memory = {.piece_bytes = kSmallHeadBytes, .kept_bytes = kSmallHeadBytes};
  model.push(std::make_unique<models::LanguageModelHead<nn::LayerNorm>>(std::move(norm), weight, options));
  return model;
}

/// Returns the result of the rank that computes the last block.
inline const RunResult& of_last_block(const RunResult& run) {
  for (const RunResult& other : run.others) {
    if (other.plan.layout.has_last_block()) return other;
  }
  return run;
}

/// Checks that keeping logits changes no bit, and that the memory used equals the plan's to the page. The logits should be most of
/// what the model can keep. `kept_at_once` is the number of micro-batches whose logits are kept at the same time.
inline void expect_kept_logits_change_no_bit(RunOptions o, i64 kept_at_once) {
  o.build = with_small_head;
  const RunResult again = train(o);
  o.keeps_logits = true;
  const RunResult kept = train(o);
  expect_same_run(kept, again);
  const parallel::Plan &more = of_last_block(kept).plan, &less = of_last_block(again).plan;
  const i64 all = o.micro_batch_size * o.sequence_length * o.model.vocabulary * size_of(wide_dtype(o.dtype));
  EXPECT_GE(more.logits_bytes, all);
  const i64 grown = more.activation_slab_bytes - less.activation_slab_bytes;
  if (kept_at_once == 0) {
    EXPECT_EQ(grown, 0);
    return;
  }
  EXPECT_GT(grown, kept_at_once * all / 2) << "but for the piece that was there";
  o.change_plan = [](parallel::Plan& p) {
    if (p.layout.has_last_block()) p.activation_slab_bytes -= 4096;
  };
  EXPECT_THROW(train(o), Error);
}

}  // namespace spillway::test
