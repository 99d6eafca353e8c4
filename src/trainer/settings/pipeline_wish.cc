#include "trainer/settings/pipeline_wish.h"
#include "trainer/settings/placement_settings.h"
#include "trainer/settings/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "parallel/schedule/schedule_csv.h"
#include "trainer/settings/schedule_names.h"

namespace spillway::trainer {
namespace {

using parallel::Schedule;

void read_table(parallel::Pipeline& pipeline, const TrainConfig& config) {
  auto table = std::make_shared<Schedule>(parallel::read_schedule_csv(config.pipeline_schedule));
  if (table->ranks() != config.pipeline_stages)
    refuse(fmt::format("[--pipeline-stages] expected {}, the number of ranks in {}, got {}", table->ranks(), config.pipeline_schedule,
                       config.pipeline_stages));
  pipeline.chunks = table->chunks();
  pipeline.table = std::move(table);
}

}  // namespace

void check_stages(const RanksConfig& config) {
  if (config.ranks % config.pipeline_stages == 0) return;
  const i64 nearest = std::max(config.pipeline_stages, config.ranks / config.pipeline_stages * config.pipeline_stages);
  refuse(fmt::format("[--pipeline-stages] expected the number of ranks to be a multiple of {} stages, got {} rank{}: give --ranks {}",
                     config.pipeline_stages, config.ranks, config.ranks == 1 ? "" : "s", nearest));
}

parallel::Pipeline pipeline_of(const TrainConfig& config) {
  parallel::Pipeline pipeline{.ranks = static_cast<int>(config.pipeline_stages)};
  const std::string name = config.pipeline_schedule == "auto" ? "1f1b" : config.pipeline_schedule;
  if (const auto kind = parallel::schedule_kind(name)) {
    pipeline.kind = *kind;
    pipeline.chunks = config.pipeline_chunks.value_or(config.pipeline_stages > 1 ? parallel::default_chunks(*kind) : 1);
  } else if (names_a_file(name)) {
    read_table(pipeline, config);
  } else {
    refuse_schedule_name(name);
  }
  if (is_vertical(config) && (config.placement->pipeline_split != "auto" || config.pipeline_chunks))
    refuse(
        "[--pipeline-split] expected neither this flag nor --pipeline-chunks with --pipeline-schedule vertical, which distributes single "
        "blocks: leave both out");
  return pipeline;
}

void resolve_order(TrainConfig& config) {
  const bool free = config.pipeline_schedule == "auto" && config.pipeline_stages == 1;
  if (!free) config.placement->order = is_vertical(config) ? parallel::Order::vertical : parallel::Order::micro_batch;
}

}  // namespace spillway::trainer
