// A Session is what train, plan, generate and evaluate share: the model named by the flags, a plan of it for this node's budgets, and the
// rank that executes the plan. The session connects parts that do not know each other: budgets (budgets.h, nvme_paths.h), prediction
// (prediction.h) and scratch files (held_scratch.h). Constructing a session writes nothing; open() allocates memory and the scratch files.
// For use by one thread.
#pragma once
#include <atomic>
#include <memory>
#include <optional>

#include "parallel/comm/rank_mesh.h"
#include "parallel/exchange/rank_exchange.h"
#include "parallel/run/rank.h"
#include "trainer/checkpoints/model_source.h"
#include "trainer/node/messages.h"
#include "trainer/plan/alternatives.h"
#include "trainer/plan/nvme_paths.h"
#include "trainer/plan/prediction.h"
#include "trainer/plan/wishes.h"
#include "trainer/ranks/device_choice.h"
#include "trainer/ranks/peers.h"
#include "trainer/run/held_scratch.h"

namespace spillway::trainer {

class Session {
 public:
  /// `config` must be resolved for `device`. `run_id` names this run's folder on the scratch
  /// path. A restart with the same id reuses what a dead process left in that folder.
  Session(const ResourceConfig& config, ChosenDevice device, ModelSource source, std::string run_id, const StateWishes& state = {},
          const RankPlace& place = {}, const parallel::Pipeline& pipeline = {});
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Lowers the budgets to `bytes`, for each tier the smallest budget of all ranks, so that the plans of all ranks fit.
  void limit(const std::array<i64, offload::kTiers>& bytes) { budgets_.bytes = bytes; }
  /// Chooses the plan. Throws Error(refused) if no plan fits.
  void plan(const PlacementSettings& wishes, const Workload& work);
  /// choice() returns the chosen plan as text. The first rank sends this text to the other ranks,
  /// which call adopt() with it instead of plan(). adopt() builds the plan of the calling rank.
  std::string choice() const;
  void adopt(const std::string& choice, const Workload& work);
  /// Checks that the collectives and messages in the Programs (lists of instructions) of all ranks match. Throws Error(bug) if they do not.
  void check_meetings() const;
  /// Logs the memory table and the choices of the plan.
  void print_plan(Messages& messages) const;
  /// Returns a warning if there are more threads than cores, otherwise an empty text.
  std::string threads_notice() const;
  /// Returns the line of threads_line() for the --bind value `bind`, or an empty text if no environment variable for threads is set.
  std::string threads_note(const std::string& bind) const;
  /// Returns how many more bytes open() will take, on all ranks of this node together, from the filesystem
  /// that holds `folder`. Files that a dead run with this session's id left there are reused and do not count.
  i64 scratch_bytes_beside(const std::string& folder) const;
  /// Allocates the memory and the scratch files. `system` makes the I/O engine's system calls, or is
  /// null for the real ones. `ends` are this rank's communicators, or null if this rank is the only one.
  void open(offload::SystemCalls* system = nullptr, const parallel::MeshEnds* ends = nullptr);
  /// Returns what open() and make_rank() are doing, as text for a progress line such as "page-locking host memory, 120 GiB of 480 GiB".
  /// Thread-safe.
  std::string taking() const;
  /// Collective. Makes the rank. Must be called after open(), since the ranks' GPUs may connect in this call.
  void make_rank();
  /// Renames the files on nvme from which a state was recovered. They are kept, but the run does not resume from that state.
  void set_state_aside();
  /// Reopens the state on nvme as it was after the optimizer step that `generation` numbers. Used if this rank has a later state that
  /// another rank lacks.
  void go_back_to(u64 generation);
  /// Returns a log line that names the nvme folders and the I/O engine. The result is empty if the plan does not use nvme.
  std::string nvme_line() const { return scratch_ ? scratch_->text() : ""; }
  /// Returns a warning if make_rank() could not page-lock some host memory for the
  /// GPU. The warning says what that costs. The result is empty if all is page-locked.
  std::string pinning_notice() const;
  std::string nvme_lock_notice() const { return scratch_ ? scratch_->lock_notice() : ""; }
  /// Leaves the nvme files in place for a restart, if a restart could resume from them. If neither keep_scratch() nor give_up_scratch()
  /// is called, files of an earlier process stay in place, and files that this session made are removed together with the session.
  void keep_scratch();
  /// Declares the nvme files useless, as HeldScratch::give_up does.
  void give_up_scratch(bool for_good);

  const parallel::Mesh& mesh() const { return mesh_; }
  const ModelSource& source() const { return source_; }
  const nn::Sequential& model() const { return model_; }
  const optim::StateFormat& format() const { return format_; }
  DType dtype() const { return format_.weight; }
  int threads() const { return threads_; }
  const ChosenDevice& device() const { return device_choice_; }
  const TierBudgets& budgets() const { return budgets_; }
  const NvmePaths& nvme() const { return nvme_; }
  const ScratchId& scratch_id() const { return id_; }
  const parallel::Plan& chosen() const { return chosen_->plan; }
  /// Returns the choices of the plan and what it stores in which tier, one line per choice.
  const std::vector<std::string>& choices() const { return chosen_->why; }
  /// Returns the plans other than the chosen one that plan() found to fit.
  const std::vector<Alternative>& alternatives() const { return alternatives_; }
  /// Returns for each parameter the number of its --optimizer-group, counted from 1. The number 0 means that the parameter is in no group.
  const std::vector<u16>& group_of() const { return group_of_; }
  /// Returns the prediction for the chosen plan.
  Prediction& prediction() { return *prediction_; }
  /// Returns how many bytes the disks read and wrote, and for how long, since open().
  DiskUse disk_use() { return scratch_ ? scratch_->use() : DiskUse(); }
  parallel::Rank& rank() { return *rank_; }
  MemoryPool& device_pool() { return *device_; }
  MemoryPool& host_pool() { return *host_; }

 private:
  parallel::PlanRequest request_for(const Workload& work) const;
  NodeRates look_at_node(const parallel::PlanRequest& request, bool may_spill);
  NodeRates measure_node(const parallel::PlanRequest& request, bool may_spill);
  void predict_with(NodeRates node);
  void take_memory();
  Pinning pinning();
  void take_scratch(offload::SystemCalls* system);

  const ResourceConfig config_;
  const ChosenDevice device_choice_;
  ModelSource source_;
  const StateWishes state_;
  const optim::StateFormat format_;
  nn::Sequential model_;
  std::vector<u16> group_of_;
  int threads_ = 1;
  const RankPlace place_;
  const ScratchId id_;
  const parallel::Pipeline pipeline_;
  const parallel::Mesh mesh_;
  TierBudgets budgets_;
  NvmePaths nvme_;
  parallel::PlanRequest request_;  // request from which the chosen plan is made
  std::optional<ChosenPlan> chosen_;
  std::vector<Alternative> alternatives_;
  std::optional<Prediction> prediction_;
  std::unique_ptr<ThreadPool> pool_;
  i64 unlocked_bytes_ = 0;  // bytes of host memory that could not be page-locked
  std::string why_unlocked_;
  // bytes page-locked by finished allocations; bytes to page-lock in the current allocation (0: none)
  std::atomic<i64> pinned_bytes_ = 0, pinning_bytes_ = 0;
  std::unique_ptr<MemoryPool> device_, host_;
  std::optional<HeldScratch> scratch_;  // set if the plan uses nvme
  parallel::Resources resources_;
  std::unique_ptr<parallel::RankExchange> exchange_;
  std::unique_ptr<parallel::Rank> rank_;
};

}  // namespace spillway::trainer
