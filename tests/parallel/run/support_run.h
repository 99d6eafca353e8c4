// Trains a small model in-process, with its tensors in any tiers, and returns every number, for tests that compare results bitwise.
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

/// A rank waits this many seconds for another rank. Under the race detector a step of an emulated GPU may
/// take minutes on a machine that others use too. A test that hangs altogether is ended by ctest.
#ifdef __SANITIZE_THREAD__
inline constexpr double kPatienceS = 900;
#else
inline constexpr double kPatienceS = 60;
#endif

struct RunOptions {
  models::ModelConfig model;
  std::function<nn::Sequential(const models::ModelConfig&, DType)> build;  // makes the model in place of models::build
  DType dtype = DType::f32;
  optim::Master master = optim::Master::fp32;
  optim::Moments moments = optim::Moments::fp32;
  optim::RuleSettings update =
      optim::AdamSettings{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .decoupled_weight_decay = true};
  double average_decay = 0;                   // decay of the average of the weights; 0: no average is kept
  std::vector<parallel::OwnRates> own_rates;  // rates of parameters whose names contain own_rates_in[i]
  std::vector<std::string> own_rates_in;
  bool round_gradients = false, reduce_each = false;
  std::function<bool(const nn::Parameter&)> freeze;
  i64 stripes = 1;
  bool on_gpu = false;
  bool gpu_to_gpu = false;             // true: each rank has a different GPU, and the GPUs talk over NCCL
  double nccl_timeout_s = kPatienceS;  // time-out of NCCL exchanges, in seconds
  int ranks = 1, zero_stage = 0;       // number of data-parallel ranks, each a thread
  parallel::Pipeline pipeline;         // pipeline ranks for each data-parallel rank; train() sets `rank`
  parallel::Tier parameters = parallel::Tier::device, gradients = parallel::Tier::device, optimizer = parallel::Tier::device;
  i64 micro_batches = 1, micro_batch_size = 2, sequence_length = 32, steps = 3;
  int prefetch = 1, threads = 1;
  bool recompute = false, adaptive = false, keeps_logits = false;
  parallel::Tier activations = parallel::Tier::device;
  parallel::OptimizerOverlap overlap = parallel::OptimizerOverlap::none;
  int deferred_sixteenths = 0;
  bool streams_steps = false;  // as Scheduling::streams_steps
  parallel::Order order = parallel::Order::micro_batch;
  offload::IoEngineKind engine = offload::IoEngineKind::automatic;
  // may wrap the I/O engine, to plant faults and delays
  std::function<std::unique_ptr<offload::IoEngine>(std::unique_ptr<offload::IoEngine>)> wrap_engine;
  i64 max_bucket_elems = parallel::kMaxBucketElems;
  double gradient_clipping = 1, learning_rate = 1e-3;
  std::function<double(i64 step)> clipping;  // if set, replaces gradient_clipping
  optim::Isa isa = optim::Isa::best;
  optim::LossScale loss_scale;  // the initial loss scale for f16
  i64 loss_scale_interval = optim::kLossScaleInterval;
  bool detect_anomaly = false;                           // as the flag --detect-anomaly; messages begin with "here"
  std::function<StepBatch(i64 step, int rank)> batches;  // batches of one data-parallel rank; default: random_batch
  parallel::Rank::Source weights;                        // initial weights; default: initial_values of seed 1
  std::function<void(parallel::Plan&)> change_plan;
  /// May wrap the object through which a rank's GPU talks to the other GPUs. The function is called on the rank's thread.
  std::function<std::unique_ptr<parallel::RankExchange>(std::unique_ptr<parallel::RankExchange>)> wrap_exchange;
  std::function<void(parallel::Rank&, i64 steps)> between;  // called after each step with the number of steps that are done
  std::function<void(parallel::Rank&)> at_end;              // called at the end, after the moved bytes have been counted
};

/// Describes one combination of a placement (which tier holds which tensors) and an order of micro-batches. Such a combination never
/// changes numbers.
struct Way {
  std::string name;
  std::function<void(RunOptions&)> change;
};
inline std::function<void(RunOptions&)> placed(parallel::Tier parameters, parallel::Tier gradients, parallel::Tier optimizer,
                                               parallel::OptimizerOverlap overlap) {
  return [=](RunOptions& o) { o.parameters = parameters, o.gradients = gradients, o.optimizer = optimizer, o.overlap = overlap; };
}

/// Makes the GPU do the optimizer updates of what rests elsewhere (Scheduling::streams_steps).
inline std::function<void(RunOptions&)> streamed(std::function<void(RunOptions&)> place) {
  return [place = std::move(place)](RunOptions& o) {
    place(o);
    o.streams_steps = true;
  };
}

/// Returns placements (which tier holds which tensors) in which every kind of data resides in every tier, together with every time of the
/// optimizer's update: first with all state in host memory, then with all state on nvme.
const std::vector<Way>& common_ways();

struct RunResult {
  std::vector<double> losses, norms;
  std::vector<parallel::StepResult> steps;
  std::vector<std::vector<double>> weights;  // weights by parameter id, after the last step, as doubles
  std::vector<std::vector<double>> m, v;     // the rule's first and second array of optimizer state, indexed as weights
  std::vector<std::vector<double>> third;    // the rule's third array, indexed as weights
  std::vector<std::vector<double>> average;  // the average of the weights, indexed as weights
  parallel::Plan plan;
  parallel::TierBytes moved;        // bytes that the steps moved
  std::array<i64, 2> peak_bytes{};  // peak bytes of the device pool and the host pool
  parallel::TierBytes planned;      // bytes planned for the steps that ran, including what redone and skipped steps move
  std::vector<parallel::Timing> head_timings;
  std::map<std::pair<u16, i64>, std::string> seen;  // stored weights by group and tile, including those that other ranks update
  std::vector<RunResult> others;                    // results of the other ranks; their weights, m and v are those that each of them holds
};

RunResult train(const RunOptions& options);

/// Expects every number of both runs to be equal, and on every rank the bytes moved to be those planned.
void expect_same_run(const RunResult& got, const RunResult& want);

/// Compares runs with skipped steps as expect_same_run() does. However, a norm that is not finite may be infinite in one run and NaN in
/// the other.
void expect_same_numbers(const RunResult& got, const RunResult& want);

/// Returns the request that train() plans with.
parallel::PlanRequest plan_request(const nn::Sequential& model, const RunOptions& options, int rank = 0, int pipeline_rank = 0);
/// Returns the settings of the training step `step`, counted from 0.
parallel::StepSettings step_settings(const RunOptions& options, i64 step);

/// Returns deterministic random tokens, with a few ignored targets, for one data-parallel rank.
StepBatch random_batch(const RunOptions& options, i64 step, int rank = 0);

/// Returns the weights (masters), m or v of a model from its stored state, by parameter id. Elements that
/// this rank does not hold are 0, and a parameter of which the rank holds nothing is empty.
std::vector<std::vector<double>> read_values(const nn::Sequential& model, const parallel::Plan& plan, parallel::ModelState& state,
                                             optim::StatePart part = optim::StatePart::master);

}  // namespace spillway::test
