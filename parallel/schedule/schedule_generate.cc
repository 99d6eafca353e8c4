// All schedules except ZB-V follow one pattern. A rank runs its forwards in a fixed order and its backwards in a fixed order, and starts
// with a number of forwards before the first backward.
#include "parallel/schedule/schedule_generate.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "parallel/schedule/schedule_zb_v.h"

namespace spillway::parallel {
namespace {

constexpr std::string_view kNames[] = {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "vertical"};

// Divides the M micro-batches into rounds; the micro-batches of a round go through all chunks together. There are as many rounds
// as P (the number of ranks) fits into M, but at least one. Their sizes differ by at most one. Larger rounds come first, because
// the warm-up is computed for the first round, and too many forwards of warm-up never cause a deadlock.
std::vector<i64> even_rounds(const PipelineShape& shape) {
  const i64 count = std::max<i64>(1, shape.micro_batches / shape.ranks);
  std::vector<i64> rounds(static_cast<size_t>(count), shape.micro_batches / count);
  for (i64 i = 0; i < shape.micro_batches % count; ++i) ++rounds[static_cast<size_t>(i)];
  return rounds;
}

struct Turn {
  u16 stage = 0, micro_batch = 0;
};

// Returns the order of a rank's forwards, or of its backwards if `descending`: round by round, and within a round one chunk after another,
// from the last chunk to the first if `descending`.
std::vector<Turn> turns(const PipelineShape& shape, const std::vector<i64>& rounds, i64 rank, bool descending) {
  std::vector<Turn> all;
  i64 first = 0;
  for (const i64 size : rounds) {
    for (i64 c = 0; c < shape.chunks; ++c) {
      const i64 chunk = descending ? shape.chunks - 1 - c : c;
      for (i64 m = first; m < first + size; ++m) all.push_back({static_cast<u16>(chunk * shape.ranks + rank), static_cast<u16>(m)});
    }
    first += size;
  }
  return all;
}

// Returns the number of forwards that the rank runs before it alternates between a forward and a backward.
i64 warm_up(ScheduleKind kind, const PipelineShape& shape, i64 first_round, i64 rank) {
  const i64 behind = shape.ranks - 1 - rank, all = shape.micro_batches * shape.chunks;
  const i64 chunks_before_last = (shape.chunks - 1) * first_round;
  if (kind == ScheduleKind::one_forward_one_backward) return std::min(behind, all);
  if (kind == ScheduleKind::interleaved) return std::min(chunks_before_last + 2 * behind, all);
  if (kind == ScheduleKind::zb_h1) return std::min(chunks_before_last + behind, all);
  return all;
}

class Row {
 public:
  explicit Row(std::optional<i64> weights_late) : weights_late_(weights_late) {}

  void forward(Turn t) { add(ActionKind::forward, t); }
  // Adds a backward. If backwards are split, adds its input part, and then the weight part of the backward that lies `weights_late`
  // backwards earlier.
  void backward(Turn t) {
    add(weights_late_ ? ActionKind::backward_input : ActionKind::backward, t);
    owed_.push_back(t);
    if (weights_late_ && static_cast<i64>(owed_.size() - paid_) > *weights_late_) pay();
  }
  ScheduleRow take() && {
    while (weights_late_ && paid_ < owed_.size()) pay();
    return std::move(actions_);
  }

 private:
  void add(ActionKind kind, Turn t) { actions_.push_back({.kind = kind, .stage = t.stage, .micro_batch = t.micro_batch}); }
  void pay() { add(ActionKind::backward_weight, owed_[paid_++]); }
  std::optional<i64> weights_late_;
  std::vector<Turn> owed_;
  size_t paid_ = 0;
  ScheduleRow actions_;
};

ScheduleRow looped_row(ScheduleKind kind, const PipelineShape& shape, i64 rank) {
  const bool rounded = kind == ScheduleKind::interleaved || kind == ScheduleKind::zb_h1;
  const std::vector<i64> rounds = rounded ? even_rounds(shape) : std::vector<i64>{shape.micro_batches};
  const std::vector<Turn> forwards = turns(shape, rounds, rank, false), backwards = turns(shape, rounds, rank, true);
  const auto ahead = static_cast<size_t>(warm_up(kind, shape, rounds.front(), rank));
  Row row(kind == ScheduleKind::zb_h1 ? std::optional(rank) : std::nullopt);
  for (size_t f = 0; f < ahead; ++f) row.forward(forwards[f]);
  for (size_t b = 0; b < backwards.size(); ++b) {
    if (ahead + b < forwards.size()) row.forward(forwards[ahead + b]);
    row.backward(backwards[b]);
  }
  return std::move(row).take();
}

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::usage, message); }

void check_chunks(ScheduleKind kind, i64 chunks) {
  const auto name = to_string(kind);
  if (kind == ScheduleKind::zb_v && chunks != 2)
    refuse(fmt::format(
        "[pipeline schedule] zb-v needs 2 model chunks on each rank, got {}: set --pipeline-chunks 2, or choose zb-h1 for another number",
        chunks));
  if (kind == ScheduleKind::interleaved && chunks < 2)
    refuse(fmt::format(
        "[pipeline schedule] interleaved needs at least 2 model chunks on each rank, got {}: set --pipeline-chunks 2, or choose 1f1b",
        chunks));
  const bool one = kind == ScheduleKind::gpipe || kind == ScheduleKind::one_forward_one_backward;
  if (one && chunks != 1) {
    const char* several = kind == ScheduleKind::gpipe ? "vertical" : "interleaved";
    refuse(fmt::format("[pipeline schedule] {} has 1 model chunk on each rank, got {}: set --pipeline-chunks 1, or choose {}", name, chunks,
                       several));
  }
}

// Checks each number before it is multiplied with others, so that no product overflows.
void check_shape(ScheduleKind kind, const PipelineShape& shape) {
  const std::pair<const char*, i64> numbers[] = {
      {"ranks", shape.ranks}, {"micro-batches", shape.micro_batches}, {"chunks on each rank", shape.chunks}};
  for (const auto& [name, value] : numbers) {
    if (value < 1 || value > kMostStages) refuse(fmt::format("[pipeline schedule] expected 1 to {} {}, got {}", kMostStages, name, value));
  }
  check_chunks(kind, shape.chunks);
  if (shape.ranks * shape.chunks > kMostStages) {
    refuse(fmt::format("[pipeline schedule] expected at most {} stages, got {} ranks with {} chunks each: choose {} chunks or fewer",
                       kMostStages, shape.ranks, shape.chunks, kMostStages / shape.ranks));
  }
  const bool split = kind == ScheduleKind::zb_h1 || kind == ScheduleKind::zb_v;
  const i64 a_micro_batch = shape.ranks * shape.chunks * (split ? 3 : 2);
  if (a_micro_batch * shape.micro_batches > kMostActions) {
    refuse(
        fmt::format("[pipeline schedule] expected at most {} actions in total, got {} micro-batches with {} actions each: choose {} "
                    "micro-batches or fewer",
                    kMostActions, shape.micro_batches, a_micro_batch, kMostActions / a_micro_batch));
  }
}

}  // namespace

std::span<const std::string_view> schedule_names() { return kNames; }

std::string_view to_string(ScheduleKind kind) { return kNames[static_cast<size_t>(kind)]; }

std::optional<ScheduleKind> schedule_kind(std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  if (found == std::end(kNames)) return std::nullopt;
  return static_cast<ScheduleKind>(found - std::begin(kNames));
}

i64 default_chunks(ScheduleKind kind) { return kind == ScheduleKind::interleaved || kind == ScheduleKind::zb_v ? 2 : 1; }

Schedule generate_schedule(ScheduleKind kind, const PipelineShape& shape) {
  check_shape(kind, shape);
  Schedule schedule{.name = std::string(to_string(kind)), .micro_batches = static_cast<i32>(shape.micro_batches)};
  for (i64 stage = 0; stage < shape.ranks * shape.chunks; ++stage) {
    const bool folded = kind == ScheduleKind::zb_v && stage >= shape.ranks;
    schedule.rank_of.push_back(static_cast<u16>(folded ? 2 * shape.ranks - 1 - stage : stage % shape.ranks));
  }
  for (i64 rank = 0; rank < shape.ranks; ++rank) {
    schedule.rows.push_back(kind == ScheduleKind::zb_v ? zb_v_row(shape.ranks, shape.micro_batches, rank) : looped_row(kind, shape, rank));
  }
  return schedule;
}

}  // namespace spillway::parallel
