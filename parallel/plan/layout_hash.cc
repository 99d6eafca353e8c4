#include "parallel/plan/layout_hash.h"

#include <fmt/format.h>

#include "base/random.h"

namespace spillway::parallel {

u64 layout_hash(const Plan& plan) {
  const optim::StateFormat& f = plan.scheduling.format;
  const Sharding& sharding = plan.scheduling.sharding;
  std::string text =
      fmt::format("{} {} {} {}", static_cast<int>(f.weight), static_cast<int>(f.master), static_cast<int>(f.moments), plan.training);
  if (f.average) text += " average";
  if (f.rule != optim::Rule::adamw) text += fmt::format(" {}", to_string(f.rule));
  if (sharding.ranks > 1) text += fmt::format(" {}/{} stage {}", sharding.rank, sharding.ranks, sharding.stage);
  if (plan.scheduling.pipeline.ranks > 1) text += fmt::format(" pipeline {}/{}", plan.layout.rank, plan.scheduling.pipeline.ranks);
  for (const Group& g : plan.layout.groups) {
    text += fmt::format("|{} {} {} {}", g.elems, static_cast<int>(plan.placement.parameters[g.id]),
                        static_cast<int>(plan.placement.optimizer[g.id]), g.frozen);
    if (g.statistics) text += " statistics";
    if (g.by_parameter) text += g.factors > 0 ? fmt::format(" factors {}", g.factors) : " matrices";
    for (const Segment& s : g.segments) text += fmt::format(" {}+{}", s.parameter, s.elems);
  }
  return RandomKey{}.derive(text).value;
}

}  // namespace spillway::parallel
