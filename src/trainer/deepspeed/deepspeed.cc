#include "trainer/deepspeed/deepspeed.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "trainer/deepspeed/keys.h"
#include "trainer/deepspeed/reader.h"
#include "trainer/node/host.h"
#include "trainer/settings/json_object.h"
#include "trainer/settings/text.h"

namespace spillway::trainer {
namespace {

using Json = DeepspeedReader::Json;

constexpr const char* kZero = "zero_optimization";

std::string shown(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

// Keys checks every key of the DeepSpeed file and handles it as the table in keys.cc says.
class Keys {
 public:
  Keys(DeepspeedReader& file) : file_(file) {}

  // Handles all keys of an object. Keys that begin with an underscore are skipped, because public configuration files use them as comments.
  void over(const Json& object, const std::string& prefix) {
    for (const auto& [key, value] : object.items()) {
      if (!key.starts_with("_")) one(prefix + key, value);
    }
  }

  void say() {
    if (!autos_.empty()) file_.note(joined(autos_) + ": auto, so the value of the matching flag applies, or the default");
    for (const auto& [words, paths] : noted_) file_.note(joined(paths) + ": " + std::string(words));
  }

 private:
  static std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, ", ")); }

  // Returns whether a section is switched off. It is off if its key "enabled" is false,
  // or if DeepSpeed defines such a key for the section and the file does not set it.
  static bool is_off(const Json& section, const std::string& path) {
    const std::string enabled = path + ".enabled";
    const DeepspeedKey* key = find_deepspeed_key(enabled);
    const auto found = section.find("enabled");
    return found == section.end() ? key != nullptr && key->path == enabled : *found == false;
  }

  void one(const std::string& path, const Json& value) {
    const DeepspeedKey* key = find_deepspeed_key(path);
    const bool section = is_deepspeed_section(path);
    if (key == nullptr && !section) {
      const std::string guess = nearest_deepspeed_key(path);
      refuse("[" + file_.what(path) + "] DeepSpeed has no such key" + (guess.empty() ? "" : "; did you mean " + guess + "?"));
    }
    if (value.is_null()) return;
    if (value == "auto") return autos_.push_back(path);
    if (section && value.is_object()) {
      if (!is_off(value, path)) over(value, path + ".");
      return;
    }
    if (key == nullptr) file_.refuse_value(path, "an object");
    switch (key->treatment) {
      case Treatment::same:
        if (value.is_structured()) file_.refuse_value(path, "one value");
        return file_.give(std::string(key->words), value.is_string() ? value.get<std::string>() : shown(value), path);
      case Treatment::read:
        return;
      case Treatment::noted:
        return noted_[key->words].push_back(path);
      case Treatment::refused:
        if (!asks_for_nothing(*key, value))
          refuse("[" + file_.what(path) + "] " + shown(value) + " is not supported: " + std::string(key->words));
    }
  }

  // Counts the keys "enabled" inside an object (`all`), and those of them that are not false (`on`).
  static void count_switches(const Json& object, int& all, int& on) {
    for (const auto& [key, value] : object.items()) {
      if (key == "enabled") ++all, on += value != false;
      if (value.is_object()) count_switches(value, all, on);
    }
  }

  // Returns whether a value asks for no feature: it is one of the values in the table, or an object whose switches are all off.
  static bool asks_for_nothing(const DeepspeedKey& key, const Json& value) {
    int switches = 0, on = 0;
    if (value.is_object()) count_switches(value, switches, on);
    if (switches > 0 && on == 0) return true;
    if (key.nothing.empty()) return false;
    return ("|" + std::string(key.nothing) + "|").find("|" + shown(value) + "|") != std::string::npos;
  }

  DeepspeedReader& file_;
  std::vector<std::string> autos_;
  std::map<std::string_view, std::vector<std::string>> noted_;
};

// DeepSpeed has three keys for the batch (global size, micro-batch size,
// accumulation steps) and needs two of them. The number of ranks gives the third.
constexpr i64 kMostRows = std::numeric_limits<i32>::max();  // the product of two such numbers fits into 64 bits

void take_batches(DeepspeedReader& file) {
  const std::string all = "train_batch_size", micro = "train_micro_batch_size_per_gpu", steps = "gradient_accumulation_steps";
  const auto rows = file.integer(all), each = file.integer(micro), accumulated = file.integer(steps);
  for (const auto& [path, value] : {std::pair(all, rows), std::pair(micro, each), std::pair(steps, accumulated)}) {
    if (value && (*value < 1 || *value > kMostRows)) file.refuse_value(path, fmt::format("from 1 to {}", kMostRows));
  }
  if (each) file.give("micro-batch-size", std::to_string(*each), micro);
  if (rows) {
    const i64 of_a_rank = each.value_or(1) * accumulated.value_or(1);
    if (*rows % of_a_rank != 0) file.refuse_value(all, fmt::format("a multiple of {} x {}, {} rows", micro, steps, of_a_rank));
    file.give("global-batch-size", std::to_string(*rows), all);
    if (!each) file.note(all + ": the batch is split into micro-batches of --micro-batch-size rows, and their gradients are summed");
  } else if (accumulated) {
    file.give("gradient-accumulation-steps", std::to_string(*accumulated), steps);
  }
}

void take_precision(DeepspeedReader& file) {
  const bool bf16 = file.flag("bf16.enabled") || file.flag("bfloat16.enabled"), fp16 = file.flag("fp16.enabled");
  if (bf16 && fp16) refuse("[" + file.what("fp16.enabled") + "] expected either fp16.enabled or bf16.enabled to be true, got both");
  const bool open = file.is_auto("bf16.enabled") || file.is_auto("bfloat16.enabled") || file.is_auto("fp16.enabled");
  if (bf16 || fp16 || !open) file.give("precision", bf16 ? "bf16" : fp16 ? "fp16" : "fp32", fp16 ? "fp16.enabled" : "bf16.enabled");
  constexpr i64 kWindow = 1000;  // DeepSpeed's default loss_scale_window
  const std::string window = "fp16.loss_scale_window";
  if (const auto steps = file.integer(window); fp16 || (steps && file.is_auto("fp16.enabled"))) {
    const i64 taken = steps.value_or(kWindow);
    if (taken < 1) file.refuse_value(window, "at least 1");
    file.give("loss-scale-window", std::to_string(taken), window);
    file.note(fmt::format("{}: the loss scale doubles after {} steps in a row without an overflow", window, taken));
  }
  const std::string accumulate = "data_types.grad_accum_dtype";
  const std::string dtype = file.text(accumulate).value_or("fp32");
  if (dtype == "bf16" || dtype == "bfloat16") {
    file.give("gradient-dtype", "bf16", accumulate);
    file.note(accumulate + ": gradients are summed in fp32 and rounded to bf16 once, before the norm");
  } else if (dtype != "fp32" && dtype != "float32") {
    file.refuse_value(accumulate, "fp32 or bf16");
  }
}

std::string tier_of(const DeepspeedReader& file, const std::string& path) {
  const std::string device = *file.text(path);
  if (device == "cpu") return "host";
  if (device == "nvme") return "nvme";
  if (device != "none") file.refuse_value(path, "none, cpu or nvme");
  return "device";
}

void take_offload(DeepspeedReader& file, const std::string& section, const std::string& placed, const std::string& deprecated) {
  const std::string at = std::string(kZero) + "." + section + ".", device = at + "device", folder = at + "nvme_path";
  if (file.text(device)) {
    const std::string tier = tier_of(file, device);
    if (tier != "device") file.give(placed, tier, device);
    if (tier != "nvme") return;
    const std::string path = file.text(folder).value_or("/local_nvme");
    const auto other = file.given.find("nvme");
    if (other != file.given.end() && other->second.values.front() != Value(path))
      refuse("[" + file.what(folder) + "] expected the same nvme_path for parameters and optimizer, got " + path + " and " +
             read_text(other->second.values.front(), other->second.what));
    file.give("nvme", path, folder);
  } else if (file.flag(std::string(kZero) + "." + deprecated)) {
    file.give(placed, "host", std::string(kZero) + "." + deprecated);
  }
}

void take_zero(DeepspeedReader& file) {
  const Json* zero = file.find(kZero);
  if (zero != nullptr && zero->is_boolean()) file.give("zero-stage", zero->get<bool>() ? "1" : "0", kZero);
  take_offload(file, "offload_optimizer", "place-optimizer", "cpu_offload");
  take_offload(file, "offload_param", "place-parameters",
               file.find(std::string(kZero) + ".cpu_offload_params") ? "cpu_offload_params" : "cpu_offload_param");
}

void take_rest(DeepspeedReader& file) {
  if (file.flag("activation_checkpointing.cpu_checkpointing")) {
    file.give("recompute", "block", "activation_checkpointing.cpu_checkpointing");
    file.give("place-activations", "host", "activation_checkpointing.cpu_checkpointing");
  }
  if (const Json* stages = file.find("pipeline.stages"); stages && stages->is_number())
    file.give("pipeline-stages", std::to_string(*file.integer("pipeline.stages")), "pipeline.stages");
  if (file.integer("pipeline.activation_checkpoint_interval").value_or(0) > 0) {
    file.give("recompute", "block", "pipeline.activation_checkpoint_interval");
    file.note("pipeline.activation_checkpoint_interval: each block keeps only its input, whatever the interval");
  }
  for (const char* path : {"wall_clock_breakdown", "flops_profiler.enabled"}) {
    if (file.flag(path)) file.give("profile", "true", path);
  }
  if (file.flag("csv_monitor.enabled")) file.give("metrics-csv", "true", "csv_monitor.enabled");
  if (!file.given.contains("gradient-clipping") && !file.is_auto("gradient_clipping"))
    file.give("gradient-clipping", "0", "gradient_clipping");
}

}  // namespace

DeepspeedFlags read_deepspeed_text(const std::string& text, const std::string& where) {
  const Json root = parse_object(text, where, "--deepspeed");
  DeepspeedReader file(root, where);
  Keys keys(file);
  keys.over(root, "");
  take_batches(file);
  take_optimizer(file);
  take_schedule(file);
  take_precision(file);
  take_zero(file);
  take_rest(file);
  keys.say();
  return {std::move(file.given), std::move(file.notes)};
}

DeepspeedFlags read_deepspeed_file(const std::string& path) {
  const auto text = read_whole(path);
  if (!text) refuse("[--deepspeed] expected a JSON file, got " + path + ", which cannot be read");
  return read_deepspeed_text(*text, path);
}

GivenMap with_files(Command command, const GivenMap& flags, std::vector<std::string>& notes) {
  GivenMap given = flags;
  if (const auto file = flags.find("config"); file != flags.end())
    given = merge(command, given, read_config_file(command, read_text(file->second.values.front(), file->second.what)));
  if (const auto file = given.find("deepspeed"); file != given.end()) {
    DeepspeedFlags theirs = read_deepspeed_file(read_text(file->second.values.front(), file->second.what));
    std::erase_if(theirs.given, [&](const auto& one) { return find_option(command, one.first) == nullptr; });
    given = merge(command, given, theirs.given);
    notes = std::move(theirs.notes);
    given.erase("deepspeed");
  }
  return given;
}

}  // namespace spillway::trainer
