// The pipeline that --pipeline-stages, -schedule, -split and -chunks ask for. A pure function but for reading a CSV file.
#pragma once
#include "app/flags/config.h"
#include "parallel/schedule/pipeline.h"

namespace spillway::app {

/// Of rank 0, without the split. Throws Error(usage): an unknown schedule (naming the nearest), a table of other numbers of ranks, what
/// cannot go together; Error(data) from a CSV file.
parallel::Pipeline pipeline_of(const TrainConfig& config);
/// Each stage has as many ranks. Throws Error(usage) naming the nearest legal number.
void check_stages(const RanksConfig& config);
/// The blocks travel breadth first: all micro-batches of a block before the next.
inline bool is_vertical(const TrainConfig& config) { return config.pipeline_schedule == "vertical"; }

}  // namespace spillway::app
