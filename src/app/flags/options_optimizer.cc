// Options for the optimizer, the learning-rate schedule, and the dtypes of optimizer state.
#include "app/flags/field.h"

namespace spillway::app {
namespace {

constexpr const char *kOptimizer = "Optimizer", *kSchedule = "Learning rate", *kTypes = "Number types";

// Builds the field of --betas, a single option whose text is two numbers: "0.9,0.95".
Field betas() {
  Field field{.kind = Kind::composite, .repeatable = false, .choices = {}, .set = nullptr, .get = nullptr};
  field.set = [](Settings& settings, const std::string& text, const std::string& what) {
    const size_t comma = text.find(',');
    if (comma == text.npos) throw Error(ErrorCode::usage, "[" + what + "] expected two numbers such as 0.9,0.95, got \"" + text + "\"");
    auto& betas = part<TrainConfig>(settings).betas;
    betas = {parse_number(text.substr(0, comma), what), parse_number(text.substr(comma + 1), what)};
    for (const double beta : *betas) {
      if (!fraction().holds(beta)) throw Error(ErrorCode::usage, "[" + what + "] expected both in [0, 1), got \"" + text + "\"");
    }
  };
  field.get = [](const Settings& settings) -> std::optional<std::vector<std::string>> {
    const auto& betas = part<TrainConfig>(settings).betas;
    if (!betas) return {};
    return std::vector{print_number(betas->at(0)) + "," + print_number(betas->at(1))};
  };
  return field;
}

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
          .range = std::move(range)};
}

std::vector<Option> optimizer() {
  return {
      {.name = "optimizer",
       .group = kOptimizer,
       .help =
           "the update rule: PyTorch's of that name (amsgrad: Adam's variant), lion the paper's; muon moves matrices, and adamw what "
           "is none or has a row for each token, position or class; adafactor keeps of a matrix's second moment its means over rows and "
           "columns alone",
       .field = word(&TrainConfig::optimizer, {"adamw", "adam", "amsgrad", "sgd", "adagrad", "rmsprop", "lion", "muon", "adafactor"}),
       .commands = kTrain,
       .changes_numbers = true},
      {.name = "learning-rate",
       .group = kOptimizer,
       .help = "the highest, after warm-up",
       .field = number(&TrainConfig::learning_rate),
       .commands = kTrain,
       .changes_numbers = true,
       .default_text = "3e-4 (2e-5 when weights are loaded)",
       .range = at_least(0)},
      {.name = "betas",
       .group = kOptimizer,
       .help = "of the moments: of adamw, adam, amsgrad, lion, and beside muon's matrices",
       .field = betas(),
       .commands = kTrain,
       .changes_numbers = true,
       .metavar = "B1,B2",
       .default_text = "0.9,0.95 (adam, amsgrad 0.9,0.999; lion 0.9,0.99)"},
      {.name = "eps",
       .group = kOptimizer,
       .help = "added to the root of the second moment, of the sum of adagrad, of the average of rmsprop",
       .field = number(&TrainConfig::eps),
       .commands = kTrain,
       .changes_numbers = true,
       .default_text = "1e-08 (adagrad 1e-10)",
       .range = at_least(0)},
      {.name = "weight-decay",
       .group = kOptimizer,
       .help = "of adamw, lion, muon and adafactor decoupled, else added to the gradient; on weights of two and more dimensions",
       .field = number(&TrainConfig::weight_decay),
       .commands = kTrain,
       .changes_numbers = true,
       .default_text = "0.1 (adamw, muon; else 0)",
       .range = at_least(0)},
      {.name = "optimizer-group",
       .group = kOptimizer,
       .help = "parameters in whose names the pattern is found (the first that is): lr=X in place of --learning-rate, weight_decay=X of "
               "all of them; such as \"\\.bias$:weight_decay=0,lr=1e-4\"",
       .field = text(&TrainConfig::optimizer_groups),
       .commands = kTrain,
       .changes_numbers = true,
       .absent_when_unset = true,
       .metavar = "REGEX:KEY=X,...",
       .default_text = "none"},
      {.name = "decay-all",
       .group = kOptimizer,
       .help = "decay norms and biases too",
       .field = flag(&TrainConfig::decay_all),
       .commands = kTrain,
       .changes_numbers = true},
      of_rules("momentum", "of sgd, rmsprop and muon", number(&TrainConfig::momentum), "0 (muon 0.95)", at_least(0)),
      of_rules("dampening", "of sgd's momentum", number(&TrainConfig::dampening), "0", {}),
      of_rules("nesterov", "of sgd's and muon's momentum", flag(&TrainConfig::nesterov), "off (muon on)", {}),
      of_rules("alpha", "of rmsprop's average of squares", number(&TrainConfig::alpha), "0.99", fraction()),
      of_rules(
          "muon-scale",
          "a matrix moves by so much of its learning rate: the root of its rows over its columns (at least 1), or 0.2 of the root of the "
          "longer side, with which learning rates and weight decays are adamw's",
          choice(&TrainConfig::muon_scale,
                 {{"original", optim::MuonScale::original}, {"match-rms-adamw", optim::MuonScale::match_rms_adamw}}),
          "match-rms-adamw", {}),
      of_rules("centered", "rmsprop less the square of the gradient's average", flag(&TrainConfig::centered), "", {}),
      {.name = "gradient-clipping",
       .group = kOptimizer,
       .help = "global L2 norm; 0 is off",
       .field = number(&TrainConfig::gradient_clipping),
       .commands = kTrain,
       .changes_numbers = true,
       .range = at_least(0)},
      {.name = "loss-scale-window",
       .group = kOptimizer,
       .help = "of fp16: so many steps in a row without an overflow double the loss scale",
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
           "keep an exponential moving average of the trained weights, such as 0.999: after each step that moves them it goes 1 - DECAY of "
           "the way to them. In fp32 beside the optimizer's state; export --ema writes it",
       .field = number(&TrainConfig::ema),
       .commands = kTrain,
       .changes_numbers = true,
       .absent_when_unset = true,
       .metavar = "DECAY",
       .default_text = "off",
       .range = Range{.low = 0, .high = 1, .low_open = true, .high_open = true}},
  };
}

std::vector<Option> schedule() {
  using enum optim::Schedule::Kind;
  return {
      {.name = "lr-schedule",
       .group = kSchedule,
       .help =
           "after warm-up: linear, cosine and polynomial fall to min-lr-ratio at the last step, wsd over its last --lr-decay-steps, step "
           "every --lr-step-size; onecycle is PyTorch's",
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
       .help = "of a run that goes on with other --steps: the learning rates stay on the curve they began on, at its end rate behind it",
       .field = flag(&TrainConfig::keep_schedule),
       .commands = kTrain},
      {.name = "schedule-steps",
       .group = kSchedule,
       .help = "that the curve of the learning rate spans, whatever --steps says: beyond it at its end rate",
       .field = integer(&TrainConfig::schedule_steps),
       .commands = kTrain,
       .changes_numbers = true,
       .absent_when_unset = true,
       .metavar = "STEPS",
       .default_text = "--steps",
       .range = at_least(1)},
      {.name = "warmup-steps",
       .group = kSchedule,
       .help = "W: step s = 0, 1 .. has lr*(s+1)/(W+1)",
       .field = integer(&TrainConfig::warmup_steps),
       .commands = kTrain,
       .changes_numbers = true,
       .metavar = "STEPS",
       .default_text = "1 % of the steps, at most 2000",
       .range = at_least(0)},
      {.name = "min-lr-ratio",
       .group = kSchedule,
       .help = "of the learning rate at the end of linear, cosine, polynomial and wsd",
       .field = number(&TrainConfig::min_lr_ratio),
       .commands = kTrain,
       .changes_numbers = true,
       .range = Range{.low = 0, .high = 1}},
      {.name = "lr-step-size",
       .group = kSchedule,
       .help = "of step: so many steps after the warm-up, and again after as many, the rate is multiplied by --lr-gamma",
       .field = integer(&TrainConfig::lr_step_size),
       .commands = kTrain,
       .changes_numbers = true,
       .metavar = "STEPS",
       .default_text = "none",
       .range = at_least(1)},
      {.name = "lr-gamma",
       .group = kSchedule,
       .help = "of step",
       .field = number(&TrainConfig::lr_gamma),
       .commands = kTrain,
       .changes_numbers = true,
       .default_text = "0.1",
       .range = at_least(0)},
      {.name = "lr-power",
       .group = kSchedule,
       .help = "of polynomial: of what is left of the way, 1 to 0",
       .field = number(&TrainConfig::lr_power),
       .commands = kTrain,
       .changes_numbers = true,
       .default_text = "1",
       .range = above(0)},
      {.name = "lr-pct-start",
       .group = kSchedule,
       .help = "of onecycle: share of the steps on which the rate rises",
       .field = number(&TrainConfig::lr_pct_start),
       .commands = kTrain,
       .changes_numbers = true,
       .default_text = "0.3",
       .range = Range{.low = 0, .high = 1}},
      {.name = "lr-decay-steps",
       .group = kSchedule,
       .help = "of wsd: the last steps, on which the rate falls, by half a cosine",
       .field = integer(&TrainConfig::lr_decay_steps),
       .commands = kTrain,
       .changes_numbers = true,
       .metavar = "STEPS",
       .default_text = "10 % of the steps",
       .range = at_least(1)},
  };
}

std::vector<Option> types() {
  return {
      {.name = "master-weights",
       .group = kTypes,
       .help = "of bf16 weights: fp32, or the weight and the 16 bits it lacks (the same bits in 2 bytes less)",
       .field = choice(&TrainConfig::master_weights, {{"fp32", optim::Master::fp32}, {"split", optim::Master::split}}),
       .commands = kTrain},
      {.name = "moments",
       .group = kTypes,
       .help = "of the optimizer; bf16 and 8bit are approximations, stochastically rounded",
       .field =
           choice(&TrainConfig::moments, {{"fp32", optim::Moments::fp32}, {"bf16", optim::Moments::bf16}, {"8bit", optim::Moments::int8}}),
       .commands = kTrain,
       .changes_numbers = true},
      {.name = "gradient-dtype",
       .group = kTypes,
       .help = "bf16 rounds the summed gradient once, before the norm: an approximation",
       .field = choice(&TrainConfig::round_gradients, {{"fp32", false}, {"bf16", true}}),
       .commands = kTrain,
       .changes_numbers = true},
      {.name = "gradient-reduction",
       .group = kTypes,
       .help = "gradients are summed over the ranks once a step, or for each micro-batch: a rank holds its part of them alone in any order",
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

}  // namespace spillway::app
