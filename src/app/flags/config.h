// What the commands see of their flags: plain values, one field an option. The option table (option.h) fills them and writes them back as
// JSON; defaults stand here and nowhere else. An empty optional means "nobody said": the planner or the trainer decides, writes its
// decision into the field, and to_json() then shows it. Values; thread-safe.
#pragma once
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"
#include "data/documents/document_maker.h"
#include "offload/io_engine.h"
#include "offload/store_format.h"
#include "offload/tier.h"
#include "optim/isa.h"
#include "optim/rules/settings.h"
#include "optim/schedule.h"
#include "optim/state_format.h"
#include "parallel/schedule/schedule_simulate.h"
#include "tensor/dtype.h"

namespace spillway::app {

using offload::Durability;
using offload::Tier;

enum class Precision { fp32, fp64, bf16, fp16, tf32 };
/// Of weights and of what blocks hand on.
DType weight_dtype(Precision precision);
enum class Attention { own, cudnn };  // whose, on a GPU
enum class DataOrder { shuffled, sequential };
enum class Recompute { automatic, none, block };
enum class OptimizerOverlap { automatic, none, backward, forward };

/// What a --place flag asks for: one tier, or bytes per tier, filled in the order device, host, nvme; one tier takes the rest.
struct PlacementWish {
  static constexpr i64 kRest = -1;
  bool automatic = true;
  std::array<i64, offload::kTiers> bytes{};  // by tier; kRest for the one that takes what is left

  static PlacementWish whole(Tier tier);
  /// The tier all of it lies in, if it is one.
  std::optional<Tier> one_tier() const;
  bool uses(Tier tier) const { return !automatic && bytes[static_cast<size_t>(tier)] != 0; }
  bool operator==(const PlacementWish&) const = default;
};

/// PATH[:SIZE] of --nvme.
struct ScratchPath {
  /// Whether it may be written to in order to know it; plan does not, and what is elsewhere is reckoned with constants.
  enum class Look { thorough, without_writing, elsewhere };
  std::string path;
  std::optional<i64> bytes;  // ceiling for all ranks of a node together
  Look look = Look::thorough;
  bool operator==(const ScratchPath&) const = default;
};

/// Of --checkpoint-every: every `count` steps, seconds or epochs.
struct Cadence {
  enum class Unit { steps, seconds, epochs } unit = Unit::seconds;
  i64 count = 30 * 60;
  bool operator==(const Cadence&) const = default;
};

/// In what a model's frozen weights, those of its layers of products, are kept (kernels::WeightFormat).
enum class BaseWeights { fp32, bf16, int8, nf4 };

/// Steps first..last, counted from 1.
struct StepRange {
  i64 first = 3, last = 6;
  bool operator==(const StepRange&) const = default;
};

struct Resume {
  enum class Kind { automatic, never, must, path } kind = Kind::automatic;
  std::string path;  // of Kind::path
  bool operator==(const Resume&) const = default;
};

/// What every command takes.
struct CommonConfig {
  bool quiet = false, json = false;
};

/// What every command that runs a model takes.
struct ResourceConfig : CommonConfig {
  std::string model;
  std::optional<std::string> adapter;       // a PEFT folder
  std::optional<BaseWeights> base_weights;  // empty: as the run had them, else the precision's
  std::string checkpoint = "last";          // generate, evaluate: last, best or a step
  std::optional<std::string> tokenizer;
  std::optional<Precision> precision;  // empty: fp32, on a GPU bf16
  bool tf32_matmul = false, tf32_conv = false;
  Attention attention = Attention::own;
  u64 seed = 1337;

  std::optional<std::string> device;  // "cpu", "cuda", "cuda:2"; empty: the best found
  std::optional<i64> device_memory_bytes, host_memory_bytes;
  std::vector<ScratchPath> nvme;
  bool allow_network_nvme = false;
  PlacementWish place_parameters, place_activations;
  offload::IoEngineKind io_engine = offload::IoEngineKind::automatic;
  std::optional<i64> prefetch;  // blocks fetched ahead
  std::optional<i64> threads;
  bool for_any_node = false;  // plan: sizes given are another machine's, or this one's at another time, and are believed
  optim::Isa isa = optim::Isa::best;
};

/// What commands take that run on several ranks.
struct RanksConfig : ResourceConfig {
  std::string zero_stage = "auto";
  i64 ranks = 1;
  i64 pipeline_stages = 1;
  std::string communicator = "auto", rendezvous = "auto";
  i64 timeout_s = 60;  // for a peer
  std::string bind = "auto";

  /// Ranks that see other data, each a pipeline of several ranks or one alone.
  i64 data_ranks() const { return ranks / pipeline_stages; }
};

/// How text is read.
struct TextConfig {
  std::string data_format = "auto";  // a row layout, or auto
  data::LossOn loss_on = data::LossOn::by_layout;
  bool packing = true;
  std::optional<std::string> chat_template;  // a file, or the name of one of the model's
  std::optional<std::string> data_cache;     // empty: beside the run
  bool skip_bad_lines = false;
};

struct TrainConfig : RanksConfig, TextConfig {
  bool from_scratch = false;
  std::vector<std::string> data, validation_data;
  double validation_fraction = 0;
  std::optional<i64> validate_every;    // steps; empty: at the end
  std::optional<i64> validation_steps;  // empty: all
  DataOrder data_order = DataOrder::shuffled;
  bool drop_last = false;         // of an epoch the rows that do not fill a step
  std::optional<i64> workers;     // threads that read data; empty: as many as compute
  std::optional<i64> image_size;  // pixels, of images in folders; empty: the first one's extents

  std::optional<i64> sequence_length;                                 // empty: the model's
  std::optional<i64> micro_batch_size;                                // empty: 1, of images 64
  std::optional<i64> gradient_accumulation_steps, global_batch_size;  // at most one of the two
  std::optional<i64> steps;                                           // at most one of steps and epochs; neither: 1 epoch
  std::optional<double> epochs;

  std::string augment = "none", optimizer = "adamw";
  std::optional<double> learning_rate;         // empty: 3e-4, 2e-5 when weights are loaded
  std::optional<std::array<double, 2>> betas;  // empty: the optimizer's own, if it has such; so the next
  std::optional<double> eps, weight_decay;
  std::optional<double> momentum, dampening, alpha;
  std::optional<bool> nesterov, centered;
  std::optional<optim::MuonScale> muon_scale;
  std::vector<std::string> optimizer_groups;  // parse_optimizer_group
  bool decay_all = false;
  optim::Schedule::Kind lr_schedule = optim::Schedule::Kind::cosine;
  std::optional<i64> warmup_steps;  // empty: 1 % of the steps, at most 2000
  bool keep_schedule = false;
  double min_lr_ratio = 0.1;
  std::optional<i64> schedule_steps;                       // that the curve of the learning rate spans; empty: `steps`
  std::optional<i64> lr_step_size, lr_decay_steps;         // of step; of wsd, empty: 10 % of the steps
  std::optional<double> lr_gamma, lr_power, lr_pct_start;  // of step, polynomial, onecycle; empty: optim::Schedule's
  double gradient_clipping = 1.0;                          // 0: off
  std::optional<i64> loss_scale_window;                    // of fp16; empty: optim::kLossScaleInterval
  std::optional<double> ema;                               // decay of the average of the weights
  std::optional<double> dropout;                           // empty: presets 0, folders what config.json says
  std::vector<std::string> freeze;                         // patterns, as freeze_parameters()
  std::optional<i64> lora;                                 // rank
  std::optional<double> lora_alpha;                        // empty: twice the rank
  std::string lora_targets = "all-linear";                 // or names, with commas between
  double lora_dropout = 0;
  bool lora_rank_stabilized = false;

  optim::Master master_weights = optim::Master::fp32;
  optim::Moments moments = optim::Moments::fp32;
  bool round_gradients = false;
  bool reduce_each = false;  // --gradient-reduction
  PlacementWish place_gradients, place_optimizer;
  OptimizerOverlap optimizer_overlap = OptimizerOverlap::automatic;
  Recompute recompute = Recompute::automatic;
  std::string pipeline_schedule = "auto", pipeline_split = "auto";
  std::optional<i64> pipeline_chunks;  // empty: the schedule's own
  Durability durability = Durability::checkpoint;

  std::string out;  // default: default_out()
  Resume resume;
  std::vector<std::string> allow_change;  // configuration keys
  bool rehearse = false;
  std::vector<std::string> rehearsal_words;  // with --rehearse: the flags given, without those of run folder and display
  Cadence checkpoint_every;
  bool no_final_checkpoint = false;
  i64 keep = 2;
  std::optional<i64> time_limit_s;  // empty: Slurm's end time
  i64 log_every = 1;
  i64 sample_every = 0;      // 0: off
  i64 histograms_every = 0;  // 0: off
  std::string prompt;
  std::optional<std::string> trace;  // a file
  StepRange trace_steps;
  bool profile = false, detect_anomaly = false;
  std::optional<i64> endurance_bytes;  // rated writes of one drive
  bool tensorboard = true, metrics_csv = false;

  /// Micro-batches of one optimizer step on each of `ranks` data-parallel ranks. Throws Error(usage) naming the legal sizes when the global
  /// batch does not divide.
  i64 micro_batches(i64 data_parallel_ranks = 1) const;
  /// Windows of one optimizer step on all ranks.
  i64 global_batch() const { return micro_batches(data_ranks()) * micro_batch_rows() * data_ranks(); }
  /// Once it is resolved: over which the curve of the learning rate lies.
  i64 curve_steps() const { return schedule_steps.value_or(*steps); }
  /// Once it is resolved.
  i64 micro_batch_rows() const { return micro_batch_size.value_or(1); }
};

struct PlanConfig : TrainConfig {
  bool program = false;                  // print the instruction list
  bool roofline = false;                 // and what its kernels would take at a GPU's ceilings
  std::optional<std::string> cluster;    // other machines than this one
  std::optional<std::string> html;       // a file: the plan as a page
  std::vector<std::string> train_words;  // train's flags as they were given, a word each, without --ranks
};

// Of what writes text.
struct WritingConfig : RanksConfig {
  double temperature = 0.8;  // 0: greedy
  i64 top_k = 0;             // 0: all
  double top_p = 1, min_p = 0, repetition_penalty = 1;
  std::vector<std::string> stop;
  i64 max_tokens = 128;
  std::optional<std::string> chat_template;  // a file or a name; empty: the model folder's
};

struct GenerateConfig : WritingConfig {
  std::optional<std::string> prompt, prompts;  // one of them; prompts: a file
  i64 batch_size = 8;                          // of prompts
  std::vector<std::string> adapters;           // PEFT folders, each of which answers; none: the model as it is
};

struct ChatConfig : WritingConfig {
  std::optional<std::string> system;
  i64 context = 4096;  // positions, at most the model's
};

struct EvaluateConfig : RanksConfig, TextConfig {
  std::vector<std::string> data;
  std::optional<i64> sequence_length;   // empty: the model's
  std::optional<i64> micro_batch_size;  // likewise
};

struct ClassifyConfig : RanksConfig {
  std::vector<std::string> images;  // files
  i64 top = 5;                      // classes of each
};

struct ExportConfig : CommonConfig {
  std::string model, checkpoint = "last", out, format = "hf";
  std::optional<std::string> dtype;  // empty: as stored
  i64 max_shard_size_bytes = 5'000'000'000;
  bool merge = false, ema = false;
};

struct ImportConfig : CommonConfig {
  std::string file, out;
  std::optional<std::string> as;  // which of torchvision's models
  i64 max_shard_size_bytes = 5'000'000'000;
};

struct TokenizeConfig : CommonConfig {
  std::string tokenizer = "bytes", out, decode;
  std::vector<std::string> data;
  std::optional<i64> train_vocab;
};

struct InspectConfig : ResourceConfig, TextConfig {
  std::string path;
  bool verify = false;
  std::optional<i64> sequence_length;  // of rows; empty: the model's
};

struct StatusConfig : CommonConfig {
  std::string run;
};

struct TopConfig : StatusConfig {
  i64 every_s = 2;
};

struct ReportConfig : CommonConfig {
  std::vector<std::string> runs;
  std::optional<std::string> out;  // empty: report.html, of one run in its folder
};

/// What the commands that look at this node take.
struct NodeConfig : CommonConfig {
  std::vector<ScratchPath> nvme;
  offload::IoEngineKind io_engine = offload::IoEngineKind::automatic;
};

struct DoctorConfig : NodeConfig {
  bool login = false, reclaim = false;
};

struct BenchConfig : NodeConfig {
  std::vector<std::string> what;  // empty: all that can be measured
  std::optional<i64> threads;
  bool wants(const std::string& one) const { return what.empty() || std::ranges::find(what, one) != what.end(); }
};

struct SelftestConfig : CommonConfig {
  std::optional<std::string> device;  // as ResourceConfig's
  std::vector<ScratchPath> nvme;      // the first is where it works
};

struct SlurmConfig : TrainConfig {
  i64 nodes = 1, gpus = 0;                  // of a node
  std::optional<i64> time_s, memory_bytes;  // of the job; of a node
  std::string account, partition;
  std::vector<std::string> modules;
  std::vector<std::string> train_words;  // train's flags as they were given, a word each
};

struct ScheduleConfig : CommonConfig {
  std::string pipeline_schedule = "1f1b";               // a generator's name or a CSV file
  std::optional<i64> pipeline_stages, pipeline_chunks;  // ranks of the pipeline, stages a rank; empty: 1, the schedule's own
  std::optional<i64> gradient_accumulation_steps;       // micro-batches; empty: 1
  parallel::ScheduleCosts costs;
  std::optional<std::string> out, csv;  // files to write
};

/// Every option of train with its value, one key a line, usable with --config. Unset optionals are null (or "auto" where the flag knows the
/// word). Numbers read back to the same bits.
std::string to_json(const TrainConfig& config);

/// What --warmup-steps is when nobody said: 1 % of the steps, at most 2000; onecycle has none.
i64 default_warmup_steps(optim::Schedule::Kind kind, i64 steps);
/// Of the resolved configuration, with the curve over so many steps; a warm-up and a decay that nobody gave follow them.
optim::Schedule schedule_over(const TrainConfig& config, i64 steps);

/// A key that changes numbers and its value as text. --steps and --epochs are apart, and so is a warm-up that follows from them;
/// accumulation appears as the global batch, so that another split of the same batch is the same run.
struct NumberKey {
  std::string key, value;
  bool absent = false;  // not part of numbers_hash()
  bool operator==(const NumberKey&) const = default;
};
std::vector<NumberKey> number_keys(const TrainConfig& config);

/// 8 hex digits over number_keys(). Call it on the resolved configuration.
std::string numbers_hash(const TrainConfig& config);

/// What a run's config.json says. Throws Error(data) when it is no configuration.
TrainConfig run_config(const std::string& json);

/// The keys of `now` that change numbers and differ from `before` (a run's config.json, by its text), those of `now.allow_change` left out;
/// each as "key: before -> now". Throws Error(data) when `before` is no configuration. `same`: keys whose values differ in spelling alone.
std::vector<std::string> number_changes(const std::string& before_json, const TrainConfig& now, const std::vector<std::string>& same = {});

/// runs/<model>-<8 hex digits>.
std::string default_out(const TrainConfig& config);

}  // namespace spillway::app
