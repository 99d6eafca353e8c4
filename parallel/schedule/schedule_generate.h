// Generates pipeline schedules by name. Each is a pure function of the three numbers in PipelineShape. The result passes check_schedule()
// and may be run: every stage computes its weight gradients in ascending order of micro-batches. Thread-safe.
#pragma once
#include <optional>
#include <span>
#include <string_view>

#include "parallel/schedule/schedule.h"

namespace spillway::parallel {

enum class ScheduleKind : u8 {
  /// With GPipe (Huang et al. 2018, arXiv 1811.06965) a rank runs all forwards, then all backwards, and holds all M micro-batches'
  /// activations.
  gpipe,
  /// PipeDream-Flush (Narayanan et al. 2020, arXiv 2006.09503) is called 1F1B in Megatron-LM (Narayanan et al. 2021, arXiv
  /// 2104.04473). Of P ranks, rank r runs P - 1 - r forwards and then alternates between one forward and one backward. Ranks are
  /// idle as long as with GPipe, but a rank holds the activations of only min(P - r, M) micro-batches.
  one_forward_one_backward,
  /// Interleaved 1F1B gives each rank several chunks, assigned round-robin (Megatron-LM 2021, section 2.2). Micro-batches go
  /// through the chunks in rounds of about P. Idle time shrinks to 1/chunks. torch.distributed.pipelining requires rounds of
  /// equal size; this generator lets the sizes differ by one, so any M is allowed.
  interleaved,
  /// ZB-H1 (Qi et al. 2023, "Zero Bubble Pipeline Parallelism", arXiv 2401.10241, section 3.1) is 1F1B in which B is split into I and W,
  /// and rank r runs each W r backwards later than its I. This removes two thirds of the idle time, and no rank holds more activations than
  /// the first rank of 1F1B. With several chunks per rank this is InterleavedZeroBubble of torch.distributed.pipelining.
  zb_h1,
  /// ZB-V (Qi et al. 2024, "Pipeline Parallelism with Controllable Memory", arXiv 2405.15362; also section 6 of arXiv 2401.10241)
  /// gives each rank two chunks in the shape of a V, so that rank 0 has the first and the last stage. If F, I and W take equal
  /// time and M >= 2P - 1, no rank is idle between its first and its last action. A rank holds the activations of at most 2P
  /// chunks.
  zb_v,
  /// The breadth-first schedule (Lamy-Poirier 2022, arXiv 2211.05953) runs all micro-batches through a chunk before the next
  /// chunk starts. Chunks are assigned round-robin. With one block per chunk, each block's weights are needed twice a step.
  /// In the backward, the paper runs the micro-batches in reverse order; this schedule does not.
  vertical,
};

/// Returns the names in the order of the enum: "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "vertical".
std::span<const std::string_view> schedule_names();
std::string_view to_string(ScheduleKind kind);
std::optional<ScheduleKind> schedule_kind(std::string_view name);

struct PipelineShape {
  i64 ranks = 1;          // P, the number of ranks of the pipeline
  i64 micro_batches = 1;  // M, the number of micro-batches of a step
  i64 chunks = 1;         // number of stages that a rank holds
};

/// Returns the number of chunks per rank if the user gives none: 2 for interleaved and zb-v, else 1.
i64 default_chunks(ScheduleKind kind);
/// Returns the schedule. Throws Error(usage), which names the nearest legal choice, if the kind does not allow this number of chunks, or if
/// the sizes exceed kMostStages, kMostMicroBatches or kMostActions.
Schedule generate_schedule(ScheduleKind kind, const PipelineShape& shape);

}  // namespace spillway::parallel
