// Trains a small model in-process under any placement and hands back every number, for tests that compare bits.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "models/config.h"
#include "offload/io_engine.h"
#include "optim/loss_scale.h"
#include "parallel/exchange/rank_exchange.h"
#include "parallel/run/rank.h"
#include "tests/support/temporary_folder.h"

namespace spillway::test {

/// How long a rank waits for another. Under the race detector a step of an emulated GPU may take minutes where others use the machine too;
/// what never comes ctest ends.
#ifdef __SANITIZE_THREAD__
inline constexpr double kPatienceS = 900;
#else
inline constexpr double kPatienceS = 60;
#endif

struct RunOptions {
  models::ModelConfig model;
  std::function<nn::Sequential(const models::ModelConfig&, DType)> build;  // instead of models::build
  DType dtype = DType::f32;
  optim::Master master = optim::Master::fp32;
  optim::Moments moments = optim::Moments::fp32;
  optim::RuleSettings update =
      optim::AdamSettings{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .decoupled_weight_decay = true};
  double average_decay = 0;                   // above 0: an average of the weights is kept
  std::vector<parallel::OwnRates> own_rates;  // of parameters in whose names own_rates_in[i] is
  std::vector<std::string> own_rates_in;
  bool round_gradients = false, reduce_each = false;
  std::function<bool(const nn::Parameter&)> freeze;
  i64 stripes = 1;
  bool on_gpu = false;
  bool gpu_to_gpu = false;             // each rank on a GPU of its own, which talk over NCCL
  double nccl_timeout_s = kPatienceS;  // likewise
  int ranks = 1, zero_stage = 0;       // data-parallel ranks, each a thread
  parallel::Pipeline pipeline;         // of as many ranks for each of them; `rank` is filled in
  parallel::Tier parameters = parallel::Tier::device, gradients = parallel::Tier::device, optimizer = parallel::Tier::device;
  i64 micro_batches = 1, micro_batch_size = 2, sequence_length = 32, steps = 3;
  int prefetch = 1, threads = 1;
  bool recompute = false, adaptive = false, keeps_logits = false;
  parallel::Tier activations = parallel::Tier::device;
  parallel::OptimizerOverlap overlap = parallel::OptimizerOverlap::none;
  int deferred_sixteenths = 0;
  parallel::Order order = parallel::Order::micro_batch;
  offload::IoEngineKind engine = offload::IoEngineKind::automatic;
  std::function<std::unique_ptr<offload::IoEngine>(std::unique_ptr<offload::IoEngine>)> wrap_engine;  // planted faults and delays
  i64 max_bucket_elems = parallel::kMaxBucketElems;
  double gradient_clipping = 1, learning_rate = 1e-3;
  std::function<double(i64 step)> clipping;  // instead of gradient_clipping
  optim::Isa isa = optim::Isa::best;
  optim::LossScale loss_scale;  // with f16
  i64 loss_scale_interval = optim::kLossScaleInterval;
  bool detect_anomaly = false;                           // the report begins with "here"
  std::function<StepBatch(i64 step, int rank)> batches;  // of a data-parallel rank; default: random_batch
  parallel::Rank::Source weights;                        // default: initial_values of seed 1
  std::function<void(parallel::Plan&)> change_plan;
  /// What stands between the rank and what its GPU talks over, made there.
  std::function<std::unique_ptr<parallel::RankExchange>(std::unique_ptr<parallel::RankExchange>)> wrap_exchange;
  std::function<void(parallel::Rank&, i64 steps)> between;  // after each step, given how many are done
  std::function<void(parallel::Rank&)> at_end;              // after what moved was counted
};

/// Of placing and computing what does not change numbers.
struct Way {
  std::string name;
  std::function<void(RunOptions&)> change;
};
inline std::function<void(RunOptions&)> placed(parallel::Tier parameters, parallel::Tier gradients, parallel::Tier optimizer,
                                               parallel::OptimizerOverlap overlap) {
  return [=](RunOptions& o) { o.parameters = parameters, o.gradients = gradients, o.optimizer = optimizer, o.overlap = overlap; };
}

/// Every tier for everything, and the optimizer at every place: first all in host memory, then all on nvme.
const std::vector<Way>& common_ways();

struct RunResult {
  std::vector<double> losses, norms;
  std::vector<parallel::StepResult> steps;
  std::vector<std::vector<double>> weights;  // by parameter id, after the last step, widened
  std::vector<std::vector<double>> m, v;     // likewise: the rule's first and second array of state
  std::vector<std::vector<double>> third;    // likewise
  std::vector<std::vector<double>> average;  // likewise, of the weights
  parallel::Plan plan;
  parallel::TierBytes moved;        // by the steps
  std::array<i64, 2> peak_bytes{};  // device and host pool
  parallel::TierBytes planned;      // by the steps that were run, redone and skipped ones as such
  std::vector<parallel::Timing> head_timings;
  std::map<std::pair<u16, i64>, std::string> seen;  // weights at rest, by group and tile: also those that others step
  std::vector<RunResult> others;                    // of the other ranks; their weights, m and v are of what they hold
};

RunResult train(const RunOptions& options);

/// Every number the same, and on every rank what moved is what was planned.
void expect_same_run(const RunResult& got, const RunResult& want);

/// The same of runs with skipped steps: a norm that is not finite may be infinite or no number.
void expect_same_numbers(const RunResult& got, const RunResult& want);

/// What train() plans.
parallel::PlanRequest plan_request(const nn::Sequential& model, const RunOptions& options, int rank = 0, int pipeline_rank = 0);
/// Of step `step`, counted from 0.
parallel::StepSettings step_settings(const RunOptions& options, i64 step);

/// Deterministic random tokens with a few ignored targets, of one data-parallel rank.
StepBatch random_batch(const RunOptions& options, i64 step, int rank = 0);

/// The weights (masters), m or v of a model that a rank holds the state of, through its state at rest; by parameter id, 0 elsewhere in it;
/// empty where none is held.
std::vector<std::vector<double>> read_values(const nn::Sequential& model, const parallel::Plan& plan, parallel::ModelState& state,
                                             optim::StatePart part = optim::StatePart::master);

}  // namespace spillway::test
