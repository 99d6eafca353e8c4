// What train, plan, generate and evaluate share: the model named by the flags, the budgets of this node, the plan that fits, and then the
// resources and the rank that carry it out. Making a session writes nothing; open() allocates memory and the scratch file.
#pragma once
#include <memory>
#include <optional>

#include "app/flags/config.h"
#include "app/node/console.h"
#include "app/node/disk_meter.h"
#include "app/plan/cost_model.h"
#include "app/plan/planner.h"
#include "app/plan/shares.h"
#include "app/plan/wishes.h"
#include "app/ranks/device_choice.h"
#include "app/ranks/peers.h"
#include "app/run/model_source.h"
#include "offload/io_engine.h"
#include "offload/run_folder.h"
#include "offload/scratch.h"
#include "offload/system_calls.h"
#include "parallel/comm/rank_mesh.h"
#include "parallel/gpu/gpu_exchange.h"
#include "parallel/run/rank.h"

namespace spillway::app {

class Session {
 public:
  /// `config` is resolved for `device`. `run_id` names this run's folder on the scratch path: a restart of the same run takes over what a
  /// dead one left.
  Session(const ResourceConfig& config, ChosenDevice device, ModelSource source, std::string run_id, const StateWishes& state = {},
          const RankPlace& place = {}, const parallel::Pipeline& pipeline = {});

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
  /// What open() will still take of the filesystem under `folder`, for all ranks of this node; without what a dead run of this id left
  /// there.
  i64 scratch_bytes_beside(const std::string& folder) const;
  /// Takes the memory and the scratch files. `system`: what the I/O engine runs on; null: the real one. `ends`: of several ranks.
  void open(offload::SystemCalls* system = nullptr, const parallel::MeshEnds* ends = nullptr);
  /// After it, on all ranks together: their GPUs may meet here.
  void make_rank();
  /// Of what was recovered from nvme no later generation than this: other ranks do not hold it.
  void go_back_to(u64 generation);
  /// Where nvme lies and what moves its bytes, for the log; empty when nothing lies there.
  std::string nvme_line() const;
  /// Leaves what lies on nvme where it is, for a restart to find; nothing to do unless it could.
  void keep_scratch();

  const parallel::Mesh& mesh() const { return mesh_; }
  const ModelSource& source() const { return source_; }
  const nn::Sequential& model() const { return model_; }
  const optim::StateFormat& format() const { return format_; }
  DType dtype() const { return format_.weight; }
  int threads() const { return threads_; }
  const ChosenDevice& device() const { return device_choice_; }
  const parallel::Plan& chosen() const { return chosen_->plan; }
  /// What was chosen and where, a line each.
  const std::vector<std::string>& choices() const { return chosen_->why; }
  /// --nvme, or the batch system's.
  const std::vector<ScratchPath>& scratch_paths() const { return scratch_paths_; }
  const std::vector<u32>& stripe_weights() const { return shares_.weights; }
  const TierBudgets& budgets() const { return budgets_; }
  /// By simulation, of a step of the training plan that runs this Program of it and ends with this list of the Program's.
  const StepCost& predicted(const parallel::Program& program, const parallel::List& tail);
  const Rates& rates() const { return rates_; }
  /// Memory of the whole process at its most; ranks that share it are taken to have this one's plan.
  i64 predicted_process_bytes() const;
  /// Since open().
  DiskUse disk_use() { return meter_ ? meter_->use() : DiskUse(); }
  parallel::Rank& rank() { return *rank_; }
  MemoryPool& device_pool() { return *device_; }
  MemoryPool& host_pool() { return *host_; }

 private:
  void find_budgets(const ResourceConfig& config);
  /// Of a rank's folder on each scratch path.
  std::string folder_id(int rank) const { return run_id_ + (place_.ranks > 1 ? "-rank" + std::to_string(rank) : ""); }
  parallel::PlanRequest request() const;
  void find_rates(const parallel::PlanRequest& request, bool nvme);
  DiskRates disk_rates(const Calibration& calibration, const std::string& path, offload::IoEngine& engine);
  StepCost predict_step(const StepLists& lists) const;
  std::vector<parallel::Plan> stage_plans() const;
  std::string prediction_text();
  void drop_other_ranks(const std::string& path);
  ResourceConfig config_;
  const ChosenDevice device_choice_;
  ModelSource source_;
  const optim::StateFormat format_;
  const bool round_gradients_, reduce_each_;
  const offload::Durability durability_;
  nn::Sequential model_;
  int threads_ = 1;
  const std::string run_id_;
  const RankPlace place_;
  const parallel::Pipeline pipeline_;
  const parallel::Mesh mesh_;
  std::vector<ScratchPath> scratch_paths_;
  std::vector<i64> nvme_room_bytes_;  // of each path
  Shares shares_;
  TierBudgets budgets_;
  Rates rates_;
  Workload work_;
  std::optional<ChosenPlan> chosen_;
  std::map<const parallel::List*, StepCost> predicted_;  // by how the step ended
  std::string rates_from_;                               // what the prediction should be believed less for
  i64 process_bytes_ = 0, probe_bytes_ = 0;              // before anything of the plan is held; and what timing took
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<MemoryPool> device_, host_;
  std::unique_ptr<DiskMeter> meter_;  // outlives the engine
  offload::ChosenEngine engine_;
  std::vector<offload::RunFolder> scratch_;
  parallel::Resources resources_;
  std::unique_ptr<parallel::GpuExchange> exchange_;
  std::string dropped_;  // likewise: folders of ranks that are no more
  std::string cached_;   // for the log: the paths without direct I/O
  std::unique_ptr<parallel::Rank> rank_;
};

}  // namespace spillway::app
