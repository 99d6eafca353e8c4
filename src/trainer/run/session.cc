#include "trainer/run/session.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/units.h"
#include "device/gpu_places.h"
#include "models/lora.h"
#include "parallel/exchange/nccl_exchange.h"
#include "trainer/checkpoints/adapters.h"
#include "trainer/node/cores.h"
#include "trainer/node/grant.h"
#include "trainer/plan/choice.h"
#include "trainer/plan/cluster_rates.h"
#include "trainer/plan/freeze.h"
#include "trainer/plan/search.h"
#include "trainer/plan/stage_plans.h"
#include "trainer/ranks/attention_choice.h"
#include "trainer/ranks/leave.h"
#include "trainer/run/budgets.h"
#include "trainer/run/resolve.h"

namespace spillway::trainer {

Session::Session(const ResourceConfig& config, ChosenDevice device, ModelSource source, std::string run_id, const StateWishes& state,
                 const RankPlace& place, const parallel::Pipeline& pipeline)
    : config_(config),
      device_choice_(std::move(device)),
      source_(std::move(source)),
      state_(state),
      format_(state.format(*config.precision)),
      place_(place),
      id_{std::move(run_id), place.rank, place.ranks},
      pipeline_(pipeline),
      mesh_{place.ranks / pipeline.ranks, pipeline.ranks} {
  take_base_weights(config.base_weights, *config.precision, source_);
  take_precision(*config.precision, source_);
  model_ = source_.build(format_.weight);
  if (source_.config.lora) {
    for (const auto& p : model_.parameters) p->frozen = !models::is_adapter(*p);
  }
  freeze_parameters(model_, state.freeze);
  std::vector<std::string> names;
  std::vector<bool> statistic;
  for (const auto& p : model_.parameters) names.push_back(p->name), statistic.push_back(p->statistic);
  group_of_ = groups_of_names(state.optimizer_groups, names, statistic);
  threads_ = config.threads ? static_cast<int>(*config.threads) : core_grant(Host{}, place.core_sharers, place.local_ranks).threads;
  budgets_ = memory_budgets(config, device_choice_, place.local_ranks);
  nvme_ = find_nvme_paths(config, id_, place.local_ranks);
  add_nvme(budgets_, nvme_);
}

parallel::PlanRequest Session::request_for(const Workload& work) const {
  parallel::PlanRequest request;
  request.model = &model_;
  request.dry_runs = std::make_shared<parallel::DryRuns>();
  request.device = device_choice_.device.kind;
  request.gpu = device_choice_.device.index;
  request.scheduling.copy_engines = device_choice_.device.is_cuda();
  request.gpu_to_gpu = device_choice_.meeting.nccl;
  request.layout = parallel::make_layout(model_, {.decay_all = work.decay_all, .rule = format_.rule});
  request.scheduling.micro_batches = work.micro_batches;
  request.scheduling.format = format_;
  request.scheduling.round_gradients = state_.round_gradients;
  request.scheduling.reduce_each = state_.reduce_each;
  request.scheduling.sharding = {0, mesh_.data_rank(place_.rank), mesh_.data};
  request.scheduling.pipeline = pipeline_;
  request.scheduling.pipeline.rank = mesh_.pipeline_rank(place_.rank);
  request.micro_batch_size = work.micro_batch_size;
  request.sequence_length = work.sequence_length;
  request.cache_positions = work.cache_positions;
  request.training = work.mode == nn::Mode::train;
  if (!request.training) request.without_training = work.mode;
  return request;
}

void Session::plan(const PlacementSettings& wishes, const Workload& work) {
  if (uses_tier(wishes, Tier::nvme) && nvme_.paths.empty()) {
    throw Error(
        ErrorCode::usage,
        "[plan] a --place flag asks for nvme, but there is no path: give --nvme PATH (the default in a Slurm job is $SLURM_TMPDIR)");
  }
  if (config_.precision == Precision::fp8 && work.mode == nn::Mode::generate)
    throw Error(ErrorCode::usage,
                "[--precision] expected another precision to generate text, got fp8, whose scales depend on all tokens that are computed "
                "together, so that the text would depend on the other prompts: give --precision bf16");
  request_ = request_for(work);
  NodeRates node = look_at_node(request_, may_use_tier(wishes, Tier::nvme));
  if (!nvme_.paths.empty()) request_.stripe_weights = nvme_.shares.weights;
  deal_blocks(request_, wishes, node.rates);
  try {
    Choice choice = choose_with_alternatives(request_, wishes, budgets_, node.rates);
    chosen_ = std::move(choice.chosen);
    alternatives_ = std::move(choice.others);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::refused || source_.config.attention == kernels::AttentionLibrary::own) throw;
    throw with_attention_workspace(e, attention_shape(source_.config, work.micro_batch_size, work.sequence_length, format_.weight));
  }
  Shares as_chosen = nvme_.shares;
  apply_choice(choice_of(chosen_->plan, nvme_.shares), request_, as_chosen);
  predict_with(std::move(node));
  if (request_.training) chosen_->why.push_back(prediction_->text());
}

// Returns the rates from which the times of plans are predicted.
NodeRates Session::look_at_node(const parallel::PlanRequest& request, bool may_spill) {
  NodeRates node = config_.cluster ? cluster_rates(parse_cluster(*config_.cluster, "--cluster"), request,
                                                   {config_.tf32_matmul, config_.tf32_conv}, source_.config.fp8, threads_)
                                   : measure_node(request, may_spill);
  node.rates.disk_read_bytes_per_s /= place_.local_ranks;  // the node's ranks share its drives
  node.rates.disk_write_bytes_per_s /= place_.local_ranks;
  return node;
}

// Measures this node's rates. The disks are measured only if a plan may use them. The measured rates of the disks may also decide the
// shares of the scratch paths.
NodeRates Session::measure_node(const parallel::PlanRequest& request, bool may_spill) {
  const Calibration calibration = load_calibration();
  DiskLook disks;
  // The test file is no larger than the weights in fp32. A step of a small model moves few bytes, and measuring the disk must not take
  // longer than its steps do.
  const i64 file_bytes = request.layout.elems() * size_of(DType::f32);
  if (may_spill && (request.training || nvme_.shares.to_measure))
    disks = look_at_disks(nvme_.paths, config_.io_engine, calibration, {}, {.file_bytes = file_bytes, .threads = threads_});
  if (nvme_.take_measured(disks.disks)) add_nvme(budgets_, nvme_);
  const Computer computer{.device = device_choice_.device,
                          .is_here = device_choice_.free_bytes.has_value(),
                          .threads = threads_,
                          .tf32 = {config_.tf32_matmul, config_.tf32_conv},
                          .device_bytes = budgets_.bytes[0]};
  return measure_rates(request, computer, calibration, disks, nvme_.shares.weights);
}

void Session::predict_with(NodeRates node) { prediction_.emplace(chosen_->plan, request_, std::move(node), place_.process_ranks); }

std::string Session::choice() const { return to_text(choice_of(chosen_->plan, nvme_.shares)); }

void Session::adopt(const std::string& choice, const Workload& work) {
  request_ = request_for(work);
  apply_choice(parse_choice(choice), request_, nvme_.shares);
  chosen_ = ChosenPlan{make_plan(request_), {}};
  require_room(chosen_->plan, budgets_);
  predict_with({});
}

void Session::check_meetings() const { trainer::check_meetings(plans_of_stages(request_, chosen_->plan)); }

i64 Session::scratch_bytes_beside(const std::string& folder) const {
  return nvme_.bytes_beside(folder, chosen_->plan.total[2] * place_.local_ranks, id_);
}

void Session::print_plan(Messages& messages) const {
  std::string text = "memory plan:\n" + memory_table(chosen_->plan, budgets_);
  for (const std::string& line : chosen_->why) text += "  " + line + "\n";
  text.pop_back();
  messages.log(text);
  if (const std::string notice = threads_notice(); !notice.empty()) messages.warn(notice);
}

std::string Session::threads_notice() const {
  const CoreGrant grant = core_grant(Host{}, place_.core_sharers, place_.local_ranks);
  if (threads_ <= grant.cores) return "";
  return fmt::format(
      "--threads {} is too many for {} core{} (limited by {}): threads that share a core wait for each other, so steps take several times "
      "as long",
      threads_, grant.cores, grant.cores == 1 ? "" : "s", grant.bounded);
}

std::string Session::threads_note(const std::string& bind) const {
  const CoreGrant grant = core_grant(Host{}, place_.core_sharers, place_.local_ranks);
  if (grant.variables.set.empty()) return "";
  return threads_line(grant, {.threads = threads_, .ranks = place_.ranks, .by_flag = config_.threads.has_value(), .bind = bind});
}

void Session::open(offload::SystemCalls* system, const parallel::MeshEnds* ends) {
  take_memory();
  if (ends) resources_.data_ranks = ends->data_ranks.get(), resources_.pipeline_ranks = ends->pipeline_ranks.get();
  if (chosen_->plan.uses(Tier::nvme)) take_scratch(system);
}

void Session::take_memory() {
  const parallel::Plan& plan = chosen_->plan;
  const Device device = device_choice_.device;
  pool_ = std::make_unique<ThreadPool>(threads_);
  split_memory(budgets_, plan);
  if (model_.limit_foreign_memory) model_.limit_foreign_memory(device, plan.foreign_bytes);
  device_ = std::make_unique<MemoryPool>("device", budgets_.bytes[0], "raise --device-memory",
                                         device.is_cuda() ? gpu_memory(device.index, plan.own_bytes()[0]) : system_memory());
  host_ = std::make_unique<MemoryPool>("host", budgets_.bytes[1], "raise --host-memory",
                                       device.is_cuda() ? pinned_memory(pinning()) : system_memory());
  resources_ = {device_.get(), host_.get(), pool_.get(), nullptr, {}, id_.mine(), state_.durability};
  resources_.gpu = device.index;
  resources_.tf32 = {config_.tf32_matmul, config_.tf32_conv};
}

Pinning Session::pinning() {
  const auto refused = [this](i64 bytes, const std::string& why) { unlocked_bytes_ += bytes, why_unlocked_ = why; };
  const auto progress = [this](i64 done, i64 bytes) {
    pinning_bytes_ = done < bytes ? done : 0;
    if (done == bytes) pinned_bytes_ += bytes;
  };
  const std::vector<std::string> places = gpu_places();
  const auto gpu = static_cast<size_t>(device_choice_.device.index);
  return {.gpu = device_choice_.device.index,
          .cores = gpu < places.size() ? cores_near(Host{}, places[gpu]) : std::vector<int>(),
          .refused = refused,
          .progress = progress};
}

std::string Session::taking() const {
  const i64 under_way = pinning_bytes_;
  if (under_way == 0) return "allocating memory and disk space";
  return fmt::format("page-locking host memory, {} of {}", format_bytes(pinned_bytes_ + under_way), format_bytes(chosen_->plan.total[1]));
}

std::string Session::pinning_notice() const {
  if (unlocked_bytes_ == 0) return "";
  return fmt::format(
      "host memory: {} could not be page-locked ({}): copies between this memory and the GPU may run at half the rate, and computing waits "
      "for "
      "them; "
      "raise "
      "ulimit -l, or lower --host-memory",
      format_bytes(unlocked_bytes_), why_unlocked_);
}

void Session::take_scratch(offload::SystemCalls* system) {
  scratch_.emplace(nvme_, id_,
                   HeldScratch::Options{.allow_network = config_.allow_network_nvme,
                                        .engine = config_.io_engine,
                                        .first_here = place_.local_rank == 0,
                                        .recoverable = chosen_->plan.recoverable(),
                                        .system = system});
  resources_.scratch = scratch_->stripes();
  resources_.engine = &scratch_->engine();
}

void Session::keep_scratch() {
  if (scratch_) scratch_->keep();
}

void Session::give_up_scratch(bool for_good) {
  if (scratch_) scratch_->give_up(for_good);
}

void Session::make_rank() {
  const parallel::Plan& plan = chosen_->plan;
  if (plan.gpu_to_gpu) {
    exchange_ = parallel::make_nccl_exchange(plan, {.gpu = device_choice_.device.index,
                                                    .timeout_s = device_choice_.meeting.timeout_s,
                                                    .device = device_.get(),
                                                    .data_ranks = resources_.data_ranks,
                                                    .pipeline_ranks = resources_.pipeline_ranks,
                                                    .stuck = leave_stuck,
                                                    .abort_s = device_choice_.meeting.abort_s()});
    resources_.gpu_exchange = exchange_.get();
  }
  rank_ = std::make_unique<parallel::Rank>(model_, plan, resources_);
}

void Session::set_state_aside() {
  resources_.new_store = true;
  rank_.reset();
  rank_ = std::make_unique<parallel::Rank>(model_, chosen_->plan, resources_);
}

void Session::go_back_to(u64 generation) {
  resources_.newest_generation = generation;
  rank_.reset();
  rank_ = std::make_unique<parallel::Rank>(model_, chosen_->plan, resources_);
}

}  // namespace spillway::trainer
