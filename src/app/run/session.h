// What train, plan, generate and evaluate share: the model named by the flags, a plan of it for this node's budgets, and the rank that
// carries it out. It ties the parts together, each of which knows only what it is given: budgets (budgets.h, nvme_paths.h), prediction
// (prediction.h), scratch (held_scratch.h). Making a session writes nothing; open() allocates memory and the scratch files. One thread.
#pragma once
#include <atomic>
#include <memory>
#include <optional>

#include "app/checkpoints/model_source.h"
#include "app/node/console.h"
#include "app/plan/alternatives.h"
#include "app/plan/nvme_paths.h"
#include "app/plan/prediction.h"
#include "app/plan/wishes.h"
#include "app/ranks/device_choice.h"
#include "app/ranks/peers.h"
#include "app/run/held_scratch.h"
#include "parallel/comm/rank_mesh.h"
#include "parallel/exchange/rank_exchange.h"
#include "parallel/run/rank.h"

namespace spillway::app {

class Session {
 public:
  /// `config` is resolved for `device`. `run_id` names this run's folder on the scratch path: a restart of the same run takes over what a
  /// dead one left.
  Session(const ResourceConfig& config, ChosenDevice device, ModelSource source, std::string run_id, const StateWishes& state = {},
          const RankPlace& place = {}, const parallel::Pipeline& pipeline = {});
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// What all ranks' plans must fit into, when another one has less.
  void limit(const std::array<i64, offload::kTiers>& bytes) { budgets_.bytes = bytes; }
  /// Chooses the plan. Error(refused) when nothing fits.
  void plan(const PlanWishes& wishes, const Workload& work);
  /// What was chosen, for the other ranks; and on them, instead of plan(), this rank's own plan of it.
  std::string choice() const;
  void adopt(const std::string& choice, const Workload& work);
  /// All ranks' Programs of this plan meet. Error(bug).
  void check_meetings() const;
  /// Table and choices, for the log.
  void print_plan(Console& console) const;
  /// More threads than cores, to be said; else empty.
  std::string threads_notice() const;
  /// What open() will still take of the filesystem under `folder`, for all ranks of this node; without what a dead run of this id left
  /// there.
  i64 scratch_bytes_beside(const std::string& folder) const;
  /// Takes the memory and the scratch files. `system`: what the I/O engine runs on; null: the real one. `ends`: of several ranks.
  void open(offload::SystemCalls* system = nullptr, const parallel::MeshEnds* ends = nullptr);
  /// What open() and make_rank() are at, for a progress line: "page-locking host memory, 120 GiB of 480 GiB". From any thread.
  std::string taking() const;
  /// After it, on all ranks together: their GPUs may meet here.
  void make_rank();
  /// What was recovered from nvme is set aside, and nothing gone on from.
  void set_state_aside();
  /// Of what was recovered from nvme no later generation than this: other ranks do not hold it.
  void go_back_to(u64 generation);
  /// Where nvme lies and what moves its bytes, for the log; empty when nothing lies there.
  std::string nvme_line() const { return scratch_ ? scratch_->text() : ""; }
  /// Host memory that is not page-locked for the GPU and what that costs, since make_rank(); else empty.
  std::string pinning_notice() const;
  std::string nvme_lock_notice() const { return scratch_ ? scratch_->lock_notice() : ""; }
  /// Leaves what lies on nvme where it is, for a restart to find; nothing to do unless it could. Before this, or give_up_scratch(), what
  /// was found there stays and what was made here goes with the session.
  void keep_scratch();
  /// HeldScratch::give_up.
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
  /// What was chosen and where, a line each.
  const std::vector<std::string>& choices() const { return chosen_->why; }
  /// What else plan() found to fit.
  const std::vector<Alternative>& alternatives() const { return alternatives_; }
  /// By parameter: of --optimizer-group, counted from 1; 0: none.
  const std::vector<u16>& group_of() const { return group_of_; }
  /// Of the chosen plan.
  Prediction& prediction() { return *prediction_; }
  /// Since open().
  DiskUse disk_use() { return scratch_ ? scratch_->use() : DiskUse(); }
  parallel::Rank& rank() { return *rank_; }
  MemoryPool& device_pool() { return *device_; }
  MemoryPool& host_pool() { return *host_; }

 private:
  parallel::PlanRequest request_for(const Workload& work) const;
  NodeRates look_at_node(const parallel::PlanRequest& request, bool may_spill);
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
  parallel::PlanRequest request_;  // that makes the chosen plan
  std::optional<ChosenPlan> chosen_;
  std::vector<Alternative> alternatives_;
  std::optional<Prediction> prediction_;
  std::unique_ptr<ThreadPool> pool_;
  i64 unlocked_bytes_ = 0;  // of host memory, and the last reason
  std::string why_unlocked_;
  std::atomic<i64> pinned_bytes_ = 0, pinning_bytes_ = 0;  // of host memory: done with, and of what is under way; 0: nothing is
  std::unique_ptr<MemoryPool> device_, host_;
  std::optional<HeldScratch> scratch_;  // where the plan uses nvme
  parallel::Resources resources_;
  std::unique_ptr<parallel::RankExchange> exchange_;
  std::unique_ptr<parallel::Rank> rank_;
};

}  // namespace spillway::app
