// The optimizer, its learning rates, and the types its numbers are kept in.
#include "app/flags/field.h"

namespace spillway::app {
namespace {

constexpr const char *kOptimizer = "Optimizer", *kSchedule = "Learning rate", *kTypes = "Number types";

// "0.9,0.95": two members, one option.
Field betas() {
  Field field{.kind = Kind::composite, .repeatable = false, .choices = {}, .set = nullptr, .get = nullptr};
  field.set = [](Settings& settings, const std::string& text, const std::string& what) {
    const size_t comma = text.find(',');
    if (comma == text.npos) throw Error(ErrorCode::usage, "[" + what + "] expected two numbers such as 0.9,0.95, got \"" + text + "\"");
    auto& config = part<TrainConfig>(settings);
    config.beta1 = parse_number(text.substr(0, comma), what);
    config.beta2 = parse_number(text.substr(comma + 1), what);
    for (const double beta : {config.beta1, config.beta2}) {
      if (!fraction().holds(beta)) throw Error(ErrorCode::usage, "[" + what + "] expected both in [0, 1), got \"" + text + "\"");
    }
  };
  field.get = [](const Settings& settings) -> std::optional<std::vector<std::string>> {
    const auto& config = part<TrainConfig>(settings);
    return std::vector{print_number(config.beta1) + "," + print_number(config.beta2)};
  };
  return field;
}

Option unbuilt(const char* name, const char* group, const char* help, Kind kind, const char* default_text, const char* instead) {
  return {.name = name,
          .group = group,
          .help = help,
          .field = no_field(kind),
          .commands = kTrain,
          .default_text = default_text,
          .instead = instead,
          .built = false};
}

std::vector<Option> optimizer() {
  constexpr const char* kMomentum = "it belongs to sgd; adamw has --betas";
  return {
      {.name = "optimizer",
       .group = kOptimizer,
       .help = "the update rule",
       .field = word(&TrainConfig::optimizer, {"adamw"}),
       .commands = kTrain,
       .changes_numbers = true,
       .instead = "adamw works",
       .later = {"adam", "sgd", "adagrad", "rmsprop", "lion"}},
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
       .help = "of the moments",
       .field = betas(),
       .commands = kTrain,
       .changes_numbers = true,
       .metavar = "B1,B2"},
      {.name = "eps",
       .group = kOptimizer,
       .help = "added to the root of the second moment",
       .field = number(&TrainConfig::eps),
       .commands = kTrain,
       .changes_numbers = true,
       .range = at_least(0)},
      {.name = "weight-decay",
       .group = kOptimizer,
       .help = "decoupled; on weights of two and more dimensions",
       .field = number(&TrainConfig::weight_decay),
       .commands = kTrain,
       .changes_numbers = true,
       .range = at_least(0)},
      {.name = "decay-all",
       .group = kOptimizer,
       .help = "decay norms and biases too",
       .field = flag(&TrainConfig::decay_all),
       .commands = kTrain,
       .changes_numbers = true},
      unbuilt("momentum", kOptimizer, "of sgd", Kind::number, "0", kMomentum),
      unbuilt("nesterov", kOptimizer, "of sgd", Kind::flag, "", kMomentum),
      {.name = "gradient-clipping",
       .group = kOptimizer,
       .help = "global L2 norm; 0 is off",
       .field = number(&TrainConfig::gradient_clipping),
       .commands = kTrain,
       .changes_numbers = true,
       .range = at_least(0)},
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
