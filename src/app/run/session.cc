#include "app/run/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "app/node/disk_limit.h"
#include "app/node/disk_probe.h"
#include "app/node/grant.h"
#include "app/node/process_memory.h"
#include "app/plan/choice.h"
#include "app/plan/fit.h"
#include "app/plan/freeze.h"
#include "app/plan/stage_plans.h"
#include "base/error.h"
#include "base/units.h"
#include "models/model.h"
#include "parallel/gpu/nccl_exchange.h"
#include "parallel/proof/check.h"

namespace spillway::app {
namespace {

// By a dead run of this id, on however many ranks.
i64 left_behind(const std::string& path, const std::string& run_id) {
  i64 bytes = 0;
  for (const offload::Orphan& o : offload::list_orphans(path)) {
    if (o.name == "spillway-" + run_id || o.name.starts_with("spillway-" + run_id + "-rank")) bytes += o.bytes;
  }
  return bytes;
}

// What may be preallocated: free space less 5 %, under the ceiling given, with what a dead run left behind.
i64 nvme_budget(const offload::ScratchInfo& info, const ScratchPath& path, const std::string& run_id) {
  const i64 bytes = info.free_bytes - info.total_bytes / 20 + left_behind(path.path, run_id);
  return std::max<i64>(0, path.bytes ? std::min(bytes, *path.bytes) : bytes);
}

}  // namespace

Session::Session(const ResourceConfig& config, ChosenDevice device, ModelSource source, std::string run_id, const StateWishes& state,
                 const RankPlace& place, const parallel::Pipeline& pipeline)
    : config_(config),
      device_choice_(std::move(device)),
      source_(std::move(source)),
      format_(state.format(*config.precision)),
      round_gradients_(state.round_gradients),
      reduce_each_(state.reduce_each),
      durability_(state.durability),
      run_id_(std::move(run_id)),
      place_(place),
      pipeline_(pipeline),
      mesh_{place.ranks / pipeline.ranks, pipeline.ranks} {
  model_ = models::build(source_.config, format_.weight);
  freeze_parameters(model_, state.freeze);
  threads_ = config.threads ? static_cast<int>(*config.threads) : core_grant(Host{}, place.core_sharers, place.local_ranks).cores;
  find_budgets(config);
}

void Session::find_budgets(const ResourceConfig& config) {
  const MemoryGrant grant = memory_grant(Host{}, place_.local_ranks);
  const bool on_gpu = device_choice_.device.is_cuda();
  const Budgets memory = on_gpu ? gpu_budgets(grant, device_choice_, config.device_memory_bytes, config.host_memory_bytes)
                                : split_grant(grant, config.device_memory_bytes, config.host_memory_bytes);
  budgets_.bytes = {memory.device_bytes, memory.host_bytes, 0};
  budgets_.host_from_device = !on_gpu && !config.device_memory_bytes && !config.host_memory_bytes;
  std::vector<ScratchPath> paths = config.nvme;
  if (paths.empty()) {
    if (const auto slurm = Host{}.env("SLURM_TMPDIR")) paths.push_back({*slurm, {}});
  }
  for (const ScratchPath& path : paths) {
    const offload::ScratchInfo info = offload::inspect_scratch(path.path);
    offload::admit_scratch(info, config.allow_network_nvme);
    nvme_room_bytes_.push_back(nvme_budget(info, path, run_id_) / place_.local_ranks);
    budgets_.nvme_is_memory |= info.filesystem.memory;
  }
  shares_ = known_shares(paths, folder_id(place_.rank), load_calibration());
  budgets_.bytes[2] = striped_room(shares_.weights, nvme_room_bytes_);
  scratch_paths_ = paths;
}

parallel::PlanRequest Session::request() const {
  parallel::PlanRequest request;
  request.model = &model_;
  request.device = device_choice_.device.kind;
  request.scheduling.copy_engines = device_choice_.device.is_cuda();
  request.gpu_to_gpu = device_choice_.meeting.nccl;
  request.layout = parallel::make_layout(model_, {.decay_all = work_.decay_all});
  request.scheduling.micro_batches = work_.micro_batches;
  request.scheduling.format = format_;
  request.scheduling.round_gradients = round_gradients_;
  request.scheduling.reduce_each = reduce_each_;
  request.scheduling.sharding = {0, mesh_.data_rank(place_.rank), mesh_.data};
  request.scheduling.pipeline = pipeline_;
  request.scheduling.pipeline.rank = mesh_.pipeline_rank(place_.rank);
  request.micro_batch_size = work_.micro_batch_size;
  request.sequence_length = work_.sequence_length;
  request.training = work_.mode == nn::Mode::train;
  if (!request.training) request.without_training = work_.mode;
  return request;
}

void Session::plan(const PlanWishes& wishes, const Workload& work) {
  if (wishes.uses(Tier::nvme) && scratch_paths_.empty()) {
    throw Error(ErrorCode::usage,
                "[plan] a --place flag says nvme, but there is no path: give --nvme PATH (in a Slurm job $SLURM_TMPDIR is taken)");
  }
  work_ = work;
  parallel::PlanRequest request = this->request();
  find_rates(request, wishes.may_use(Tier::nvme));
  if (!scratch_paths_.empty()) request.stripe_weights = shares_.weights;
  deal_blocks(request, wishes, rates_);
  chosen_ = choose_stage_plans(request, wishes, budgets_, rates_);
  if (request.training) chosen_->why.push_back(prediction_text());
}

std::string Session::choice() const { return to_text(chosen_->plan, shares_); }

void Session::adopt(const std::string& choice, const Workload& work) {
  work_ = work;
  parallel::PlanRequest request = this->request();
  apply_choice(choice, request, shares_);
  chosen_ = ChosenPlan{make_plan(request), {}};
  require_room(chosen_->plan, budgets_);
}

void Session::check_meetings() const {
  std::vector<parallel::Program> programs;
  for (const parallel::Plan& plan : stage_plans()) {
    parallel::Scheduling scheduling = plan.scheduling;
    scheduling.overlap = plan.train.overlap;
    for (scheduling.sharding.rank = 0; scheduling.sharding.rank < mesh_.data; ++scheduling.sharding.rank)
      programs.push_back(plan.training ? generate_training(plan.layout, plan.placement, scheduling)
                                       : generate_forward(plan.layout, plan.placement, scheduling));
  }
  std::vector<const parallel::Program*> all;
  for (const parallel::Program& program : programs) all.push_back(&program);
  parallel::check_together(all, mesh_);
}

// Of this data-parallel rank, by pipeline rank.
std::vector<parallel::Plan> Session::stage_plans() const {
  const parallel::Plan& mine = chosen_->plan;
  parallel::PlanRequest request = this->request();
  Shares shares = shares_;
  apply_choice(choice(), request, shares);
  std::vector<parallel::Plan> plans;
  for (int p = 0; p < mesh_.pipeline; ++p) {
    request.scheduling.pipeline.rank = p;
    plans.push_back(p == mine.scheduling.pipeline.rank ? mine : make_plan(request));
  }
  return plans;
}

// A step is timed where it will run; the disks are looked at for a moment, and their limits read.
void Session::find_rates(const parallel::PlanRequest& request, bool nvme) {
  const Calibration calibration = load_calibration();
  std::vector<DiskRates> disks;
  if (nvme && (request.training || shares_.to_measure)) {
    const offload::ChosenEngine engine = offload::make_io_engine(config_.io_engine);
    for (const ScratchPath& path : scratch_paths_) disks.push_back(disk_rates(calibration, path.path, *engine.engine));
  }
  const bool all_measured = !disks.empty() && std::ranges::none_of(disks, [](const DiskRates& disk) { return disk.path.empty(); });
  if (shares_.to_measure && all_measured) {
    shares_ = shares_by(disks, "measured");
    budgets_.bytes[2] = striped_room(shares_.weights, nvme_room_bytes_);
  }
  rates_ = make_rates(calibration, request.device, format_.weight, disks, shares_.weights);
  rates_.threads = threads_;
  if (request.device == Device::Kind::cpu) rates_.machine.cores = threads_;
  process_bytes_ = process_memory().now_bytes;
  if (!request.training) return;
  ThreadPool threads(threads_);
  time_units(rates_.unit, format_, threads);
  if (device_choice_.device.is_cuda() && !device_choice_.free_bytes) {
    rates_from_ += "; no GPU was looked at: computing and copying are reckoned with constants";
    return;
  }
  if (device_choice_.device.is_cuda()) time_gpu_units(rates_.unit, format_, device_choice_.device);
  rates_.blocks = time_blocks(request, device_choice_.device, {config_.tf32_matmul, config_.tf32_conv}, threads, budgets_.bytes[0],
                              rates_.flops, probe_bytes_);
  if (place_.ranks > 1 && !calibration.ranks_measured)
    rates_from_ += fmt::format("; exchanges are reckoned at a constant {:.0f} GB/s until `spillway bench communicator` has measured them",
                               rates_.all_gather_bytes_per_s / 1e9);
  if (rates_.blocks.empty()) rates_from_ += "; blocks are too large to be timed and estimated instead";
}

// A look too short to see a limit's mean would see its bursts: under one, what is set and what bench knows of the disk count.
DiskRates Session::disk_rates(const Calibration& calibration, const std::string& path, offload::IoEngine& engine) {
  const DiskRates known = calibration.disk(path);
  const DiskLimit limit = cgroup_disk(Host{}, disk_of(path));
  if (limit.read_bytes_per_s || limit.write_bytes_per_s) {
    const DiskRates under = limited(known, limit);
    rates_from_ += fmt::format("; the control group lets {} be read at {:.2f} and written at {:.2f} GB/s", path,
                               under.read_bytes_per_s / 1e9, under.write_bytes_per_s / 1e9);
    return under;
  }
  if (const auto now = probe_disk(path, engine)) return *now;
  if (known.path.empty())
    rates_from_ += fmt::format("; the rates of {} are constants until `spillway bench disk --nvme {}` has measured them", path, path);
  return known;
}

const StepCost& Session::predicted(const parallel::Program& program, const parallel::List& tail) {
  const auto [at, isnew] = predicted_.try_emplace(&tail);
  if (!isnew) return at->second;
  StepLists lists{.when_clipping = &program != &chosen_->plan.train};
  for (const auto list : {&parallel::Program::commit, &parallel::Program::redo, &parallel::Program::skip}) {
    if (&(program.*list) == &tail) lists.tail = list;
  }
  return at->second = predict_step(lists);
}

StepCost Session::predict_step(const StepLists& lists) const {
  if (mesh_.pipeline == 1) return predict(chosen_->plan, lists, model_, rates_);
  return predict_together(stage_plans(), static_cast<size_t>(mesh_.pipeline_rank(place_.rank)), lists, model_, rates_);
}

i64 Session::predicted_process_bytes() const {
  const parallel::Plan& plan = chosen_->plan;
  const i64 device_bytes = plan.on_gpu() ? 0 : plan.total[0];
  return process_bytes_ + std::max(plan.on_gpu() ? 0 : probe_bytes_, place_.process_ranks * (device_bytes + plan.total[1]));
}

std::string Session::prediction_text() {
  const parallel::Plan& plan = chosen_->plan;
  const StepCost& cost = predicted(plan.train, plan.train.commit);
  const parallel::TierBytes moved = plan.moved_per_step();
  const auto busy = [&](parallel::Lane lane) { return format_duration(cost.account.busy_s[static_cast<size_t>(lane)]); };
  const auto exchange_ms = cost.phase_ms.find("exchange");
  std::string text = fmt::format("predicted: {} a step, bound by {} (compute {}, disk {}, optimizer {}{})", format_duration(cost.seconds),
                                 to_string(cost.account.bound_by()), busy(parallel::Lane::compute),
                                 format_duration(rates_.disk_s(static_cast<double>(moved.read[2]), static_cast<double>(moved.written[2]))),
                                 busy(parallel::Lane::optimizer),
                                 exchange_ms == cost.phase_ms.end() ? "" : ", exchange " + format_duration(exchange_ms->second / 1e3));
  if (plan.train_when_clipping) {
    const StepCost& clipping = predicted(*plan.train_when_clipping, plan.train_when_clipping->commit);
    text += fmt::format(", {} while clipping is not rare", format_duration(clipping.seconds));
  }
  text += fmt::format("; the process about {}", format_bytes(predicted_process_bytes()));
  const double break_even = break_even_tokens(plan, model_, rates_);
  if (break_even > 0) text += fmt::format("; moving to and from nvme hides behind computing from {:.0f} tokens a step", break_even);
  const double small = plan.on_gpu() ? 0 : small_copies_tokens(plan, model_, rates_);  // a GPU's copies hide behind its computing
  if (small > 0)
    text += fmt::format(
        "; copying weights and gradients to and from host memory costs {:.0f} % of computing at {:.0f} tokens a step, less above",
        100 * kSmallShare, small);
  return text + rates_from_;
}

i64 Session::scratch_bytes_beside(const std::string& folder) const {
  const auto whole = static_cast<double>(chosen_->plan.total[2] * place_.local_ranks);
  i64 bytes = 0;
  for (size_t p = 0; p < scratch_paths_.size() && whole > 0; ++p) {
    const std::string& path = scratch_paths_[p].path;
    if (!on_one_filesystem({{path, {}}, {folder, {}}})) continue;
    const double share = static_cast<double>(shares_.weights[p]) / std::accumulate(shares_.weights.begin(), shares_.weights.end(), 0.0);
    bytes += std::max<i64>(0, static_cast<i64>(whole * share) - left_behind(path, run_id_));
  }
  return bytes;
}

void Session::print_plan(Console& console) const {
  std::string text = "memory plan:\n" + memory_table(chosen_->plan, budgets_);
  for (const std::string& line : chosen_->why) text += "  " + line + "\n";
  text.pop_back();
  console.log(text);
}

// A dead run of this id that had other ranks has left parts that nobody here holds.
void Session::drop_other_ranks(const std::string& path) {
  const std::string mine = "spillway-" + run_id_;
  for (const offload::Orphan& o : offload::list_orphans(path)) {
    if (o.name != mine && !o.name.starts_with(mine + "-rank")) continue;
    bool present = false;
    for (int r = 0; r < place_.ranks; ++r) present |= o.name == "spillway-" + folder_id(r);
    if (present) continue;
    offload::remove_orphan(path, o.name);
    dropped_ += " " + o.name;
  }
}

void Session::open(offload::SystemCalls* system, const parallel::MeshEnds* ends) {
  const parallel::Plan& plan = chosen_->plan;
  pool_ = std::make_unique<ThreadPool>(threads_);
  if (budgets_.host_from_device) budgets_.bytes = {budgets_.bytes[0] - plan.total[1], plan.total[1], budgets_.bytes[2]};
  const Device device = device_choice_.device;
  device_ = std::make_unique<MemoryPool>("device", budgets_.bytes[0], "raise --device-memory",
                                         device.is_cuda() ? gpu_memory(device.index, plan.total[0]) : system_memory());
  host_ =
      std::make_unique<MemoryPool>("host", budgets_.bytes[1], "raise --host-memory", device.is_cuda() ? pinned_memory() : system_memory());
  resources_ = {device_.get(), host_.get(), pool_.get(), nullptr, {}, folder_id(place_.rank), durability_};
  resources_.gpu = device.index;
  resources_.tf32 = {config_.tf32_matmul, config_.tf32_conv};
  if (ends) resources_.data_ranks = ends->data_ranks.get(), resources_.pipeline_ranks = ends->pipeline_ranks.get();
  if (plan.uses(Tier::nvme)) {
    for (const ScratchPath& path : scratch_paths_) {
      const offload::ScratchInfo info = offload::prepare_scratch(path.path, config_.allow_network_nvme);
      if (!info.direct) cached_ += fmt::format(", {} through the page cache ({} refuses O_DIRECT)", path.path, info.filesystem.name);
      if (place_.local_rank == 0) drop_other_ranks(path.path);
      scratch_.emplace_back(path.path, folder_id(place_.rank));
    }
    meter_ = std::make_unique<DiskMeter>(system ? *system : offload::SystemCalls::real());
    engine_ = offload::make_io_engine(config_.io_engine, offload::kQueueDepth, *meter_);
    for (size_t p = 0; p < scratch_.size(); ++p) resources_.scratch.push_back({scratch_[p].path(), shares_.weights[p]});
    resources_.engine = engine_.engine.get();
  }
}

void Session::make_rank() {
  const parallel::Plan& plan = chosen_->plan;
  if (plan.gpu_to_gpu) {
    exchange_ = parallel::make_nccl_exchange(plan, {.gpu = device_choice_.device.index,
                                                    .timeout_s = device_choice_.meeting.timeout_s,
                                                    .device = device_.get(),
                                                    .data_ranks = resources_.data_ranks,
                                                    .pipeline_ranks = resources_.pipeline_ranks});
    resources_.gpu_exchange = exchange_.get();
  }
  rank_ = std::make_unique<parallel::Rank>(model_, plan, resources_);
}

void Session::go_back_to(u64 generation) {
  resources_.newest_generation = generation;
  rank_.reset();
  rank_ = std::make_unique<parallel::Rank>(model_, chosen_->plan, resources_);
}

std::string Session::nvme_line() const {
  if (scratch_.empty()) return "";
  std::string text = "nvme:";
  for (const offload::RunFolder& folder : scratch_) text += " " + folder.path().string() + ",";
  if (scratch_.size() > 1) text += " " + shares_.text() + ",";
  if (!dropped_.empty()) text += " the run had other ranks, what they left is given up (" + dropped_.substr(1) + "),";
  return text + " " + engine_.why + cached_;
}

void Session::keep_scratch() {
  if (!chosen_->plan.recoverable()) return;
  for (offload::RunFolder& folder : scratch_) folder.keep();
}

}  // namespace spillway::app
