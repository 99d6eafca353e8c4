// Defines the options for the optimizer, the learning-rate schedule, and the dtypes of optimizer state.
#include "trainer/settings/field.h"

namespace spillway::trainer {
namespace {

constexpr const char *kOptimizer = "Optimizer", *kSchedule = "Learning rate", *kTypes = "Number types";

std::array<double, 2> read_betas(const Value& value, const std::string& what) {
  constexpr const char* kWanted = "two numbers such as 0.9,0.95";
  std::array<double, 2> betas{};
  if (const auto* text = value.as<std::string>()) {
    const size_t comma = text->find(',');
    if (comma == text->npos) refuse("[" + what + "] expected " + kWanted + ", got " + shown(value));
    betas = {parse_number(text->substr(0, comma), what), parse_number(text->substr(comma + 1), what)};
  } else {
    const auto* numbers = value.as<Value::Sequence>();
    if (numbers == nullptr || numbers->size() != 2) reject_kind(value, kWanted, what);
    betas = {read_number(numbers->front(), what), read_number(numbers->back(), what)};
  }
  for (const double beta : betas) {
    if (!fraction().holds(beta)) refuse("[" + what + "] expected both numbers to be in [0, 1), got " + shown(value));
  }
  return betas;
}

std::string print_betas(const std::array<double, 2>& betas) { return print_number(betas[0]) + "," + print_number(betas[1]); }

// Builds an option that only some update rules have. With the other rules it stays unset.
Option of_rules(const char* name, const char* help, Field field, const char* default_text, std::optional<Range> range) {
  return {.name = name,
          .group = kOptimizer,
          .help = help,
          .field = std::move(field),
          .commands = kTrain,
          .changes_numbers = true,
          .absent_when_unset = true,
          .default_text = default_text,
          .range = std::move(range),
          .of_some_rules = true};
}

std::vector<Option> optimizer() {
  return {
      {.name = "optimizer",
       .group = kOptimizer,
       .brief = "adamw, muon, lion, adafactor, sgd ...",
       .help = "update rule, as in PyTorch (amsgrad: a variant of Adam); lion: as in its paper; muon: Muon for matrices, AdamW for all "
               "other parameters and for those with a row per token, position or class; adafactor: stores only row and column means of a "
               "matrix's second moment",
       .field = word(&TrainConfig::optimizer, {"adamw", "adam", "amsgrad", "sgd", "adagrad", "rmsprop", "lion", "muon", "adafactor"}),
       .commands = kTrain,
       .changes_numbers = true},
      {.name = "learning-rate",
       .group = kOptimizer,
       .brief = "peak learning rate",
       .help = "peak learning rate, reached after warm-up",
       .field = number(&TrainConfig::learning_rate),
       .commands = kTrain,
       .changes_numbers = true,
       .default_text = "3e-4 (2e-5 when weights are loaded)",
       .range = at_least(0)},
      {.name = "betas",
       .group = kOptimizer,
       .help = "decay rates of the moments in adamw, adam, amsgrad and lion, and in the AdamW part of muon",
       .field = composite(&TrainConfig::betas, read_betas, print_betas),
       .commands = kTrain,
       .changes_numbers = true,
       .metavar = "B1,B2",
       .default_text = "0.9,0.95 (adam, amsgrad 0.9,0.999; lion 0.9,0.99)",
       .of_some_rules = true},
      {.name = "eps",
       .group = kOptimizer,
       .help = "small number that is added to the denominator of an update, which is the root of the second moment, in adagrad of the sum "
               "of squared gradients and in rmsprop of their average",
       .field = number(&TrainConfig::eps),
       .commands = kTrain,
       .changes_numbers = true,
       .default_text = "1e-08 (adagrad 1e-10)",
       .range = at_least(0),
       .of_some_rules = true},
      {.name = "weight-decay",
       .group = kOptimizer,
       .help =
           "weight decay of weights with two or more dimensions; decoupled in adamw, lion, muon and adafactor, else added to the gradient",
       .field = number(&TrainConfig::weight_decay),
       .commands = kTrain,
       .changes_numbers = true,
       .default_text = "0.1 (adamw, muon; else 0)",
       .range = at_least(0)},
      {.name = "optimizer-group",
       .group = kOptimizer,
       .help = "repeatable: settings for the parameters whose names match REGEX: lr=X replaces --learning-rate, weight_decay=X applies to "
               "all of them, such as \"\\.bias$:weight_decay=0,lr=1e-4\"; the first group that matches a name applies",
       .field = text(&TrainConfig::optimizer_groups),
       .commands = kTrain,
       .changes_numbers = true,
       .absent_when_unset = true,
       .metavar = "REGEX:KEY=X,...",
       .default_text = "none"},
      {.name = "decay-all",
       .group = kOptimizer,
       .help = "apply weight decay to norms and biases too",
       .field = flag(&TrainConfig::decay_all),
       .commands = kTrain,
       .changes_numbers = true},
      of_rules("momentum", "momentum of sgd, rmsprop and muon", number(&TrainConfig::momentum), "0 (muon 0.95)", at_least(0)),
      of_rules("dampening", "dampening of the momentum of sgd", number(&TrainConfig::dampening), "0", {}),
      of_rules("nesterov", "use Nesterov momentum in sgd or muon", flag(&TrainConfig::nesterov), "off (muon on)", {}),
      of_rules("alpha", "decay rate of the average of squared gradients in rmsprop", number(&TrainConfig::alpha), "0.99", fraction()),
      of_rules("muon-scale",
               "factor on muon's update of a matrix; original: sqrt(max(1, rows / columns)); match-rms-adamw: 0.2 * sqrt(max(rows, "
               "columns)), which suits the learning rate and weight decay of AdamW",
               choice(&TrainConfig::muon_scale,
                      {{"original", optim::MuonScale::original}, {"match-rms-adamw", optim::MuonScale::match_rms_adamw}}),
               "match-rms-adamw", {}),
      of_rules("centered", "rmsprop: divide by the root of the gradient's variance, as PyTorch's centered does",
               flag(&TrainConfig::centered), "", {}),
      {.name = "gradient-clipping",
       .group = kOptimizer,
       .help = "clip the gradients to this global L2 norm; 0 is off",
       .field = number(&TrainConfig::gradient_clipping),
       .commands = kTrain,
       .changes_numbers = true,
       .range = at_least(0)},
      {.name = "loss-scale-window",
       .group = kOptimizer,
       .help = "for fp16: the loss scale doubles after this many steps in a row without an overflow",
       .field = integer(&TrainConfig::loss_scale_window),
       .commands = kTrain,
       .changes_numbers = true,
       .absent_when_unset = true,
       .metavar = "STEPS",
       .default_text = "2000",
       .range = at_least(1)},
      {.name = "ema",
       .group = kOptimizer,
       .help =
           "keep an exponential moving average of the trained weights with this decay, such as 0.999: after each step that changes the "
           "weights, average = DECAY * average + (1 - DECAY) * weights. Stored in fp32 with the optimizer state; export --ema writes it",
       .field = number(&TrainConfig::ema),
       .commands = kTrain,
       .changes_numbers = true,
       .absent_when_unset = true,
       .metavar = "DECAY",
       .default_text = "off",
       .range = Range{.low = 0, .high = 1, .low_open = true, .high_open = true}},
  };
}

// Returns the --warmup-steps by which runs are compared. A warm-up that is derived from --steps counts as unset, because --steps is not
// compared either.
std::optional<std::string> own_warmup(const TrainConfig& config) {
  const bool derived = config.steps && config.warmup_steps == default_warmup_steps(config.lr_schedule, *config.steps);
  if (!config.warmup_steps || derived) return {};
  return std::to_string(*config.warmup_steps);
}

std::vector<Option> schedule() {
  using enum optim::Schedule::Kind;
  return {
      {.name = "lr-schedule",
       .group = kSchedule,
       .help = "learning rate after warm-up: linear, cosine and polynomial fall to --min-lr-ratio at the last step; wsd falls in the last "
               "--lr-decay-steps; step falls every --lr-step-size; onecycle: as in PyTorch",
       .field = choice(&TrainConfig::lr_schedule, {{"constant", constant},
                                                   {"linear", linear},
                                                   {"cosine", cosine},
                                                   {"polynomial", polynomial},
                                                   {"wsd", wsd},
                                                   {"step", step},
                                                   {"onecycle", onecycle}}),
       .commands = kTrain,
       .changes_numbers = true},
      {.name = "keep-schedule",
       .group = kSchedule,
       .help = "for a run that continues with another --steps: keep the learning-rate curve with which it began; steps beyond the curve "
               "use its final rate",
       .field = flag(&TrainConfig::keep_schedule),
       .commands = kTrain,
       .set_by_rehearsal = true},
      {.name = "schedule-steps",
       .group = kSchedule,
       .help = "length of the learning-rate curve, if it differs from --steps; steps beyond it use the final rate",
       .field = integer(&TrainConfig::schedule_steps),
       .commands = kTrain,
       .changes_numbers = true,
       .absent_when_unset = true,
       .metavar = "STEPS",
       .default_text = "--steps",
       .range = at_least(1)},
      {.name = "warmup-steps",
       .group = kSchedule,
       .help = "W, the number of warm-up steps: in the warm-up, step s = 0, 1 .. has the rate lr*(s+1)/(W+1)",
       .field = integer(&TrainConfig::warmup_steps),
       .commands = kTrain,
       .changes_numbers = true,
       .metavar = "STEPS",
       .default_text = "1 % of the steps, at most 2000",
       .range = at_least(0),
       .counts_as = own_warmup},
      {.name = "min-lr-ratio",
       .group = kSchedule,
       .help = "final learning rate of linear, cosine, polynomial and wsd, as a share of --learning-rate",
       .field = number(&TrainConfig::min_lr_ratio),
       .commands = kTrain,
       .changes_numbers = true,
       .range = Range{.low = 0, .high = 1}},
      {.name = "lr-step-size",
       .group = kSchedule,
       .help = "with --lr-schedule step: number of steps, after warm-up, between two multiplications of the rate by --lr-gamma",
       .field = integer(&TrainConfig::lr_step_size),
       .commands = kTrain,
       .changes_numbers = true,
       .metavar = "STEPS",
       .default_text = "none",
       .range = at_least(1),
       .of_lr_schedule = "step"},
      {.name = "lr-gamma",
       .group = kSchedule,
       .help = "with --lr-schedule step: factor by which the rate is multiplied",
       .field = number(&TrainConfig::lr_gamma),
       .commands = kTrain,
       .changes_numbers = true,
       .default_text = "0.1",
       .range = at_least(0),
       .of_lr_schedule = "step"},
      {.name = "lr-power",
       .group = kSchedule,
       .help = "with --lr-schedule polynomial: exponent of the share of steps still to go, which falls from 1 to 0",
       .field = number(&TrainConfig::lr_power),
       .commands = kTrain,
       .changes_numbers = true,
       .default_text = "1",
       .range = above(0),
       .of_lr_schedule = "polynomial"},
      {.name = "lr-pct-start",
       .group = kSchedule,
       .help = "with --lr-schedule onecycle: share of the steps during which the rate rises",
       .field = number(&TrainConfig::lr_pct_start),
       .commands = kTrain,
       .changes_numbers = true,
       .default_text = "0.3",
       .range = Range{.low = 0, .high = 1},
       .of_lr_schedule = "onecycle"},
      {.name = "lr-decay-steps",
       .group = kSchedule,
       .help = "with --lr-schedule wsd: number of last steps, during which the rate falls along half a cosine",
       .field = integer(&TrainConfig::lr_decay_steps),
       .commands = kTrain,
       .changes_numbers = true,
       .metavar = "STEPS",
       .default_text = "10 % of the steps",
       .range = at_least(1),
       .of_lr_schedule = "wsd"},
  };
}

std::vector<Option> types() {
  return {
      {.name = "master-weights",
       .group = kTypes,
       .help =
           "master copy of bf16 weights: fp32, or split, only the 16 bits that a bf16 weight lacks (same numbers, 2 bytes less per weight)",
       .field = choice(&TrainConfig::master_weights, {{"fp32", optim::Master::fp32}, {"split", optim::Master::split}}),
       .commands = kTrain},
      {.name = "moments",
       .group = kTypes,
       .help = "storage type of the optimizer's moments; bf16 and 8bit are approximations with stochastic rounding",
       .field =
           choice(&TrainConfig::moments, {{"fp32", optim::Moments::fp32}, {"bf16", optim::Moments::bf16}, {"8bit", optim::Moments::int8}}),
       .commands = kTrain,
       .changes_numbers = true},
      {.name = "gradient-dtype",
       .group = kTypes,
       .help = "storage type of gradients; bf16 rounds the summed gradient once, before the norm is computed (an approximation)",
       .field = choice(&TrainConfig::round_gradients, {{"fp32", false}, {"bf16", true}}),
       .commands = kTrain,
       .changes_numbers = true},
      {.name = "gradient-reduction",
       .group = kTypes,
       .help = "sum gradients over the ranks once per step, or after each micro-batch, so that each rank stores only its shard of them "
               "(ZeRO 2 and 3)",
       .field = choice(&TrainConfig::reduce_each, {{"step", false}, {"micro-batch", true}}),
       .commands = kTrain,
       .changes_numbers = true},
  };
}

}  // namespace

std::vector<Option> optimizer_options() {
  std::vector<Option> all = optimizer();
  for (auto table : {schedule(), types()}) all.insert(all.end(), table.begin(), table.end());
  return all;
}

}  // namespace spillway::trainer
