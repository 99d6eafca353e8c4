#include "trainer/plan/prediction.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "trainer/plan/stage_plans.h"

namespace spillway::trainer {

const StepCost& Prediction::step(const parallel::Program& program, const parallel::List& head, const parallel::List& tail) {
  const auto [at, isnew] = steps_.try_emplace({&head, &tail});
  if (!isnew) return at->second;
  StepLists lists{.when_clipping = &program != &plan_.train};
  for (const auto& [name, list] : parallel::kLists) {
    if (&(program.*list) == &head) lists.head = list;
    if (&(program.*list) == &tail) lists.tail = list;
  }
  return at->second = simulated(lists);
}

StepCost Prediction::simulated(const StepLists& lists) const {
  const parallel::Pipeline& pipeline = request_.scheduling.pipeline;
  if (pipeline.ranks == 1) return predict(plan_, lists, *request_.model, node_.rates);
  return predict_together(plans_of_stages(request_, plan_), static_cast<size_t>(pipeline.rank), lists, *request_.model, node_.rates);
}

namespace {

// kThreadBytes is the memory that each thread touches in its stack and in its allocator's arena.
constexpr i64 kThreadBytes = 96 * kKiB;
// kFirstUsedBytes is the memory that a rank first touches after planning: code and
// tables for the steps and a save, the loader's batch, and the I/O engine's rings.
constexpr i64 kFirstUsedBytes = 3 * kMiB / 2;

// Returns the planned bytes that are mapped but never touched, so that they take no memory. The tiles (pieces
// of state) of a small model do not fill all staging buffers. A save of state in memory uses its queue only if
// the next step overtakes the save. On a GPU the result is 0, because page-locked memory is always resident.
i64 untouched_bytes(const parallel::Plan& plan) {
  if (plan.on_gpu() || plan.chunk_tiles == 0) return 0;
  i64 tiles = 0;
  for (const parallel::Bucket& b : plan.layout.buckets) tiles += b.tiles;
  const i64 ring = plan.staging_buffers * plan.staging_buffer_bytes, passing = tiles * (plan.staging_buffer_bytes / plan.chunk_tiles);
  return std::max<i64>(0, ring - passing) + (plan.uses(parallel::Tier::nvme) ? 0 : plan.queue_buffers * plan.queue_buffer_bytes);
}

}  // namespace

// Returns the peak memory of the process. If the rank computes on the CPU, the device tier is the process's memory too.
i64 Prediction::process_bytes() const {
  const i64 planned = plan_.total[1] + (plan_.on_gpu() ? 0 : plan_.total[0]) - untouched_bytes(plan_);
  const i64 threads = static_cast<i64>(node_.rates.threads) + parallel::kLanes;
  const i64 of_rank = planned + threads * kThreadBytes + kFirstUsedBytes;
  return std::max(node_.peak_bytes, node_.process_bytes + process_ranks_ * of_rank);
}

std::string Prediction::step_text() {
  const StepCost& cost = step(plan_.train);
  const parallel::TierBytes moved = plan_.moved_per_step();
  const auto busy = [&](parallel::Lane lane) { return format_duration(cost.account.busy_s[static_cast<size_t>(lane)]); };
  const double disk_s = node_.rates.disk_s(static_cast<double>(moved.read[2]), static_cast<double>(moved.written[2]));
  const auto exchange_ms = cost.phase_ms.find("exchange");
  return fmt::format("{} a step, bound by {} (compute {}, disk {}, optimizer {}{})", format_duration(cost.seconds),
                     to_string(cost.account.bound_by()), busy(parallel::Lane::compute), format_duration(disk_s),
                     busy(parallel::Lane::optimizer),
                     exchange_ms == cost.phase_ms.end() ? "" : ", exchange " + format_duration(exchange_ms->second / 1e3));
}

std::string Prediction::text() {
  std::string text = "predicted: " + step_text();
  if (plan_.train_when_clipping)
    text += fmt::format(", {} while clipping is frequent", format_duration(step(*plan_.train_when_clipping).seconds));
  const StepCost& cost = step(plan_.train);
  text +=
      fmt::format("; {} {:.0f} % of the step", plan_.on_gpu() ? "the GPU computes" : "computing takes", 100 * cost.share(cost.computing_s));
  text += fmt::format("; the process takes about {}", format_bytes(process_bytes()));
  const double break_even = break_even_tokens(plan_, *request_.model, node_.rates);
  if (break_even > 0) text += fmt::format("; nvme traffic hides behind computing from {:.0f} tokens a step upward", break_even);
  // With a GPU these copies overlap with computing, so they cost time only on a CPU.
  const double small = plan_.on_gpu() ? 0 : small_copies_tokens(plan_, *request_.model, node_.rates);
  if (small > 0)
    text += fmt::format(
        "; copying weights and gradients to and from host memory costs {:.0f} % of computing at {:.0f} tokens a step, and less with more "
        "tokens",
        100 * kSmallShare, small);
  return text + node_.doubts;
}

}  // namespace spillway::trainer
