// Translates DeepSpeed's optimizers and learning-rate schedules into Spillway's flags. Keys that the file does not set
// have the defaults of DeepSpeed's own Adam, Adagrad, Lion and Muon, and for other optimizers those of torch.optim.
#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <span>

#include "trainer/deepspeed/reader.h"
#include "trainer/settings/suggest.h"
#include "trainer/settings/text.h"

namespace spillway::trainer {
namespace {

const std::string kParams = "optimizer.params.";

struct Rule {
  std::string_view theirs, ours;
  double learning_rate, weight_decay;
  std::string_view betas;  // default betas, separated by a comma; empty if the optimizer has none
  std::vector<std::string_view> numbers;
};

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = {
      {"adam", "adamw", 1e-3, 0, "0.9,0.999", {"eps"}},
      {"adamw", "adamw", 1e-3, 0, "0.9,0.999", {"eps"}},
      {"adagrad", "adagrad", 1e-2, 0, "", {"eps"}},
      {"lion", "lion", 1e-3, 0, "0.9,0.99", {}},
      {"muon", "muon", 1e-3, 0, "0.9,0.999", {"eps", "momentum"}},
      {"sgd", "sgd", 1e-3, 0, "", {"momentum", "dampening"}},
      {"rmsprop", "rmsprop", 1e-2, 0, "", {"eps", "momentum", "alpha"}},
      {"adafactor", "adafactor", 1e-2, 0, "", {}},
  };
  return all;
}

struct Unbuilt {
  std::string_view theirs, instead;
};
constexpr Unbuilt kUnbuilt[] = {
    {"lamb", "AdamW"},        {"fusedlamb", "AdamW"},  {"onebitadam", "AdamW, whose gradients are exchanged in fp32"},
    {"zerooneadam", "AdamW"}, {"onebitlamb", "AdamW"}, {"muadam", "AdamW"},
    {"muadamw", "AdamW"},     {"musgd", "SGD"},        {"nadam", "AdamW"},
    {"radam", "AdamW"},       {"adamax", "AdamW"},     {"adadelta", "Adagrad"},
    {"sparseadam", "AdamW"},  {"asgd", "SGD"},         {"lbfgs", "AdamW"},
    {"rprop", "RMSprop"}};

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

const Rule& rule_named(const DeepspeedReader& file, const std::string& type) {
  const auto found = std::ranges::find(rules(), lower(type), &Rule::theirs);
  if (found != rules().end()) return *found;
  const auto unbuilt = std::ranges::find(kUnbuilt, lower(type), &Unbuilt::theirs);
  file.refuse_value("optimizer.type",
                    "AdamW, Adam, Adagrad, Lion, Muon, SGD, RMSprop or Adafactor" +
                        (unbuilt == std::end(kUnbuilt) ? "" : " (instead of this one: " + std::string(unbuilt->instead) + ")"));
}

// Throws if the file gives an optimizer a parameter that the optimizer does not have. Known parameters that
// change nothing in Spillway ("fused", "foreach") are accepted. Turning the bias correction off is refused.
void check_params(const DeepspeedReader& file, const Rule& rule) {
  const DeepspeedReader::Json* params = file.find("optimizer.params");
  if (params == nullptr) return;
  if (!params->is_object()) file.refuse_value("optimizer.params", "an object");
  std::vector<std::string> known = {"lr", "weight_decay", "foreach", "fused", "capturable", "differentiable", "set_grad_none"};
  if (!rule.betas.empty())
    known.insert(known.end(), {"betas", "torch_adam", "adam_w_mode", "bias_correction", "amsgrad", "fp32_optimizer_states"});
  if (rule.theirs == "sgd" || rule.theirs == "muon") known.emplace_back("nesterov");
  if (rule.theirs == "rmsprop") known.emplace_back("centered");
  known.insert(known.end(), rule.numbers.begin(), rule.numbers.end());
  for (const auto& [key, value] : params->items()) {
    if (std::ranges::find(known, key) != known.end()) continue;
    const std::string path = kParams + key, guess = nearest(key, known);
    if (key == "max_grad_norm") refuse("[" + file.what(path) + "] expected the key gradient_clipping instead, which DeepSpeed reads");
    std::string all;
    for (const std::string& one : known) all += (all.empty() ? "" : ", ") + one;
    refuse("[" + file.what(path) + "] expected a parameter of " + std::string(rule.theirs) + ": " + all +
           (guess.empty() ? "" : "; did you mean " + guess + "?"));
  }
  if (!file.flag(kParams + "bias_correction", true))
    file.refuse_value(kParams + "bias_correction", "true: the bias of the moments is always corrected");
}

std::string betas_of(const DeepspeedReader& file, const Rule& rule) {
  const std::string path = kParams + "betas";
  const DeepspeedReader::Json* betas = file.find(path);
  if (betas == nullptr) return std::string(rule.betas);
  if (!betas->is_array() || betas->size() != 2 || !(*betas)[0].is_number() || !(*betas)[1].is_number())
    file.refuse_value(path, "two numbers");
  return print_number((*betas)[0].get<double>()) + "," + print_number((*betas)[1].get<double>());
}

std::string ours_of(const DeepspeedReader& file, const Rule& rule) {
  if (rule.ours != "adamw") return std::string(rule.ours);
  const bool decoupled = rule.theirs == "adamw" || file.flag(kParams + "adam_w_mode", true);
  if (!file.flag(kParams + "amsgrad")) return decoupled ? "adamw" : "adam";
  if (decoupled) file.refuse_value(kParams + "amsgrad", "false: amsgrad is supported only with adam_w_mode false");
  return "amsgrad";
}

// Translates the warm-up of the learning rate, and notes how it differs from DeepSpeed's.
// `minimum` is the key of the learning rate at which DeepSpeed's warm-up begins.
void warm_up(DeepspeedReader& file, const std::string& minimum) {
  const std::string params = "scheduler.params.";
  // 2 is the least number of warm-up steps that DeepSpeed uses
  const i64 steps = std::max<i64>(2, file.integer(params + "warmup_num_steps").value_or(1000));
  if (!file.is_auto(params + "warmup_num_steps")) file.give("warmup-steps", std::to_string(steps), params + "warmup_num_steps");
  if (file.text(params + "warmup_type").value_or("log") != "linear")
    file.note(
        "scheduler.params.warmup_type: the learning rate rises linearly, while DeepSpeed's default rises with the logarithm of the step");
  if (file.number(params + minimum).value_or(0) != 0) file.note("scheduler.params." + minimum + ": the learning rate rises from 0 instead");
  file.note(
      "scheduler: step s (from 0) of a warm-up of W steps has the learning rate lr (s + 1) / (W + 1); DeepSpeed's first two steps have the "
      "lowest");
}

// Translates the decay of the learning rate. After a warm-up of W steps, DeepSpeed's linear rate of
// step s is (total - s) / (total - W). Spillway's linear schedule gives the same rates if it spans
// total + 1 steps. DeepSpeed's cosine schedule reaches its end one step earlier than its linear one.
void fall(DeepspeedReader& file, const std::string& schedule, double least) {
  file.give("lr-schedule", schedule, "scheduler.type");
  file.give("min-lr-ratio", least, "scheduler.type");
  const std::string path = "scheduler.params.total_num_steps";
  const auto total = file.integer(path);
  if (!total) return;
  if (*total < 1) file.refuse_value(path, "at least 1");
  file.give("steps", std::to_string(*total), path);
  file.give("schedule-steps", std::to_string(schedule == "linear" ? *total + 1 : *total), path);
}

void check_schedule_params(const DeepspeedReader& file, const std::vector<std::string>& known) {
  const DeepspeedReader::Json* params = file.find("scheduler.params");
  if (params == nullptr) return;
  if (!params->is_object()) file.refuse_value("scheduler.params", "an object");
  for (const auto& [key, value] : params->items()) {
    if (std::ranges::find(known, key) != known.end()) continue;
    const std::string guess = nearest(key, known);
    refuse("[" + file.what("scheduler.params." + key) + "] " + *file.text("scheduler.type") + " has no such parameter" +
           (guess.empty() ? "" : "; did you mean " + guess + "?"));
  }
}

}  // namespace

void take_optimizer(DeepspeedReader& file) {
  const std::optional<std::string> type = file.text("optimizer.type");
  if (!type) {
    file.note("optimizer: the file has none, so the flags apply (--optimizer, --learning-rate, --weight-decay ..)");
    return;
  }
  const Rule& rule = rule_named(file, *type);
  check_params(file, rule);
  file.give("optimizer", ours_of(file, rule), "optimizer.type");
  const auto take = [&](const std::string& key, const std::string& flag, std::optional<double> otherwise) {
    const std::optional<double> value = file.number(kParams + key);
    if (value || (otherwise && !file.is_auto(kParams + key))) file.give(flag, value ? *value : *otherwise, kParams + key);
  };
  take("lr", "learning-rate", rule.learning_rate);
  const bool torch_adamw = rule.theirs == "adamw" && file.flag(kParams + "torch_adam");
  take("weight_decay", "weight-decay", torch_adamw ? 0.01 : rule.weight_decay);
  file.give("decay-all", "true", "optimizer");
  for (const std::string_view key : rule.numbers) take(std::string(key), std::string(key), {});
  if (!rule.betas.empty() && !file.is_auto(kParams + "betas")) file.give("betas", betas_of(file, rule), kParams + "betas");
  for (const char* key : {"nesterov", "centered"}) {
    if (file.flag(kParams + key)) file.give(key, "true", kParams + key);
  }
}

void take_schedule(DeepspeedReader& file) {
  const std::string params = "scheduler.params.";
  const std::optional<std::string> type = file.text("scheduler.type");
  if (!type) {
    if (!file.find("optimizer") || file.is_auto("scheduler")) return;
    file.give("lr-schedule", "constant", "optimizer");
    file.give("warmup-steps", "0", "optimizer");
    return;
  }
  const std::vector<std::string> warming = {"warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type", "last_batch_iteration"};
  std::vector<std::string> falling = warming;
  falling.emplace_back("total_num_steps");
  if (*type == "WarmupLR" || *type == "WarmupDecayLR") {
    const bool falls = *type == "WarmupDecayLR";
    check_schedule_params(file, falls ? falling : warming);
    if (const auto highest = file.number(params + "warmup_max_lr")) file.give("learning-rate", *highest, params + "warmup_max_lr");
    warm_up(file, "warmup_min_lr");
    falls ? fall(file, "linear", 0) : file.give("lr-schedule", "constant", "scheduler.type");
  } else if (*type == "WarmupCosineLR") {
    check_schedule_params(
        file, {"total_num_steps", "warmup_min_ratio", "warmup_num_steps", "cos_min_ratio", "warmup_type", "last_batch_iteration"});
    warm_up(file, "warmup_min_ratio");
    fall(file, "cosine", file.number(params + "cos_min_ratio").value_or(1e-4));
  } else {
    file.refuse_value(
        "scheduler.type",
        "WarmupLR, WarmupDecayLR or WarmupCosineLR (for OneCycle leave this key out and give --lr-schedule onecycle, which is PyTorch's)");
  }
}

}  // namespace spillway::trainer
