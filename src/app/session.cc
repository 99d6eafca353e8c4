#include "app/session.h"

#include <algorithm>

#include "app/grant.h"
#include "base/error.h"
#include "base/units.h"
#include "models/model.h"

namespace spillway::app {
namespace {

bool wants_nvme(const PlacementWish& wish) { return wish.uses(Tier::nvme); }

// What may be preallocated: free space less 5 %, under the ceiling given, with what a dead run of this id left behind.
i64 nvme_budget(const offload::ScratchInfo& info, const ScratchPath& path, const std::string& run_id) {
  i64 bytes = info.free_bytes - info.total_bytes / 20;
  for (const offload::Orphan& o : offload::list_orphans(path.path)) {
    if (o.name == "spillway-" + run_id) bytes += o.bytes;
  }
  return std::max<i64>(0, path.bytes ? std::min(bytes, *path.bytes) : bytes);
}

}  // namespace

Session::Session(const ResourceConfig& config, ModelSource source, std::string run_id)
    : config_(config),
      source_(std::move(source)),
      dtype_(config.precision == Precision::fp64 ? DType::f64 : DType::f32),
      run_id_(std::move(run_id)) {
  model_ = models::build(source_.config, dtype_);
  threads_ = config.threads ? static_cast<int>(*config.threads) : core_grant(Host{}).cores;
  find_budgets(config);
}

void Session::find_budgets(const ResourceConfig& config) {
  const Budgets memory = split_grant(memory_grant(Host{}), config.device_memory_bytes, config.host_memory_bytes);
  budgets_.bytes = {memory.device_bytes, memory.host_bytes, 0};
  std::vector<ScratchPath> paths = config.nvme;
  if (paths.empty()) {
    if (const auto slurm = Host{}.env("SLURM_TMPDIR")) paths.push_back({*slurm, {}});
  }
  if (paths.empty()) return;
  const offload::ScratchInfo info = offload::inspect_scratch(paths[0].path);
  offload::admit_scratch(info, config.allow_network_nvme);
  budgets_.bytes[2] = nvme_budget(info, paths[0], run_id_);
  budgets_.nvme_is_memory = info.filesystem.memory;
  scratch_path_ = paths[0].path;
}

void Session::plan(const PlanWishes& wishes, bool training, i64 micro_batches, i64 micro_batch_size, i64 sequence_length, bool decay_all) {
  const bool nvme =
      wants_nvme(wishes.parameters) || wants_nvme(wishes.gradients) || wants_nvme(wishes.optimizer) || wants_nvme(wishes.activations);
  if (nvme && !scratch_path_) {
    throw Error(ErrorCode::usage,
                "[plan] a --place flag says nvme, but there is no path: give --nvme PATH (in a Slurm job $SLURM_TMPDIR is taken)");
  }
  parallel::PlanRequest request;
  request.model = &model_;
  request.layout = parallel::make_layout(model_, {.decay_all = decay_all});
  request.scheduling.micro_batches = micro_batches;
  request.scheduling.dtype = dtype_;
  request.micro_batch_size = micro_batch_size;
  request.sequence_length = sequence_length;
  request.training = training;
  chosen_ = choose_plan(request, wishes, budgets_);
}

void Session::print_plan(Console& console) const {
  std::string text = "memory plan:\n" + memory_table(chosen_->plan, budgets_);
  for (const std::string& line : chosen_->why) text += "  " + line + "\n";
  text.pop_back();
  console.log(text);
}

void Session::open(Console& console, offload::SystemCalls* system) {
  const parallel::Plan& plan = chosen_->plan;
  pool_ = std::make_unique<ThreadPool>(threads_);
  device_ = std::make_unique<MemoryPool>("device", budgets_.bytes[0], "raise --device-memory");
  host_ = std::make_unique<MemoryPool>("host", budgets_.bytes[1], "raise --host-memory");
  parallel::Resources resources{device_.get(), host_.get(), nullptr, {}, pool_.get()};
  if (plan.uses(Tier::nvme)) {
    offload::prepare_scratch(*scratch_path_, config_.allow_network_nvme);
    scratch_.emplace(*scratch_path_, run_id_);
    engine_ = offload::make_io_engine(config_.io_engine, offload::kQueueDepth, system ? *system : offload::SystemCalls::real());
    console.log("nvme: " + scratch_->path().string() + ", " + engine_.why);
    resources.engine = engine_.engine.get();
    resources.scratch = scratch_->path();
  }
  rank_ = std::make_unique<parallel::Rank>(model_, plan, resources);
}

}  // namespace spillway::app
