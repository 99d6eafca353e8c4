#include "parallel/schedule/schedule_check.h"

#include <fmt/format.h>

#include "base/error.h"
#include "parallel/schedule/schedule_simulate.h"

namespace spillway::parallel {
namespace {

constexpr u8 bit(ActionKind kind) { return static_cast<u8>(1u << static_cast<unsigned>(kind)); }
constexpr u8 kF = bit(ActionKind::forward), kB = bit(ActionKind::backward), kI = bit(ActionKind::backward_input),
             kW = bit(ActionKind::backward_weight);

class Checker {
 public:
  explicit Checker(const Schedule& schedule) : schedule_(schedule) {}

  void run() {
    check_shape();
    done_.assign(static_cast<size_t>(schedule_.stages()) * static_cast<size_t>(schedule_.micro_batches), 0);
    for (size_t r = 0; r < schedule_.rows.size(); ++r) check_row(r);
    check_ranks();
    for (i32 stage = 0; stage < schedule_.stages(); ++stage) check_whole(stage);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorCode::data, fmt::format("[schedule] {}: expected {}", schedule_.name, what));
  }
  [[noreturn]] void refuse_at(size_t rank, size_t index, const std::string& expected) const {
    const ScheduleRow& row = schedule_.rows[rank];
    throw Error(ErrorCode::data, fmt::format("{}: expected {}, got {}", at_cell(schedule_, static_cast<i64>(rank), cell_of(row, index)),
                                             expected, to_string(row[index])));
  }

  void check_shape() const {
    const auto ranks = static_cast<i64>(schedule_.rows.size()), stages = static_cast<i64>(schedule_.rank_of.size());
    if (ranks < 1 || ranks > stages || stages > kMostStages)
      refuse(fmt::format("1 to {} stages, at least one on each rank, got {} stages and {} ranks", kMostStages, stages, ranks));
    if (schedule_.micro_batches < 1 || schedule_.micro_batches > kMostMicroBatches)
      refuse(fmt::format("1 to {} micro-batches, got {}", kMostMicroBatches, schedule_.micro_batches));
    i64 actions = 0;
    for (const ScheduleRow& row : schedule_.rows) actions += static_cast<i64>(row.size());
    if (actions > kMostActions) refuse(fmt::format("at most {} actions, got {}", kMostActions, actions));
    if (stages * schedule_.micro_batches * 2 > kMostActions)
      refuse(fmt::format("at most {} actions, got {} stages and {} micro-batches", kMostActions, stages, schedule_.micro_batches));
    for (const u16 rank : schedule_.rank_of) {
      if (rank >= ranks) refuse(fmt::format("stages on ranks below {}, got one on rank {}", ranks, rank));
    }
  }

  void check_ranks() const {
    std::vector<bool> holds(schedule_.rows.size(), false);
    for (const u16 rank : schedule_.rank_of) holds[rank] = true;
    for (size_t r = 0; r < holds.size(); ++r) {
      if (!holds[r]) refuse(fmt::format("a stage on every rank, got none on rank {}", r));
    }
  }

  void check_row(size_t rank) {
    const ScheduleRow& row = schedule_.rows[rank];
    for (size_t i = 0; i < row.size(); ++i) {
      if (row[i].kind == ActionKind::idle && !row[i].overlaps_next) continue;
      check_pair(rank, i);
      check_place(rank, i);
      check_order(rank, i);
    }
  }

  void check_pair(size_t rank, size_t i) const {
    const ScheduleRow& row = schedule_.rows[rank];
    if (!row[i].overlaps_next) return;
    const bool whole = row[i].kind == ActionKind::forward && i + 1 < row.size() && row[i + 1].kind == ActionKind::backward;
    if (!whole || row[i + 1].overlaps_next) refuse_at(rank, i, "an overlapped forward to be followed by the backward in the same cell");
  }

  void check_place(size_t rank, size_t i) const {
    const Action& a = schedule_.rows[rank][i];
    if (a.stage >= schedule_.stages()) refuse_at(rank, i, fmt::format("a stage below {}", schedule_.stages()));
    if (a.micro_batch >= schedule_.micro_batches) refuse_at(rank, i, fmt::format("a micro-batch below {}", schedule_.micro_batches));
    if (schedule_.rank_of[a.stage] != rank)
      refuse_at(rank, i, fmt::format("stage {} only in row {}, where it first occurs", a.stage, schedule_.rank_of[a.stage] + 1));
  }

  void check_order(size_t rank, size_t i) {
    const Action& a = schedule_.rows[rank][i];
    u8& done = done_[static_cast<size_t>(a.stage) * static_cast<size_t>(schedule_.micro_batches) + a.micro_batch];
    if (done & bit(a.kind)) refuse_at(rank, i, "every action at most once");
    if (a.kind != ActionKind::forward && !(done & kF)) refuse_at(rank, i, fmt::format("{}F{} earlier in this row", a.stage, a.micro_batch));
    const bool split = a.kind == ActionKind::backward_input || a.kind == ActionKind::backward_weight;
    if ((split && (done & kB)) || (a.kind == ActionKind::backward && (done & (kI | kW))))
      refuse_at(rank, i, "either B or the pair I and W of one stage and micro-batch, not both");
    if (a.kind == ActionKind::backward_weight && !(done & kI))
      refuse_at(rank, i, fmt::format("{}I{} earlier in this row", a.stage, a.micro_batch));
    done |= bit(a.kind);
  }

  void check_whole(i32 stage) const {
    for (i32 m = 0; m < schedule_.micro_batches; ++m) {
      const u8 done = done_[static_cast<size_t>(stage) * static_cast<size_t>(schedule_.micro_batches) + static_cast<size_t>(m)];
      if ((done & kF) && (done & (kB | kW))) continue;
      const char missing = !(done & kF) ? 'F' : (done & kI) ? 'W' : 'B';
      refuse(fmt::format("a forward and a backward of every micro-batch in every stage, got no {}{}{} in row {}", stage, missing, m,
                         schedule_.rank_of[static_cast<size_t>(stage)] + 1));
    }
  }

  const Schedule& schedule_;
  std::vector<u8> done_;  // by stage and micro-batch: one bit for each kind of action that has been found
};

}  // namespace

void check_schedule(const Schedule& schedule) {
  Checker(schedule).run();
  simulate_schedule(schedule);
}

std::optional<std::string> why_not_executable(const Schedule& schedule) {
  std::vector<i32> last(schedule.rank_of.size(), -1);
  for (const ScheduleRow& row : schedule.rows) {
    for (const Action& a : row) {
      if (a.kind != ActionKind::backward && a.kind != ActionKind::backward_weight) continue;
      i32& before = last[a.stage];
      if (a.micro_batch < before) {
        return fmt::format(
            "stage {} runs the weight gradient of micro-batch {} before that of micro-batch {}; expected ascending order, which gives the "
            "same bits in every schedule",
            a.stage, before, a.micro_batch);
      }
      before = a.micro_batch;
    }
  }
  return std::nullopt;
}

}  // namespace spillway::parallel
