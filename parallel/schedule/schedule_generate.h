// The pipeline schedules by name. Pure functions of three numbers; what they return passes check_schedule() and is executable: every stage
// runs its weight gradients in ascending micro-batch order. Thread-safe.
#pragma once
#include <optional>
#include <span>
#include <string_view>

#include "parallel/schedule/schedule.h"

namespace spillway::parallel {

enum class ScheduleKind : u8 {
  /// All forwards, then all backwards. GPipe (Huang et al. 2018, arXiv 1811.06965). Holds every micro-batch.
  gpipe,
  /// P - 1 - r forwards, then one forward, one backward. PipeDream-Flush (Narayanan et al. 2020, arXiv 2006.09503), 1F1B of Megatron-LM
  /// (Narayanan et al. 2021, arXiv 2104.04473). The same bubble as GPipe; holds min(P - r, M).
  one_forward_one_backward,
  /// 1F1B over several chunks a rank, dealt round-robin, in rounds of about P micro-batches (Megatron-LM 2021, section 2.2): the bubble
  /// falls
  /// to 1/chunks. Where torch.distributed.pipelining wants rounds of one size, ours may differ by one, so that any M is legal.
  interleaved,
  /// ZB-H1 (Qi et al. 2023, "Zero Bubble Pipeline Parallelism", arXiv 2401.10241, section 3.1): 1F1B with B cut into I and W, W of rank r
  /// r backwards late: two thirds of the bubble gone, holds no more than 1F1B's first rank. With several chunks a rank it is
  /// torch.distributed.pipelining's InterleavedZeroBubble.
  zb_h1,
  /// ZB-V (Qi et al. 2024, "Pipeline Parallelism with Controllable Memory", arXiv 2405.15362; the 2023 paper's section 6): two chunks a
  /// rank, folded, so that rank 0 has the first and the last stage. No idle slot between a rank's first action and its last when F, I and W
  /// take equal time and M >= 2P - 1; holds 2P chunks.
  zb_v,
  /// Breadth-first (Lamy-Poirier 2022, arXiv 2211.05953): all micro-batches of a chunk before the next chunk, chunks dealt round-robin.
  /// With
  /// one block a chunk each block's weights are needed twice a step. That paper runs the backward micro-batches in reverse, we do not.
  vertical,
};

/// In the order of the enum: "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "vertical".
std::span<const std::string_view> schedule_names();
std::string_view to_string(ScheduleKind kind);
std::optional<ScheduleKind> schedule_kind(std::string_view name);

struct PipelineShape {
  i64 ranks = 1;          // P, of one pipeline
  i64 micro_batches = 1;  // M, of one step
  i64 chunks = 1;         // stages a rank holds
};

/// 2 for interleaved and zb-v, else 1.
i64 default_chunks(ScheduleKind kind);
/// Throws Error(usage) naming the nearest legal choice: chunks the kind cannot have, or sizes beyond kMostStages, kMostMicroBatches and
/// kMostActions.
Schedule generate_schedule(ScheduleKind kind, const PipelineShape& shape);

}  // namespace spillway::parallel
