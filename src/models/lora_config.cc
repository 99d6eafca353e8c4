// Reads and writes adapter_config.json, as PEFT 0.7 to 0.21 writes it.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "data/safetensors/folder_checksums.h"
#include "models/families/config_json.h"
#include "models/lora.h"

namespace spillway::models {
namespace {

using nlohmann::json;

constexpr i64 kMaxRank = 1 << 16;

// Keys that are not checked for features that are not implemented: keys that other code reads, keys without effect on results, options of
// features that are refused elsewhere when enabled, and keys of the adapters' initialisation, since the values come from the file.
constexpr std::string_view kSilent[] = {"auto_mapping",
                                        "base_model_name_or_path",
                                        "inference_mode",
                                        "init_lora_weights",
                                        "loftq_config",
                                        "eva_config",
                                        "corda_config",
                                        "lora_ga_config",
                                        "ensure_weight_tying",
                                        "megatron_core",
                                        "peft_version",
                                        "revision",
                                        "task_type",
                                        "runtime_config",
                                        "qalora_group_size",
                                        "fan_in_fan_out",
                                        "layers_pattern",
                                        "peft_type",
                                        "r",
                                        "lora_alpha",
                                        "lora_dropout",
                                        "use_rslora",
                                        "target_modules",
                                        "bias",
                                        "alora_invocation_string"};

// Returns whether the value is empty. A value that is not empty, under a key that is not in kSilent, asks for a feature that is not
// implemented.
bool is_nothing(const json& value) {
  return value.is_null() || value == false || ((value.is_object() || value.is_array()) && value.empty());
}

constexpr const char* kMergeInPython = "merge both with PEFT's merge_and_unload() and save_pretrained(), then use the result as --model";

// Checks how the adapters were initialised. PEFT repeats the initialisation when it loads adapters. Some methods then
// change the base's weights (pissa, olora, loftq), need data that only the training program had (corda, lora_ga), or
// keep half of the adapter frozen (mica); these methods are refused. With the other methods all values are in the file.
void check_beginning(const ConfigObject& object) {
  const json* value = object.find("init_lora_weights");
  if (value == nullptr || value->is_boolean()) return;
  std::string name = value->is_string() ? value->get<std::string>() : "";
  if (name == "eva" || name == "orthogonal") return;
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (name == "gaussian") return;
  object.complain(
      "init_lora_weights",
      fmt::format("true, false, gaussian, orthogonal or eva (other methods change the base model or the training: {})", kMergeInPython));
}

std::vector<std::string> targets_of(const ConfigObject& object) {
  const json* value = object.find("target_modules");
  if (value && value->is_string() && *value == "all-linear") return {};
  if (!value || !value->is_array() || value->empty())
    object.complain("target_modules", "\"all-linear\" or a list of module names (regular expressions are not supported)");
  std::vector<std::string> names;
  for (const json& name : *value) {
    if (!name.is_string()) object.complain("target_modules", "a list of module names");
    names.push_back(name.get<std::string>());
    if (is_embedding_or_head(names.back()))
      object.complain("target_modules", fmt::format("names of layers between the embedding and the head, so without {} (adapters of the "
                                                    "embedding or the head are not supported: {})",
                                                    names.back(), kMergeInPython));
  }
  return names;
}

std::string text_of(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kAdapterConfigName;
  if (!std::filesystem::exists(path))
    throw Error(ErrorCode::data,
                fmt::format("[adapter] {}: expected a PEFT folder with an {}, got none", folder.string(), kAdapterConfigName));
  return data::read_checked_text(data::FolderChecksums::of(folder), path);
}

}  // namespace

LoraConfig parse_adapter_config(std::string_view text, const std::string& file) {
  const json root = parse_object(text, file, "adapter");
  const ConfigObject object(root, file);
  if (object.text("peft_type") != "LORA") object.complain("peft_type", "LORA (no other kind of adapter is supported)");
  for (const auto& [key, value] : root.items()) {
    if (std::ranges::find(kSilent, key) == std::end(kSilent) && !is_nothing(value))
      object.complain(
          key, key == "modules_to_save"
                   ? fmt::format("no such key (modules trained in full together with an adapter are not supported: {})", kMergeInPython)
                   : "no such key (this feature is not supported)");
  }
  check_beginning(object);
  if (object.text("bias", "none") != "none") object.complain("bias", "none (trained biases are not supported)");
  LoraConfig lora;
  lora.rank = object.whole("r", 1, kMaxRank, 8);
  lora.alpha = object.real("lora_alpha", 0, 1e9, 8.0, true);
  lora.dropout = object.share("lora_dropout", 0);
  lora.rank_stabilized = object.flag("use_rslora", false);
  lora.targets = targets_of(object);
  return lora;
}

LoraConfig read_adapter_config(const std::filesystem::path& folder) {
  return parse_adapter_config(text_of(folder), (folder / kAdapterConfigName).string());
}

AdapterBase read_adapter_base(const std::filesystem::path& folder) {
  const std::string file = (folder / kAdapterConfigName).string();
  const json root = parse_object(text_of(folder), file, "adapter");
  const ConfigObject object(root, file);
  return {object.text("base_model_name_or_path"), object.text("revision", "main")};
}

std::string adapter_json(const ModelConfig& config, const std::vector<std::string>& modules, const std::string& base) {
  const LoraConfig& lora = config.lora.value();
  const auto number = [](double x) { return x == static_cast<double>(static_cast<i64>(x)) ? json(static_cast<i64>(x)) : json(x); };
  const json root = {{"peft_type", "LORA"},
                     {"task_type", "CAUSAL_LM"},
                     {"base_model_name_or_path", base},
                     {"r", lora.rank},
                     {"lora_alpha", number(lora.alpha)},
                     {"lora_dropout", lora.dropout},
                     {"use_rslora", lora.rank_stabilized},
                     {"target_modules", lora.targets.empty() ? json(modules) : json(lora.targets)},
                     {"fan_in_fan_out", config.family == Family::gpt2},
                     {"bias", "none"},
                     {"inference_mode", true},
                     {"init_lora_weights", true}};
  return root.dump(2) + "\n";
}

}  // namespace spillway::models
