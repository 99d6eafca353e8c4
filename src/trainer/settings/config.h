// Declares the configuration structs of the commands: plain values with one field per option. The option table (option.h) fills them and
// writes them back as JSON. Defaults of options are defined only in this file. An empty optional means that the user did not set the
// option: the planner or the trainer then decides and writes its decision into the field, and to_json() shows it. Thread-safe, because
// these are values.
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
#include "parallel/schedule/pipeline.h"
#include "parallel/schedule/schedule_simulate.h"
#include "tensor/dtype.h"
#include "trainer/settings/held.h"

namespace spillway::trainer {

using offload::Durability;
using offload::Tier;

enum class Precision { fp32, fp64, bf16, fp16, tf32, fp8 };
/// Returns the dtype that weights and the activations between blocks have at this precision; bf16 for fp8, which only products use.
DType weight_dtype(Precision precision);
enum class Attention { own, cudnn };  // whose attention kernels a GPU runs: Spillway's own or cuDNN's
enum class DataOrder { shuffled, sequential };

struct PlacementWish;      // placement_settings.h
struct PlacementSettings;  // placement_settings.h
struct RunSettings;        // run_settings.h

/// ScratchPath is one scratch path of --nvme, given as PATH[:SIZE].
struct ScratchPath {
  /// How the disk is examined. `thorough`: the disk may be measured by writing to it. `without_writing`: nothing is written, as in the
  /// command `plan`. `elsewhere`: the disk belongs to another machine, and constants stand for its speeds.
  enum class Look { thorough, without_writing, elsewhere };
  std::string path;
  std::optional<i64> bytes;  // the most bytes that all ranks of a node together may use
  Look look = Look::thorough;
  bool operator==(const ScratchPath&) const = default;
};

/// Cadence is the interval of --checkpoint-every: a checkpoint is saved every `count` steps, seconds or epochs.
struct Cadence {
  enum class Unit { steps, seconds, epochs } unit = Unit::seconds;
  i64 count = 30 * 60;
  bool operator==(const Cadence&) const = default;
};

/// BaseWeights is the format in which frozen weights of linear layers are stored (kernels::WeightFormat), as for QLoRA.
enum class BaseWeights { fp32, bf16, int8, nf4 };

/// StepRange is the value of --trace-steps: the steps first..last are traced, both included. Steps are counted from 1.
struct StepRange {
  i64 first = 3, last = 6;
  bool operator==(const StepRange&) const = default;
};

struct Resume {
  enum class Kind { automatic, never, must, path } kind = Kind::automatic;
  std::string path;  // checkpoint folder, set only for Kind::path
  bool operator==(const Resume&) const = default;
};

/// CommonConfig holds the options of every command.
struct CommonConfig {
  bool quiet = false, json = false;
};

/// ResourceConfig holds the options of every command that runs a model.
struct ResourceConfig : CommonConfig {
  std::string model;
  std::optional<std::string> adapter;       // PEFT folder of a trained LoRA adapter
  std::optional<BaseWeights> base_weights;  // format of frozen weights; empty: the format used in training, or that of --precision
  std::string checkpoint = "last";          // for generate and evaluate: last, best or a step number
  std::optional<std::string> tokenizer;
  std::optional<Precision> precision;  // precision of weights and activations; empty: bf16 on a GPU, fp32 on a CPU
  bool tf32_matmul = false, tf32_conv = false;
  Attention attention = Attention::own;
  u64 seed = 1337;

  std::optional<std::string> device;  // "cpu", "cuda", "cuda:2"; empty: the best device that is found
  std::optional<i64> device_memory_bytes, host_memory_bytes;
  std::vector<ScratchPath> nvme;
  bool allow_network_nvme = false;
  Held<PlacementSettings> placement;
  offload::IoEngineKind io_engine = offload::IoEngineKind::automatic;
  std::optional<i64> threads;
  bool for_any_node = false;           // set by `plan`: its sizes may be another machine's, so they are not checked against this one
  std::optional<std::string> cluster;  // for `plan`: other machines than this one to plan for (cluster.h)
  optim::Isa isa = optim::Isa::best;
};

/// RanksConfig holds the options of commands that can run on several ranks.
struct RanksConfig : ResourceConfig {
  i64 ranks = 1;
  i64 pipeline_stages = 1;
  std::string communicator = "auto", rendezvous = "auto";
  i64 timeout_s = 60;  // seconds to wait for an answer of another rank
  std::string bind = "auto";

  /// Returns the data-parallel size. Each data-parallel replica is one pipeline, of several ranks or of one.
  i64 data_ranks() const { return ranks / pipeline_stages; }
};

/// TextConfig holds the options that say how text data is read.
struct TextConfig {
  std::string data_format = "auto";  // the layout of the rows of .jsonl files, or auto
  data::LossOn loss_on = data::LossOn::by_layout;
  bool packing = true;
  std::optional<std::string> chat_template;  // a file, or the name of a template of the model
  std::optional<std::string> data_cache;     // folder for tokenized text; empty: one beside the run folder
  bool skip_bad_lines = false;
};

struct TrainConfig : RanksConfig, TextConfig {
  std::vector<std::string> notes;  // lines for the log on how the settings were read, such as on a DeepSpeed file
  bool from_scratch = false;
  std::vector<std::string> data, validation_data;
  double validation_fraction = 0;
  std::optional<i64> validate_every;    // steps between validations; empty: validate only at the end
  std::optional<i64> validation_steps;  // micro-batches of one validation; empty: all data
  DataOrder data_order = DataOrder::shuffled;
  bool drop_last = false;         // true: the last rows of an epoch are not used if they do not fill a step
  std::optional<i64> workers;     // threads that read data; empty: as many as compute threads
  std::optional<i64> image_size;  // side length in pixels of images from folders; empty: the first image's size

  std::optional<i64> sequence_length;                                 // tokens per row; empty: the model's length
  std::optional<i64> micro_batch_size;                                // rows; empty: 1 for text, 64 for images
  std::optional<i64> gradient_accumulation_steps, global_batch_size;  // at most one of the two is set
  std::optional<i64> steps;                                           // if neither steps nor epochs is set, the run takes 1 epoch
  std::optional<double> epochs;

  std::string augment = "none", optimizer = "adamw";
  std::optional<double> learning_rate;         // highest learning rate; empty: 3e-4, or 2e-5 with pretrained weights
  std::optional<std::array<double, 2>> betas;  // empty: the optimizer's default, as for all members up to muon_scale
  std::optional<double> eps, weight_decay;
  std::optional<double> momentum, dampening, alpha;
  std::optional<bool> nesterov, centered;
  std::optional<optim::MuonScale> muon_scale;
  std::vector<std::string> optimizer_groups;  // texts that parse_optimizer_group() takes
  bool decay_all = false;
  optim::Schedule::Kind lr_schedule = optim::Schedule::Kind::cosine;
  std::optional<i64> warmup_steps;  // number of warm-up steps; empty: the value of default_warmup_steps()
  bool keep_schedule = false;
  double min_lr_ratio = 0.1;
  std::optional<i64> schedule_steps;                       // steps that the learning-rate schedule spans; empty: all `steps`
  std::optional<i64> lr_step_size, lr_decay_steps;         // lr_decay_steps is for schedule wsd, empty: 10 % of the steps
  std::optional<double> lr_gamma, lr_power, lr_pct_start;  // for schedules step, polynomial, onecycle; empty: default of optim::Schedule
  double gradient_clipping = 1.0;                          // largest gradient norm; 0: gradients are not clipped
  std::optional<i64> loss_scale_window;                    // for fp16; empty: the value of optim::kLossScaleInterval
  std::optional<double> ema;                               // decay of the exponential moving average of the weights; empty: no average
  std::optional<double> dropout;                           // probability; empty: the value in config.json of a model folder, 0 for presets
  std::vector<std::string> freeze;                         // parameter name patterns for freeze_parameters()
  std::optional<i64> lora;                                 // rank of the LoRA adapters; empty: no new adapters
  std::optional<double> lora_alpha;                        // LoRA's alpha; empty: twice the LoRA rank
  std::string lora_targets = "all-linear";                 // "all-linear", or module names separated by commas
  double lora_dropout = 0;
  bool lora_rank_stabilized = false;

  optim::Master master_weights = optim::Master::fp32;
  optim::Moments moments = optim::Moments::fp32;
  bool round_gradients = false;
  bool reduce_each = false;  // true for --gradient-reduction micro-batch: gradients are reduced after every micro-batch
  std::string pipeline_schedule = "auto";
  std::optional<i64> pipeline_chunks;  // pipeline stages per rank; empty: the schedule's default
  Durability durability = Durability::checkpoint;

  std::string out;  // run folder; without --out the value of default_out()
  Resume resume;
  std::vector<std::string> allow_change;  // keys whose values may differ from those of the resumed run
  bool rehearse = false;
  std::vector<std::string> rehearsal_words;  // for --rehearse: the given flags without those that concern the run folder or the display
  Held<RunSettings> run;

  /// Returns the number of micro-batches of one optimizer step on each of `data_parallel_ranks` ranks.
  /// Throws Error(usage), which names the nearest legal sizes, if the global batch does not divide evenly.
  i64 micro_batches(i64 data_parallel_ranks = 1) const;
  /// Returns the number of rows (windows of tokens, or images) of one optimizer step on all ranks together.
  i64 global_batch() const { return micro_batches(data_ranks()) * micro_batch_rows() * data_ranks(); }
  /// Returns the number of steps that the learning-rate schedule spans. The configuration must be resolved, so that `steps` is set.
  i64 curve_steps() const { return schedule_steps.value_or(*steps); }
  /// Returns the sequences or images of one micro-batch. The configuration must be resolved, because an unset size counts as 1 even for
  /// images.
  i64 micro_batch_rows() const { return micro_batch_size.value_or(1); }
};

struct PlanConfig : TrainConfig {
  bool program = false;                  // true: the plan's list of instructions is printed
  bool roofline = false;                 // true: the time that the kernels would take at a GPU's peak rates is printed
  std::optional<std::string> html;       // file for the plan as an HTML page
  std::vector<std::string> train_words;  // the flags that the user gave for the command train, as separate words, without --ranks
};

// WritingConfig holds the options of the commands that generate text.
struct WritingConfig : RanksConfig {
  double temperature = 0.8;  // temperature of sampling; 0: greedy decoding
  i64 top_k = 0;             // number of most likely tokens to sample from; 0: all
  double top_p = 1, min_p = 0, repetition_penalty = 1;
  std::vector<std::string> stop;
  i64 max_tokens = 128;
  std::optional<std::string> chat_template;  // a file or a template's name; empty: the template of the model folder
};

struct GenerateConfig : WritingConfig {
  std::optional<std::string> prompt, prompts;  // a prompt's text, or a file of prompts; exactly one is given
  i64 batch_size = 8;                          // number of prompts in a batch
  std::vector<std::string> adapters;           // PEFT folders; each adapter answers every prompt; empty: the model answers without adapters
};

struct ChatConfig : WritingConfig {
  std::optional<std::string> system;
  i64 context = 4096;  // length of the context in tokens, limited to the model's
};

struct EvaluateConfig : RanksConfig, TextConfig {
  std::vector<std::string> data;
  std::optional<i64> sequence_length;   // tokens per row; empty: the model's length
  std::optional<i64> micro_batch_size;  // rows; empty: 1 for text, 64 for images
};

struct ClassifyConfig : RanksConfig {
  std::vector<std::string> images;  // files of the images to classify
  i64 top = 5;                      // number of classes shown per image
};

struct ExportConfig : CommonConfig {
  std::string model, checkpoint = "last", out, format = "hf";
  std::optional<std::string> dtype;  // empty: the dtype of the stored weights
  i64 max_shard_size_bytes = 5'000'000'000;
  bool merge = false, ema = false;
};

struct ImportConfig : CommonConfig {
  std::string file, out;
  std::optional<std::string> as;  // name of the torchvision model whose weights the file holds
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
  std::optional<i64> sequence_length;  // tokens per row; empty: the model's length
};

struct StatusConfig : CommonConfig {
  std::string run;
};

struct TopConfig : StatusConfig {
  i64 every_s = 2;
};

struct ReportConfig : CommonConfig {
  std::vector<std::string> runs;
  std::optional<std::string> out;  // output file; empty: report.html, in the run folder if only one run is shown
};

/// NodeConfig holds the options of the commands that examine this node.
struct NodeConfig : CommonConfig {
  std::vector<ScratchPath> nvme;
  offload::IoEngineKind io_engine = offload::IoEngineKind::automatic;
};

struct DoctorConfig : NodeConfig {
  bool login = false, reclaim = false;
};

struct BenchConfig : NodeConfig {
  std::vector<std::string> what;  // names of the benchmarks to run; empty: all that this node can run
  std::optional<i64> threads;
  bool wants(const std::string& one) const { return what.empty() || std::ranges::find(what, one) != what.end(); }
};

struct SelftestConfig : CommonConfig {
  std::optional<std::string> device;  // "cpu", "cuda", "cuda:2"; empty: the best device that is found
  std::vector<ScratchPath> nvme;      // scratch paths; the command selftest puts its files into the first one
};

struct SlurmConfig : TrainConfig {
  i64 nodes = 1, gpus = 0;                  // nodes of the job; GPUs per node
  std::optional<i64> time_s, memory_bytes;  // time limit of the job; memory per node
  std::optional<i64> cpus_per_task;         // cores of each rank
  std::string gpu_type;                     // Slurm's name of the kind of GPU; empty: any
  std::string account, partition, output;   // output: file of what the job prints; empty: Slurm's default
  std::vector<std::string> directives;      // further options of sbatch, such as "--constraint=ib"
  std::vector<std::string> modules;
  std::vector<std::string> train_words;  // the flags that the user gave for the command train, as separate words
};

struct ScheduleConfig : CommonConfig {
  std::string pipeline_schedule = "1f1b";               // name of a schedule generator, or a CSV file
  std::optional<i64> pipeline_stages, pipeline_chunks;  // ranks of the pipeline, empty: 1; stages per rank, empty: the schedule's default
  std::optional<i64> gradient_accumulation_steps;       // micro-batches of a step; empty: 1
  parallel::ScheduleCosts costs;
  std::optional<std::string> out, csv;  // output files
};

/// Returns whether an option places something in this tier.
bool uses_tier(const PlacementSettings& wishes, Tier tier);
/// Returns whether some data may lie in this tier, because an option names the tier or leaves the choice open.
bool may_use_tier(const PlacementSettings& wishes, Tier tier);

/// Returns every option of train with its value as JSON, one key per line, which --config can read. Unset optionals are null, or "auto" if
/// the flag accepts that word. A number that is read back is exactly the same number.
std::string to_json(const TrainConfig& config);

/// Returns the default of --warmup-steps: 1 % of the steps, at most 2000. The onecycle schedule itself begins with a warm-up, so its
/// default is 0.
i64 default_warmup_steps(optim::Schedule::Kind kind, i64 steps);
/// Returns the learning-rate schedule of the resolved configuration, spanning `steps` steps. A warm-up or decay length that the user did
/// not set is derived from `steps`.
optim::Schedule schedule_over(const TrainConfig& config, i64 steps);

/// NumberKey is a configuration key that changes the numbers a run computes, with its value as text. --steps
/// and --epochs are not among these keys, and neither is a warm-up derived from them. Gradient accumulation
/// appears as the global batch, so that a run whose batch is only split differently counts as the same run.
struct NumberKey {
  std::string key, value;
  bool absent = false;  // true if numbers_hash() leaves this key out
  bool operator==(const NumberKey&) const = default;
};
std::vector<NumberKey> number_keys(const TrainConfig& config);

/// Returns a hash of number_keys() as 8 hex digits. `config` must be resolved.
std::string numbers_hash(const TrainConfig& config);

/// Parses the text of a run's config.json. Throws Error(data) if the text is not a configuration.
TrainConfig run_config(const std::string& json);

/// Compares `now` with `before_json`, the text of a run's config.json. Returns the keys that change numbers and
/// have different values, each as "key: before -> now". Keys in `now.allow_change` are left out, and so are
/// keys in `same`, whose values differ only in spelling. Throws Error(data) if the text is not a configuration.
std::vector<std::string> number_changes(const std::string& before_json, const TrainConfig& now, const std::vector<std::string>& same = {});

/// Returns the default run folder: runs/MODEL-DIGITS, with 8 hex digits of numbers_hash().
std::string default_out(const TrainConfig& config);

}  // namespace spillway::trainer
