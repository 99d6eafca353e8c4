#include "app/plan/prediction.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/plan/stage_plans.h"
#include "base/units.h"

namespace spillway::app {

const StepCost& Prediction::step(const parallel::Program& program, const parallel::List& tail) {
  const auto [at, isnew] = steps_.try_emplace(&tail);
  if (!isnew) return at->second;
  StepLists lists{.when_clipping = &program != &plan_.train};
  for (const auto list : {&parallel::Program::commit, &parallel::Program::redo, &parallel::Program::skip}) {
    if (&(program.*list) == &tail) lists.tail = list;
  }
  return at->second = simulated(lists);
}

StepCost Prediction::simulated(const StepLists& lists) const {
  const parallel::Pipeline& pipeline = request_.scheduling.pipeline;
  if (pipeline.ranks == 1) return predict(plan_, lists, *request_.model, node_.rates);
  return predict_together(plans_of_stages(request_, plan_), static_cast<size_t>(pipeline.rank), lists, *request_.model, node_.rates);
}

// On the CPU its device's memory is the process's too, and what timing took has been part of it.
i64 Prediction::process_bytes() const {
  const i64 of_rank = plan_.total[1] + (plan_.on_gpu() ? 0 : plan_.total[0]);
  return node_.process_bytes + std::max(plan_.on_gpu() ? 0 : node_.probe_bytes, process_ranks_ * of_rank);
}

std::string Prediction::step_text() {
  const StepCost& cost = committed(plan_.train);
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
    text += fmt::format(", {} while clipping is not rare", format_duration(committed(*plan_.train_when_clipping).seconds));
  text += fmt::format("; the process about {}", format_bytes(process_bytes()));
  const double break_even = break_even_tokens(plan_, *request_.model, node_.rates);
  if (break_even > 0) text += fmt::format("; moving to and from nvme hides behind computing from {:.0f} tokens a step", break_even);
  // A GPU's copies hide behind its computing.
  const double small = plan_.on_gpu() ? 0 : small_copies_tokens(plan_, *request_.model, node_.rates);
  if (small > 0)
    text += fmt::format(
        "; copying weights and gradients to and from host memory costs {:.0f} % of computing at {:.0f} tokens a step, less above",
        100 * kSmallShare, small);
  return text + node_.doubts;
}

}  // namespace spillway::app
