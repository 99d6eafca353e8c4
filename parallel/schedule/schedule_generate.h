// Generates pipeline schedules by name, as pure functions of three numbers. The result passes check_schedule() and is executable: every
// stage computes its weight gradients in ascending order of micro-batches. Thread-safe.
#pragma once
#include <optional>
#include <span>
#include <string_view>

#include "parallel/schedule/schedule.h"

namespace spillway::parallel {

enum class ScheduleKind : u8 {
  /// All forwards, then all backwards: GPipe (Huang et al. 2018, arXiv 1811.06965). A rank holds the activations of all micro-batches.
  gpipe,
  /// P - 1 - r forwards on rank r, then alternately one forward and one backward: PipeDream-Flush (Narayanan et al. 2020, arXiv
  /// 2006.09503), called 1F1B in Megatron-LM (Narayanan et al. 2021, arXiv 2104.04473). Its bubble is GPipe's, but a rank holds min(P - r,
  /// M) micro-batches.
  one_forward_one_backward,
  /// 1F1B over several chunks per rank, assigned round-robin, in rounds of about P micro-batches (Megatron-LM 2021, section 2.2); the
  /// bubble shrinks to 1/chunks. torch.distributed.pipelining requires rounds of equal size; here sizes may differ by one, so any M is
  /// allowed.
  interleaved,
  /// ZB-H1 (Qi et al. 2023, "Zero Bubble Pipeline Parallelism", arXiv 2401.10241, section 3.1): 1F1B with B split into I and W, where W of
  /// rank r runs r backwards late. It removes two thirds of the bubble and holds no more than the first rank of 1F1B. With several chunks
  /// per rank it is InterleavedZeroBubble of torch.distributed.pipelining.
  zb_h1,
  /// ZB-V (Qi et al. 2024, "Pipeline Parallelism with Controllable Memory", arXiv 2405.15362; section 6 of the 2023 paper): two chunks per
  /// rank in the shape of a V, so that rank 0 has the first and the last stage. If F, I and W take equal time and M >= 2P - 1, no rank is
  /// idle between its first and last action. A rank holds the activations of 2P chunks.
  zb_v,
  /// Breadth-first (Lamy-Poirier 2022, arXiv 2211.05953): all micro-batches of a chunk run before the next chunk, and chunks are assigned
  /// round-robin. With one block per chunk, each block's weights are needed twice a step. The paper runs the micro-batches of the backward
  /// in reverse order; this schedule does not.
  vertical,
};

/// Returns the names in the order of the enum: "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "vertical".
std::span<const std::string_view> schedule_names();
std::string_view to_string(ScheduleKind kind);
std::optional<ScheduleKind> schedule_kind(std::string_view name);

struct PipelineShape {
  i64 ranks = 1;          // P: ranks of one pipeline
  i64 micro_batches = 1;  // M: micro-batches of one step
  i64 chunks = 1;         // number of stages that a rank holds
};

/// Returns 2 for interleaved and zb-v, else 1.
i64 default_chunks(ScheduleKind kind);
/// Returns the schedule. Throws Error(usage), which names the nearest legal choice, for a number of chunks that the kind does not allow or
/// sizes beyond kMostStages, kMostMicroBatches and kMostActions.
Schedule generate_schedule(ScheduleKind kind, const PipelineShape& shape);

}  // namespace spillway::parallel
